"""Each planted bug has its place: the words that it changes are in the script or function that it names, once.

A bug that names a test makes this test fail.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from parsync_redis.store.connection import connect
from parsync_redis.store.embedded import EmbeddedServer
from tests.chaos.more_mutants import FENCES
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


ROOT = Path(__file__).parents[2]
BY_NAME = [mutant for mutant in (*MUTANTS, *FENCES) if mutant.found_by]


def plant_in_copy(mutant: Mutant, folder: Path) -> None:
    """Copy the project to a folder, and plant the bug in the copy's files."""
    for name in ("parsync_redis", "lua", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    module, _, function = mutant.where.partition(":")
    file = folder / (f"{module.replace('.', '/')}.py" if function else f"lua/{mutant.where}.lua")
    before, text = "", file.read_text()
    if function:  # `where` may be all that tells which of several equal places is meant
        name = function.rpartition(".")[2]
        before, start, text = text.partition(f"def {name}(")
        before += start
    for old, new in (
        (mutant.old, mutant.new),
        *[[t.replace("\n", "\n    ") for t in (mutant.old, mutant.new)]] * bool(function),
    ):
        if old in text:
            file.write_text(before + text.replace(old, new, 1))
            return
    pytest.fail(f"{mutant.name}: its words are not in {file}")


def run_test(test: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one test on the project in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("mutant", BY_NAME, ids=lambda mutant: mutant.name)
def test_a_bug_that_names_a_test_makes_it_fail(mutant: Mutant, tmp_path: Path) -> None:
    plant_in_copy(mutant, tmp_path)
    done = run_test(mutant.found_by, tmp_path)
    assert done.returncode == 1, f"{mutant.found_by} does not find it:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
