"""Each planted bug has its place: the words that it changes are in the script or function that it names, once."""

from collections.abc import Iterator

import pytest
import redis

from parsync_redis.store.connection import connect
from parsync_redis.store.embedded import EmbeddedServer
from tests.chaos.mutant import Mutant
from tests.chaos.mutants import MUTANTS, planted


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    with EmbeddedServer() as server, connect(server.url) as client:
        yield client


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_can_be_planted_and_leaves_scripts_that_compile(client: redis.Redis, mutant: Mutant) -> None:
    with planted(mutant) as scripts:
        assert scripts.texts
        for text in scripts.texts.values() if mutant.in_lua else ():
            client.script_load(text)
