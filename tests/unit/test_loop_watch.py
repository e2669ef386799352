"""The thread that renews is watched: one that is stuck is logged, and then the worker ends."""

import logging
import threading
import time

import pytest

from parsync_redis.worker.node.loop_watch import LoopWatch, RenewalWatch
from tests.kit.waiting import happened, joined, until

LEASE_S = 0.1


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "parsync.agent")
    return caplog


@pytest.mark.parametrize(
    ("is_up", "level", "flaw"),
    [
        (True, "CRITICAL", "is silent: the thread that has its lease renewed stands still"),
        (False, "WARNING", "is not up yet: the thread that registers it stands still"),
    ],
)
def test_a_thread_that_is_stuck_is_logged_once_with_where_it_is_and_then_its_worker_ends(
    logs: pytest.LogCaptureFixture, is_up: bool, level: str, flaw: str
) -> None:
    loop = LoopWatch()
    begun = threading.Event()
    go_on = threading.Event()

    def renew_stuck() -> None:
        loop.turned()
        begun.set()
        happened(go_on, "the test lets it go on")

    thread = threading.Thread(target=renew_stuck)
    thread.start()
    happened(begun, "the thread runs")
    watch = RenewalWatch("n1", loop, thread)
    began_s = time.monotonic()
    until(lambda: watch.is_stuck(LEASE_S, 5 * LEASE_S, is_up), "it is stuck")
    assert time.monotonic() - began_s >= 4 * LEASE_S
    (record,) = logs.records
    assert record.levelname == level
    line = record.getMessage()
    assert line.startswith(f"node n1 {flaw}; it waits in ")
    assert "waiting.happened" in line
    loop.turned()
    assert not watch.is_stuck(LEASE_S, 5 * LEASE_S, is_up), "it goes on"
    go_on.set()
    joined(thread)


def test_a_thread_that_has_ended_is_stuck_and_one_that_has_not_begun_is_not(
    logs: pytest.LogCaptureFixture,
) -> None:
    loop = LoopWatch()
    thread = threading.Thread(target=loop.turned)
    watch = RenewalWatch("n1", loop, thread)
    assert not watch.is_stuck(LEASE_S, 0.0, True)
    thread.start()
    joined(thread)
    until(lambda: watch.is_stuck(LEASE_S, 0.0, True), "it is stuck")
    assert "stands still; it has ended. After 0 s" in logs.messages[0]


def test_a_worker_that_stood_still_as_a_whole_does_not_blame_the_thread(
    logs: pytest.LogCaptureFixture,
) -> None:
    loop = LoopWatch()
    watch = RenewalWatch("n1", loop, threading.current_thread())
    loop.turned()
    time.sleep(3 * LEASE_S)  # nobody looks meanwhile
    assert not watch.is_stuck(LEASE_S, 0.0, True)
    assert logs.messages == []
