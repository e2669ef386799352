"""Watches the worker's event loop, which says five times a second that it turns."""

from __future__ import annotations

import sys
import sysconfig
import threading
import time
from typing import Final

BEAT_S: Final = 0.2
"""How often the event loop says that it turns."""


class LoopWatch:
    """When the event loop last turned."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self._turned_s = self._asked_s = self._excused_s = 0.0

    def turned(self) -> None:
        """Note that the event loop turns. The loop calls this every BEAT_S."""
        self._turned_s = time.monotonic()

    @property
    def has_turned(self) -> bool:
        """True once the event loop has turned."""
        return self._turned_s > 0

    def still_s(self, pause_s: float) -> float:
        """Return the seconds since the loop last turned.

        If nobody has asked for `pause_s`, the whole worker stood still, and they are counted from now.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s > pause_s:
            self._excused_s = now_s
        self._asked_s = now_s
        return now_s - max(self._turned_s, self._excused_s)


def whereabouts() -> str:
    """Say where the thread of the event loop is: in the innermost function that is not of the standard library."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None and _of_stdlib(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "it has ended"
    return f"it waits in {frame.f_globals.get('__name__')}.{frame.f_code.co_name}"


def _of_stdlib(file: str) -> bool:
    return file.startswith(("<", sysconfig.get_path("stdlib"))) and "site-packages" not in file
