"""What needs the app's broker and must not keep its caller waiting: done by a thread, one thing after the other.

These are the event task-sent, and the broadcast of a cancel. Neither decides anything: by then parsync's state has it.
While the broker is away they wait in a queue; what does not fit is dropped, and the log says so.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

MOST = 1000
"""The most that waits for the broker."""
AT_EXIT_S = 1.0
"""For how long a process that ends waits until all is done."""

log = logging.getLogger("parsync")
Work = Callable[[], Any]

_lock = threading.Lock()
"""Whoever is the first to have something done makes the thread."""


def _unlock() -> None:
    """A child that was forked while a thread of its parent had the lock has one of its own."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


class Background:
    """A thread that does work; each process has its own, so that a forked child does not wait for its parent's."""

    def __init__(self) -> None:
        self._hand: _Hand | None = None

    def do(self, work: Work) -> None:
        """Has `work` done soon. Does not wait, and does not raise: what cannot be done is dropped."""
        try:
            with _lock:
                hand = self._hand
                if hand is None or hand.process != os.getpid():
                    hand = self._hand = _Hand()
        except RuntimeError as error:  # no thread is to be had: the interpreter ends, say
            log.warning("an event or a broadcast for the app's broker is dropped: %s", error)
            return
        hand.take(work)


class _Hand:
    """The thread of one process, and what waits for it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._waiting: queue.Queue[Work] = queue.Queue(MOST)
        self._full = self._failed = False
        threading.Thread(target=self._run, name="parsync-background", daemon=True).start()
        atexit.register(self._finish)

    def take(self, work: Work) -> None:
        try:
            self._waiting.put_nowait(work)
            self._full = False
        except queue.Full:
            if not self._full:
                log.warning("the app's broker does not answer: events and broadcasts are dropped, %d wait", MOST)
            self._full = True

    def _run(self) -> None:
        while True:
            work = self._waiting.get()
            try:
                work()
                self._failed = False
            except Exception as error:  # kombu raises what its transports do; nobody but the log can be told
                if not self._failed:
                    log.warning("the app's broker took no event or broadcast: %s; tasks do not need it", error)
                self._failed = True
            finally:
                self._waiting.task_done()

    def _finish(self) -> None:
        deadline = time.monotonic() + AT_EXIT_S
        while self.process == os.getpid() and self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)
