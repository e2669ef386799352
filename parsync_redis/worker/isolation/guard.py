"""The guard of a node's worker: a process that does nothing but live for as long as the worker's lease is renewed.

The worker writes to its standard input how long it may live, as a C double: seconds of the clock that also counts while
the machine sleeps. Then, if nothing newer has come, the kernel kills it; also if it is stopped, as the whole worker may
be. It ends when the worker does. Each run is tied to the guard (fence.py) and dies with it.

It is run as a file, by itself. Whatever a task does to its own process, with C code that never lets go of the
interpreter for example, the guard's timer is set anew in time.
"""

import ctypes
import os
import signal
import struct
import sys

CLOCK_BOOTTIME = 7
TIMER_ABSTIME = 1


class _Event(ctypes.Structure):
    """struct sigevent; what stands behind `notify` is for other kinds of notification."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("", ctypes.c_byte * 64),
    )


class _Setting(ctypes.Structure):
    """struct itimerspec: how often again, which is never, and when."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("again_s", "again_ns", "at_s", "at_ns"))


def main() -> None:
    """Says which of its descriptors runs tie themselves to; then keeps the timer until its input ends."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)  # they are for the worker, which may go on for a while
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
