"""Starts of child processes in a thread while the main thread forks pool processes, which live on.

    python -m tests.kit.fork_race --starts 1000 --guards 100

A worker does this when its guard dies: the runs that were tied to the guard die too, so the pool
forks at the moment at which another thread starts the next guard. Most starts are of a light
program, by the same function as the guard's.
"""

import argparse
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from subprocess import PIPE

from parsync_redis.worker.children import start_child
from parsync_redis.worker.isolation.guard_process import GuardProcess
from parsync_redis.worker.isolation.guarding import Guarded

POOL = 20
"""Pool processes that live at a time."""
HANGS_S = 30.0
"""A start that takes longer hangs: it waits for pool processes, which do not end."""
PAUSE_S = 0.0005


def start_light() -> None:
    """Start a program that says one line and ends, and read the line."""
    child = start_child(["/bin/echo", "ready"], stdin=PIPE, stdout=PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    # limit: this thread is a daemon. The read ends when all copies of the writing end are closed
    assert child.stdout.read() == b"ready\n"
    child.stdin.close()
    child.stdout.close()
    child.wait()  # limit: this thread is a daemon


def start_guard() -> None:
    """Start a guard of a server that is away, and end it."""
    told = Guarded("n1", "redis://127.0.0.1:1/0", "cluster", 60, 3, 60.0, worker=os.getpid())
    GuardProcess(told).end()


def hanging(starts: int, start: Callable[[], None] = start_light) -> int:
    """Start so many processes beside a forking pool; return how many starts did not return.

    After a start that hangs no other is made: those that were not made are counted as well. A pool
    process lives until a later start has returned.
    """
    done = 0
    begun_s = time.monotonic()

    def work() -> None:
        nonlocal done, begun_s
        for _ in range(starts):
            begun_s = time.monotonic()
            start()
            done += 1

    # each with the starts that had returned when it was forked
    pool: deque[tuple[int, int]] = deque()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive() and time.monotonic() - begun_s < HANGS_S:
            if len(pool) < POOL:
                pool.append((_forked(), done))
            elif pool[0][1] < done - 1:
                _end(pool.popleft()[0])
            thread.join(PAUSE_S)
    finally:
        for pid, _ in pool:
            _end(pid)
    return starts - done


def _forked() -> int:
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # limit: SIGKILL ends it


def main() -> None:
    """Print how many starts hang."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--guards", type=int, default=100)
    given = parser.parse_args()
    hang = 0
    for count, what, start in (
        (given.starts, "processes", start_light),
        (given.guards, "guards", start_guard),
    ):
        began_s = time.monotonic()
        hangs = hanging(count, start)
        hang += hangs
        took_s = time.monotonic() - began_s
        print(
            f"{what} started beside a forking pool that hang: {hangs} of {count} ({took_s:.1f} s)"
        )
    raise SystemExit(1 if hang else 0)


if __name__ == "__main__":
    main()
