"""Each planted bug has its place: the words that it changes are in the script or function that it
names, once.

A bug that names a test makes this test fail.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.chaos.more_mutants import FENCES
from tests.chaos.mutant import Mutant
from tests.chaos.mutants import MUTANTS, planted
from tests.kit import REPO
from tests.kit.offenders import none_wrong


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    with EmbeddedServer() as server, connect(server.url) as client:
        yield client


def test_a_bug_can_be_planted_and_leaves_scripts_that_compile(client: redis.Redis) -> None:
    wrong = [f"{mutant.name}: {why}" for mutant in MUTANTS for why in mistakes(mutant, client)]
    none_wrong("a bug can be planted and leaves scripts that compile", wrong)


def mistakes(mutant: Mutant, client: redis.Redis) -> Iterator[str]:
    """Say why a bug cannot be planted, or which script does not compile with it."""
    try:
        with planted(mutant) as scripts:
            assert scripts.texts
            for text in scripts.texts.values() if mutant.in_lua else ():
                client.script_load(text)
    except Exception as error:
        yield f"{type(error).__name__} {error}"


BY_NAME = [mutant for mutant in (*MUTANTS, *FENCES) if mutant.found_by]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the project, for all bugs: its bytecode is made once."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("parsync_redis", "lua", "tests"):
        shutil.copytree(REPO / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "pyproject.toml", folder)
    return folder


@contextmanager
def changed(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Have the bug in the files of the copy meanwhile."""
    file = plant(mutant, copy)
    try:
        yield
    finally:
        # with its time, by which Python knows compiled files
        shutil.copy2(REPO / file.relative_to(copy), file)


def plant(mutant: Mutant, copy: Path) -> Path:
    """Plant the bug in the files of the copy; return the file."""
    module, _, function = mutant.where.partition(":")
    file = copy / (f"{module.replace('.', '/')}.py" if function else f"lua/{mutant.where}.lua")
    head, start, body = file.read_text().rpartition(
        f"def {function.rpartition('.')[2]}(" if function else "\0"
    )
    for indent in ("", "    "):  # the words of a method are written without the indent of its class
        old, new = (words.replace("\n", f"\n{indent}") for words in (mutant.old, mutant.new))
        if old in body:
            file.write_text(head + start + body.replace(old, new, 1))
            return file
    pytest.fail(f"{mutant.name}: its words are not in {file}")


def run_tests(tests: list[str], copy: Path) -> tuple[int, str]:
    """Run tests on the copy; return pytest's exit code and the end of its output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=240
    )
    return done.returncode, f"{tests}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def test_the_tests_that_bugs_name_pass_without_them(copy: Path) -> None:
    code, said = run_tests([mutant.found_by for mutant in BY_NAME], copy)
    assert code == 0, said


@pytest.mark.parametrize("mutant", BY_NAME, ids=lambda mutant: mutant.name)
def test_a_bug_that_names_a_test_makes_it_fail(mutant: Mutant, copy: Path) -> None:
    with changed(mutant, copy):
        code, said = run_tests([mutant.found_by], copy)
    assert code == 1, said
