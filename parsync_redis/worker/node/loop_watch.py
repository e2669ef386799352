"""Watches over the worker's event loop and over the thread that renews the lease.

The event loop says five times a second that it turns.
"""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
import time
from typing import Final

log = logging.getLogger("parsync.agent")

BEAT_S: Final = 0.2
"""Interval at which the event loop says that it turns, in seconds."""
STUCK_LEASES: Final = 2
"""The renewing thread is stuck if it has not turned for so many leases."""


class LoopWatch:
    """The time of a loop's last turn. The loop is the event loop, or the loop of a thread."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self._turned_s = self._asked_s = self._excused_s = 0.0

    def turned(self) -> None:
        """Note that the loop turns. The event loop calls this every BEAT_S."""
        self._turned_s = time.monotonic()

    @property
    def has_turned(self) -> bool:
        """True once the event loop has turned."""
        return self._turned_s > 0

    def still_s(self, pause_s: float) -> float:
        """Return the seconds since the loop last turned.

        If nobody has asked for `pause_s` seconds, the whole worker stood still. Then the seconds
        count from now.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s > pause_s:
            self._excused_s = now_s
        self._asked_s = now_s
        return now_s - max(self._turned_s, self._excused_s)


class RenewalWatch:
    """Notices that the thread that renews the lease of a node is stuck.

    Another thread of the worker looks.
    """

    def __init__(self, node: str, loop: LoopWatch, thread: threading.Thread) -> None:
        self._node = node
        self._loop = loop
        self._thread = thread
        self._said = False

    def is_stuck(self, lease_s: float, limit_s: float, is_up: bool) -> bool:
        """Return whether the renewing thread has not turned for `limit_s` seconds.

        After two leases without a turn the log says so, once. A node that is not up has no lease
        yet: its thread may wait for a guard that a busy machine starts slowly.

        A thread that has ended does not turn. Nobody asks while the node leaves or when it has
        stopped.
        """
        still_s = (
            self._loop.still_s(STUCK_LEASES * lease_s) if self._thread.ident is not None else 0.0
        )
        if still_s < STUCK_LEASES * lease_s:
            self._said = False
            return False
        if not self._said:
            self._said = True
            level, flaw = (
                (logging.CRITICAL, "is silent: the thread that has its lease renewed")
                if is_up
                else (logging.WARNING, "is not up yet: the thread that registers it")
            )
            log.log(
                level,
                "node %s %s stands still; %s. After %g s the worker ends",
                self._node,
                flaw,
                whereabouts(self._thread),
                limit_s,
            )
        return still_s >= limit_s


def whereabouts(thread: threading.Thread | None = None) -> str:
    """Return a sentence that says where a thread is, by default the event loop's.

    The sentence names the innermost function that is not of the standard library.
    """
    if thread is not None and not thread.is_alive():
        return "it has ended"  # the thread has ended, and another thread may have its number
    frame = sys._current_frames().get((thread or threading.main_thread()).ident or 0)
    while frame is not None and frame.f_back is not None and _of_stdlib(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "it has ended"
    return f"it waits in {frame.f_globals.get('__name__')}.{frame.f_code.co_name}"


def _of_stdlib(file: str) -> bool:
    return file.startswith(("<", sysconfig.get_path("stdlib"))) and "site-packages" not in file
