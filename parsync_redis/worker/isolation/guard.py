"""The guard of a node's worker: a process that lives only as long as the worker's lease is renewed.

The worker writes the guard's deadline to its standard input, as a C double: seconds of the clock that counts while the
machine sleeps. If no newer deadline has come by then, the kernel kills the guard, even if it is stopped. The guard also
ends when the worker does. Each run is tied to the guard (tie.py) and dies with it.

The guard runs this file in a process of its own. A task that keeps its process' interpreter busy, in C code for
example, cannot keep the guard from setting its timer.
"""

import ctypes
import os
import signal
import struct
import sys

CLOCK_BOOTTIME = 7
TIMER_ABSTIME = 1


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


def main() -> None:
    """Print the descriptor that runs tie themselves to; then set the timer by the input until the input ends."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)  # they are meant for the worker, which may go on for a while
    libc = ctypes.CDLL(None, use_errno=True)
    timer = ctypes.c_void_p()
    _check(libc.timer_create(CLOCK_BOOTTIME, ctypes.byref(_Event(None, signal.SIGKILL, 0)), ctypes.byref(timer)))
    ties, other_end = os.pipe()
    os.close(other_end)
    os.write(sys.stdout.fileno(), b"%d\n" % ties)
    while words := os.read(sys.stdin.fileno(), 4096):
        (until_s,) = struct.unpack("d", words[-8:])
        at_s, part_s = divmod(until_s, 1)
        setting = _Setting(0, 0, int(at_s), int(part_s * 1e9))
        _check(libc.timer_settime(timer, TIMER_ABSTIME, ctypes.byref(setting), None))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), "the kernel gives no timer")


if __name__ == "__main__":
    main()
