"""The short form of `make fuzz`: a fixed list of cases, and a planted fault that must be found.

Promise 10 of docs/invariants.md.
"""

import logging
from collections.abc import Iterator

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.store.server.embedded import EmbeddedServer

from .entries import FuzzedEntry
from .run import judge, run, shrink

CASES = 1500


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.one_server(0)
def test_every_entry_accepts_or_refuses_in_one_line(server: EmbeddedServer) -> None:
    with ParsyncClient.from_url(server.url, "fuzz") as client:
        result = run(client, server.url, CASES, seed=1)
    assert not result.failure, result.failure
    assert sum(result.cases.values()) == CASES
    assert all(
        result.cases[name] and result.refused[name] < result.cases[name]
        for name in ("client.submit", "options")
    )


def test_an_error_that_is_not_ours_is_a_failure_and_its_case_is_shrunk() -> None:
    def feed(case: list[int]) -> None:
        if 7 in case:
            raise KeyError(7)

    entry = FuzzedEntry(lambda rng: [1, 7, 3], feed)
    assert judge(entry, [1, 7, 3]) == ("raised builtins.KeyError: 7", True)
    assert shrink([1, 7, 3, 7, 5], lambda case: bool(judge(entry, case)[0])) == [7]
