"""The thread that talks to the broker: one a process, started by the first that needs it."""

import sys
import threading
from typing import Any

import pytest

from parsync_redis.integration.background import Background
from tests.kit.waiting import joined


def background_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "parsync-background"]


def test_first_callers_at_the_same_time_make_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(background_threads())
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for round in range(1, 31):
            background = Background()
            gate = threading.Barrier(6)
            done = threading.Semaphore(0)

            def first(background: Any = background, gate: Any = gate, done: Any = done) -> None:
                gate.wait(timeout=180)
                background.do(done.release)

            threads = [threading.Thread(target=first) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                joined(thread)
            assert all(done.acquire(timeout=180) for _ in threads)
            assert len(background_threads()) == before + round
    finally:
        sys.setswitchinterval(interval)


def test_a_failed_thread_start_is_logged_and_not_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no thread when the interpreter ends, or when the system has no more threads."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    background = Background()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        background.do(lambda: None)
    assert "is dropped: can't create new thread" in caplog.text
    done = threading.Event()
    background.do(done.set)
    assert done.wait(180), "it works once there is one"
