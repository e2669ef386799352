"""Runs Celery's own integration suite with every task placed, and compares it with plain Celery.

    python -m tests.parity.celery_suite.compare FOLDER [arguments of pytest]

FOLDER: the suite, with its packages in lib/. Placed: the loader gives each app of the suite a
Parsync, the rules place every task, and each worker of the suite is a node. The suite has one
worker of one process and mostly waits, so it is dealt to several processes, each with a server and
a scheduler of its own.

Each test that does not pass placed must be in the table differences.toml. A test that is not in the
table runs placed again, alone: some tests of the suite allow a tenth of a second, or count what
tests before them have left. A test that fails alone too runs plain, and must fail there as well. A
test of the table must not pass placed. With CELERY_SUITE_PLAIN=all the whole suite runs plain. The
last lines say how many passed; the exit code is 1 if a test is not as it should be.
"""

import json
import os
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from parsync_redis.cli.stack import LocalStack
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit import REPO, reaper
from tests.kit.waiting import ended

TABLE: Final = REPO / "tests/parity/celery_suite/differences.toml"
PLAIN: Final = "plain"
PLACED: Final = "placed"
PROCESSES: Final = 5

MOST_ALONE: Final = 8
"""Tests that fail beside others and pass alone, at most: some of Celery's own do."""

SUITE_S: Final = 1200.0
"""Processes that run the suite side by side, on two cores."""
SHARE: Final = "CELERY_SUITE_SHARE"
SHARES: Final = "CELERY_SUITE_SHARES"
"""The variables that tell a run of pytest which share of the tests is its own, and how many shares
there are.
"""
ONLY: Final = "CELERY_SUITE_ONLY"
"""The variable with the file that lists the tests of which a run has a share; without it the run
has a share of all.
"""
RULES: Final = """partitions = 1
lease_s = 30
[place]
"*" = true
"""
LEFT_OUT: Final = {
    "test_backend.py": "needs Azure's storage",
    "test_cache_backend.py": "needs memcached",
}
"""Files of the suite that need a service, and are skipped or cannot be collected without it."""
PLUGINS: Final = (
    "no:cacheprovider",
    "no:parsync",
    "celery.contrib.pytest",
    "tests.parity.celery_suite.compare",
)

Outcomes = Mapping[str, bool]
"""For each test of the suite, by its id, whether it passed; an expected failure counts as passed."""


