"""A thread of a worker that an error ends: it is logged with the error, and the worker ends."""

import pytest

from parsync_redis.worker.duty import Duty
from tests.kit.waiting import joined


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3)], ids=["error", "exit"])
def test_the_error_that_ends_a_thread_is_logged_and_told(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    thread = Duty("parsync-odd", fail)
    failed: list[str] = []
    thread.failed = lambda: failed.append(thread.name)
    thread.start()
    joined(thread)
    assert failed == ["parsync-odd"]
    assert [(line.message, line.exc_info and line.exc_info[1]) for line in caplog.records] == [
        ("the thread parsync-odd has ended by an error: its worker ends", error)
    ]
