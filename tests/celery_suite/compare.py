"""Runs Celery's own integration suite plain and placed, side by side, and compares which tests pass.

    python -m tests.celery_suite.compare FOLDER [arguments of pytest]

FOLDER: the suite, with its packages in lib/. Placed: the loader gives each app of the suite a Parsync, the rules place
every task, and each worker of the suite is a node. The suite has one worker of one process and mostly waits, so each
side is dealt to several processes, each with a server of its own, and a scheduler if it is placed.

A test that passes plain must pass placed, unless DIFFERENCES has it. A test of DIFFERENCES must not pass placed.
The last lines say how many passed; 1 if a test is not as it should be.
"""

import os
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from parsync_redis.cli.stack import LocalStack, Process
from parsync_redis.store.embedded import EmbeddedServer
from tests import reaper

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = ROOT / "tests/celery_suite/differences.toml"
PLAIN: Final = "plain"
PLACED: Final = "placed"
SHARES: Final = 3
SHARE: Final = "CELERY_SUITE_SHARE"
"""The variable that tells a run of pytest which share of the tests is its own."""
RULES: Final = """partitions = 1
lease_s = 30
[place]
"*" = true
"""
LEFT_OUT: Final = {"test_backend.py": "needs Azure's storage", "test_cache_backend.py": "needs memcached"}
"""Files of the suite that need a service, which it skips or cannot collect without it."""

Outcomes = Mapping[str, bool]
"""Whether each test of the suite passed, by its name; an expected failure counts as passed."""


def differences() -> dict[str, str]:
    """Return the tests that pass plain and not placed, each with the passage of docs/celery.md that says why."""
    rows: dict[str, list[str]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {test: passage for passage, tests in rows.items() for test in tests}


def complaints(plain: Outcomes, placed: Outcomes, known: Mapping[str, str]) -> Iterator[str]:
    """Yield what is not as it should be, a line for each test."""
    for test in sorted(plain.keys() ^ placed.keys()):
        yield f"{test} ran {PLAIN if test in plain else PLACED} only"
    for test in sorted(plain.keys() & placed.keys()):
        if plain[test] and not placed[test] and test not in known:
            yield f"{test} passes plain and does not pass placed: mend it, or explain it in {TABLE.name}"
        if placed[test] and test in known:
            yield f"{test} passes placed: take it out of {TABLE.name}"
    for test in sorted(known.keys() - placed.keys()):
        yield f"{test} of {TABLE.name} is no test of the suite"


def read(report: Path) -> dict[str, bool]:
    """Return the outcomes of a report of pytest. A test that is skipped is in no report's outcomes."""
    outcomes: dict[str, bool] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        test = f"{case.get('classname', '').removeprefix('t.integration.')}.{case.get('name')}"
        skips = [skip for skip in case.iter("skipped") if skip.get("type") != "pytest.xfail"]
        if not skips:
            passed = case.find("failure") is None and case.find("error") is None
            outcomes[test] = outcomes.get(test, True) and passed
    return outcomes


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this run's share: the suite's runs load this module as a plug-in."""
    share = int(os.environ[SHARE])
    chosen = items[share::SHARES]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


class Run:
    """One share of the suite on one side: a server, a scheduler if it is placed, and pytest."""

    def __init__(self, exits: ExitStack, suite: Path, side: str, share: int, words: list[str]) -> None:
        self.folder = suite / "runs" / f"{side}-{share}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.report = self.folder / "junit.xml"
        self.report.unlink(missing_ok=True)
        server = exits.enter_context(EmbeddedServer())
        address = server.url.removeprefix("redis://").partition("/")[0]
        env = {
            SHARE: str(share),
            "TEST_BROKER": server.url,
            "TEST_BACKEND": server.url,
            "REDIS_HOST": address.partition(":")[0],
            "REDIS_PORT": address.partition(":")[2],
            "PYTHONPATH": os.pathsep.join(map(str, (suite / "lib", suite, ROOT))),
            "C_FORCE_ROOT": "1",
        }
        if side == PLACED:
            rules = self.folder / "parsync.toml"
            rules.write_text(RULES, encoding="utf-8")
            env |= {
                "CELERY_LOADER": "parsync_redis.loader:Loader",
                "PARSYNC_CONFIG": str(rules),
                "PARSYNC_NODE": "1",
            }
        self.stack = exits.enter_context(LocalStack("suite", server.url, logs=self.folder, cwd=suite, env=env))
        if side == PLACED:
            self.stack.scheduler()
        self.tests = self.stack.start("tests", [*self._command(), *words])

    def _command(self) -> list[str]:
        plugins = ("no:cacheprovider", "no:parsync", "celery.contrib.pytest", "tests.celery_suite.compare")
        return [
            *(sys.executable, "-m", "pytest", "-c", "pyproject.toml", "t/integration", "-ra", "--durations=10"),
            *(word for plugin in plugins for word in ("-p", plugin)),
            *(f"--ignore=t/integration/{name}" for name in LEFT_OUT),
            f"--junit-xml={self.report}",
        ]

    def outcomes(self) -> dict[str, bool]:
        """Wait until pytest has ended, and return what it reports; print its last lines."""
        wait(self.tests)
        print(f"-- {self.folder.name}", *[*self.tests.lines][-25:], sep="\n", flush=True)
        if not self.report.exists():
            raise SystemExit(f"{self.folder.name} made no report: see {self.folder / 'tests.log'}")
        return read(self.report)


def wait(process: Process) -> None:
    """Wait for a run of pytest to end, and for its last lines: pytest-timeout ends a test that hangs."""
    process.popen.wait()  # limit: pytest-timeout's
    process.settle()


def main(suite: Path, words: list[str]) -> int:
    """Run both sides, print the comparison, and return the exit code."""
    reaper.watch()
    outcomes: dict[str, dict[str, bool]] = {PLAIN: {}, PLACED: {}}
    with ExitStack() as exits:
        runs = [(side, Run(exits, suite, side, share, words)) for share in range(SHARES) for side in outcomes]
        for side, run in runs:
            outcomes[side] |= run.outcomes()
    wrong = [*complaints(outcomes[PLAIN], outcomes[PLACED], differences())]
    return tell(outcomes, wrong)


def tell(outcomes: Mapping[str, Outcomes], wrong: list[str]) -> int:
    """Print the counts and what is wrong; return the exit code."""
    for side, tests in outcomes.items():
        failed = sorted(test for test, passed in tests.items() if not passed)
        print(f"== {side}: {len(tests) - len(failed)} of {len(tests)} tests of Celery's suite pass")
        print(*(f"   not {test}" for test in failed), sep="\n")
    print(*wrong, sep="\n")
    print(f"{len(outcomes[PLACED]) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    arguments: Any = sys.argv[1:]
    sys.exit(main(Path(arguments[0]), arguments[1:]))
