"""Hooks of every run of pytest, of tests/ and of lab/tests/.

They start the reaper, mark the tiers, and deal the tests.
"""

import gc
import os
import signal
from typing import Any

import pytest
from celery.result import AsyncResult

from tests import tiers
from tests.kit import reaper
from tests.kit.servers import server_programs
from tests.kit.shares import make_scheduler


def pytest_configure(config: pytest.Config) -> None:
    """Start the reaper, declare marks, tame the garbage collector, and make a state folder.

    A result that is collected unsubscribes from its result backend. Results of one test module may
    be collected in another, when their server has stopped: Celery would try again for 20 s each, in
    the middle of any test.
    """
    if hasattr(config, "workerinput"):  # pytest-xdist's: the run has its reaper
        reaper.refuse_unmarked()
    else:
        reaper.watch()
    del AsyncResult.__del__
    # a shell's job in the background; programs would inherit it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # of `last`: not the developer's own
    os.environ["XDG_STATE_HOME"] = str(config.rootpath / "build" / "state")
    config.addinivalue_line(
        "markers",
        "one_server(index): a dear test, on one server program: 0 the first (Valkey), -1 the last "
        "(Redis)",
    )
    config.addinivalue_line(
        "markers", "unaudited: the test leaves a state that is broken on purpose"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` runs."""
    tiers.mark(items, [*server_programs()][1:])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what a run of no certain files has left out."""
    lines = [*tiers.left_out(config.getoption("markexpr") == "quick")]
    if lines and config.args_source is not pytest.Config.ArgsSource.ARGS:
        terminalreporter.section("left out")
        terminalreporter.write("".join(f"{line}\n" for line in lines))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through ten thousand tests again and again."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal the tests to pytest-xdist's workers."""
    return make_scheduler(config, log)
