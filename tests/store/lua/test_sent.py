"""`parsync lua` shows the text that the server gets, and a golden file has one script as it is sent."""

import subprocess
import sys

import pytest

from parsync_redis.store.scripts.scripts import Script
from tests.kit import REPO
from tests.kit.documents import WRITE
from tests.kit.reaper import marked

GOLDEN = REPO / "tests/store/lua/golden/take.lua"


def parsync(*words: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from parsync_redis.cli import main; main()"
    command = [sys.executable, "-c", program, "lua", *words]
    return subprocess.run(
        command, cwd=REPO, env=marked(), capture_output=True, text=True, timeout=60, check=False
    )


def test_a_script_is_shown_as_it_is_sent():
    sent = Script("take").text
    if WRITE:
        GOLDEN.write_text(sent, encoding="utf-8")
    assert parsync("show", "take").stdout == sent
    assert sent == GOLDEN.read_text(encoding="utf-8"), "PARSYNC_TEST_WRITE_DOCS=1 writes it"


@pytest.mark.parametrize("verb", ["take", "confirm"])
def test_the_server_knows_a_script_by_the_digest_of_the_list(store, verb):
    line = next(line for line in parsync("list").stdout.splitlines() if line.split()[0] == verb)
    assert store.client.script_load(Script(verb).text) == line.split()[2]
    assert len(Script(verb).text) == int(line.split()[1])


def test_an_unknown_verb_is_refused_with_those_there_are():
    refused = parsync("show", "tke")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith("error: 'tke' is no verb; there are allot, ")
