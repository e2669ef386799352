"""Work for the app's broker that must not keep its caller waiting.

A thread does the work, in order.

The work is to send the event task-sent and the broadcast of a cancel. Neither decides anything,
because parsync's state is written before. While the broker is away, the work waits in a queue. Work
that finds the queue full is dropped and logged.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

MAX_QUEUED_WORK: Final = 1000
"""Maximum number of pieces of work that wait."""
AT_EXIT_S: Final = 1.0
"""Seconds for which a process that ends waits for the work."""

log = logging.getLogger("parsync")
Work = Callable[[], object]

_lock = threading.Lock()
"""The first caller makes the thread, under this lock."""
# a thread of the parent may hold the lock, and does not live in the child
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


class Background:
    """A thread that does work.

    Each process has its own: a forked child does not have its parent's threads.
    """

    def __init__(self) -> None:
        self._thread: _Thread | None = None

    def do(self, work: Work) -> None:
        """Have `work` done soon, in the thread of this process.

        The call does not wait, and raises nothing: work that cannot be done is dropped.
        """
        try:
            with _lock:
                thread = self._thread
                if thread is None or thread.process != os.getpid():
                    thread = self._thread = _Thread()
        except RuntimeError as error:  # no thread can be started: the interpreter ends, for example
            log.warning("an event or a broadcast for the app's broker is dropped: %s", error)
            return
        thread.take(work)


class _Thread:
    """The thread of one process, and the work that waits for it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._waiting: queue.Queue[Work] = queue.Queue(MAX_QUEUED_WORK)
        self._full = self._failed = False
        threading.Thread(target=self._run, name="parsync-background", daemon=True).start()
        atexit.register(self._finish)

    def take(self, work: Work) -> None:
        try:
            self._waiting.put_nowait(work)
            self._full = False
        except queue.Full:
            if not self._full:
                log.warning(
                    "the app's broker does not answer: events and broadcasts are dropped, %d wait",
                    MAX_QUEUED_WORK,
                )
            self._full = True

    def _run(self) -> None:
        while True:
            work = self._waiting.get()
            try:
                work()
                self._failed = False
            # kombu raises what its transports do; nobody but the log can be told
            except Exception as error:
                if not self._failed:
                    log.warning(
                        "the app's broker took no event or broadcast: %s; tasks do not need it",
                        error,
                    )
                self._failed = True
            finally:
                self._waiting.task_done()

    def _finish(self) -> None:
        deadline = time.monotonic() + AT_EXIT_S
        while (
            self.process == os.getpid()
            and self._waiting.unfinished_tasks
            and time.monotonic() < deadline
        ):
            time.sleep(0.01)