def differences() -> dict[str, str]:
    """Return the tests that pass plain and not placed, each with the passage of docs/celery.md that
    says why.
    """
    rows: dict[str, list[str]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {test: passage for passage, tests in rows.items() for test in tests}


def unknown(placed: Outcomes, known: Mapping[str, str]) -> list[str]:
    """Return the tests that did not pass placed and are not in the table: they must not pass plain
    either.
    """
    return sorted(test for test, passed in placed.items() if not passed and test not in known)


def complaints(plain: Outcomes, placed: Outcomes, known: Mapping[str, str]) -> Iterator[str]:
    """Yield what is not as it should be, a line for each test.

    plain: at least the unknown tests.
    """
    for test in unknown(placed, known):
        if plain.get(test, True):
            yield (
                f"{test} passes plain and does not pass placed: mend it, or explain it in "
                f"{TABLE.name}"
            )
    for test in sorted(known):
        if test not in placed:
            yield f"{test} of {TABLE.name} is no test of the suite"
        elif placed[test]:
            yield f"{test} passes placed: take it out of {TABLE.name}"


def read(report: Path) -> dict[str, bool]:
    """Return the outcomes of a report of pytest, without those of tests that were skipped."""
    outcomes: dict[str, bool] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        ids = [word.get("value") for word in case.iter("property") if word.get("name") == "id"]
        # a file that was not collected
        test = ids[0] or "" if ids else f"{case.get('classname')}.{case.get('name')}"
        if all(skip.get("type") == "pytest.xfail" for skip in case.iter("skipped")):
            passed = case.find("failure") is None and case.find("error") is None
            outcomes[test] = outcomes.get(test, True) and passed
    return outcomes


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this run's share, and put their ids into the report: the suite's runs load
    this module.

    Tests that are known to fail run last: pytest keeps what they have made, and tests after them
    would find that.
    """
    only = (
        json.loads(Path(os.environ[ONLY]).read_text(encoding="utf-8"))
        if ONLY in os.environ
        else None
    )
    known = differences()
    wanted = [item for item in items if only is None or item.nodeid in only]
    wanted.sort(key=lambda item: item.nodeid in known)
    share = wanted[int(os.environ[SHARE]) :: int(os.environ[SHARES])]
    config.hook.pytest_deselected(items=[item for item in items if item not in share])
    items[:] = share
    for item in items:
        item.user_properties.append(("id", item.nodeid))


@pytest.fixture(scope="session", autouse=True)
def worker(celery_session_worker: object) -> object:
    """Return Celery's worker.

    Some tests count on a test before to start the worker, and may run alone here.
    """
    return celery_session_worker


class Run:
    """A share of the suite on one side: a server, pytest, and on the placed side a scheduler."""

    def __init__(
        self, exits: ExitStack, suite: Path, side: str, share: int, more: Mapping[str, str]
    ) -> None:
        self.folder = suite / "runs" / f"{side}-{share}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.report = self.folder / "junit.xml"
        self.report.unlink(missing_ok=True)
        server = exits.enter_context(EmbeddedServer())
        host, _, port = server.url.removeprefix("redis://").partition("/")[0].partition(":")
        env = {
            SHARE: str(share),
            "TEST_BROKER": server.url,
            "TEST_BACKEND": server.url,
            "REDIS_HOST": host,
            "REDIS_PORT": port,
            "WORKER_LOGLEVEL": "INFO",  # some of its tests read the worker's log
            "PYTHONPATH": os.pathsep.join(map(str, (suite / "lib", suite, REPO))),
            "C_FORCE_ROOT": "1",
            **more,
        }
        if side == PLACED:
            rules = self.folder / "parsync.toml"
            rules.write_text(RULES, encoding="utf-8")
            env |= {
                "CELERY_LOADER": "parsync_redis.loader:Loader",
                "PARSYNC_CONFIG": str(rules),
                "PARSYNC_NODE": "1",
            }
        self.stack = exits.enter_context(
            LocalStack("suite", server.url, logs=self.folder, cwd=suite, env=env)
        )
        if side == PLACED:
            self.stack.scheduler()

    def start(self, words: Sequence[str]) -> None:
        """Start pytest."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            "pyproject.toml",
            "t/integration",
            "-rfE",
            "--timeout=300",
        ]
        command += [word for plugin in PLUGINS for word in ("-p", plugin)]
        command += [f"--ignore=t/integration/{name}" for name in LEFT_OUT]
        self.tests = self.stack.start("tests", [*command, f"--junit-xml={self.report}", *words])

    def outcomes(self) -> dict[str, bool]:
        """Wait until pytest has ended, print its last lines, and return what it reports."""
        ended(self.tests.popen, "Celery's suite", SUITE_S)
        self.tests.settle()
        print(f"-- {self.folder.name}: {self.tests.lines[-1]}", flush=True)
        if not self.report.exists():
            raise SystemExit("\n".join(["pytest made no report; it said:", *self.tests.lines]))
        return read(self.report)


def outcomes_of(
    suite: Path, side: str, words: Sequence[str], only: Sequence[str] | None, shares: int
) -> dict[str, bool]:
    """Run the suite on one side, or some tests of it, and return the outcomes."""
    outcomes: dict[str, bool] = {}
    more = {SHARES: str(shares)}
    if only is not None:
        listed = suite / "only.json"
        listed.write_text(json.dumps(only), encoding="utf-8")
        more[ONLY] = str(listed)
    with ExitStack() as exits:
        runs = [Run(exits, suite, side, share, more) for share in range(shares)]
        for run in runs:
            run.start(words)
        for run in runs:
            outcomes |= run.outcomes()
    return outcomes


def main(suite: Path, words: Sequence[str]) -> int:
    """Run both sides, print the comparison, and return the exit code."""
    reaper.watch()
    known = differences()
    placed = outcomes_of(suite, PLACED, words, None, PROCESSES)
    if failed := unknown(placed, known):
        placed |= outcomes_of(suite, PLACED, words, failed, 1)
        alone = [test for test in failed if placed.get(test)]
        print(*(f"   passed only alone, on the {PLACED} side: {test}" for test in alone), sep="\n")
        if len(alone) > MOST_ALONE:
            print(
                f"{len(alone)} tests passed only alone: more than {MOST_ALONE} are no accident of "
                "a busy machine"
            )
            return 1
    plain: dict[str, bool] = {}
    if os.environ.get("CELERY_SUITE_PLAIN") == "all":
        plain = outcomes_of(suite, PLAIN, words, None, PROCESSES)
    if failed := [test for test in unknown(placed, known) if not plain.get(test)]:
        plain |= outcomes_of(suite, PLAIN, words, failed, 1)
    for side, outcomes in ((PLACED, placed), (PLAIN, plain)):
        failed = sorted(test for test, passed in outcomes.items() if not passed)
        print(
            f"== {side}: {len(outcomes) - len(failed)} of {len(outcomes)} tests of Celery's suite "
            "pass"
        )
        print(*(f"   not {test} {known.get(test, '')}" for test in failed), sep="\n")
    wrong = [*complaints(plain, placed, known)]
    print(*wrong, sep="\n")
    print(f"{len(placed) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
