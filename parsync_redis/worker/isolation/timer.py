"""The clock of leases, and the timer that ends the guard when the lease was not renewed in time."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Final

KILL_AFTER: Final = 0.8
"""The share of a lease after which the guard and its runs die.

It counts from when the last accepted renewal was sent.
"""
SAY_BEFORE: Final = 0.02
"""The guard logs the reason and ends by itself this share of a lease earlier.

The time is at least SAY_BEFORE_S, which a busy machine needs.
"""
SAY_BEFORE_S: Final = 0.1

CLOCK_BOOTTIME: Final = 7
TIMER_ABSTIME: Final = 1


def now_s() -> float:
    """Return the seconds of this machine's lease clock.

    Nobody can set that clock, and it counts while the machine sleeps.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Event(ctypes.Structure):
    """struct sigevent; the bytes after `notify` belong to other ways to notify."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("", ctypes.c_byte * 64),
    )


class _Setting(ctypes.Structure):
    """struct itimerspec: the interval, which is 0 (never again), and the time."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("again_s", "again_ns", "at_s", "at_ns"))


class LeaseTimer:
    """Timers of the kernel that end this process when the lease was not renewed.

    SIGALRM comes shortly before the end, so that this process says why; SIGKILL comes at the end.

    The kernel delivers SIGKILL to a stopped process too.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._say = self._create(signal.SIGALRM)
        self._kill = self._create(signal.SIGKILL)

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """Set the timers anew after a renewal.

        sent_s: when the request was sent, by the clock of leases.
        """
        until_s = sent_s + KILL_AFTER * lease_s
        self._set(self._kill, until_s)
        self._set(self._say, max(0.001, until_s - max(SAY_BEFORE_S, SAY_BEFORE * lease_s)))

    def _create(self, number: int) -> ctypes.c_void_p:
        timer = ctypes.c_void_p()
        event = _Event(None, number, 0)
        _check(self._libc.timer_create(CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(timer)))
        return timer

    def _set(self, timer: ctypes.c_void_p, until_s: float) -> None:
        at_s, part_s = divmod(until_s, 1)
        setting = _Setting(0, 0, int(at_s), int(part_s * 1e9))
        _check(self._libc.timer_settime(timer, TIMER_ABSTIME, ctypes.byref(setting), None))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel gives no timer: {os.strerror(number)}")
