"""The guard of a node's worker: a process that keeps the node's lease.

The guard lives only as long as its renewals succeed.

This file is the program. The first line of its standard input says what to guard
(guard_process.py); then it runs the guard (guarding.py). Its arguments say nothing of that, because
everybody on the machine may read arguments. The program runs without the site module: it finds
Python's own modules and the packages that the worker names, and no code of the app.
"""

import json
import os
import select
import signal
import sys

IGNORED = ("INT", "TERM", "HUP", "QUIT", "TSTP", "TTIN", "TTOU", "USR1", "USR2")
"""Signals that are meant for the worker, which may go on for a while."""
FIRST_LINE_S = 60.0
"""Seconds for which the guard waits for its first line, which a worker writes at once."""


def main() -> None:
    """Read the first line of the input; then guard."""
    for name in IGNORED:
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
    read = b""
    while b"\n" not in read:
        words = os.read(0, 65536) if select.select([0], [], [], FIRST_LINE_S)[0] else b""
        if not words:
            return
        read += words
    line, _, unread = read.partition(b"\n")
    facts = json.loads(line)
    sys.path += facts.pop("path")
    from parsync_redis.worker.isolation.guarding import Guard, Guarded

    Guard(Guarded(**facts), unread).run()


if __name__ == "__main__":
    main()
