"""The guard of a node's worker: a process that keeps the node's lease, and lives only as long as
that succeeds.

This file is the program. It reads from its standard input what it is to guard (guard_process.py),
and then runs the guard (guarding.py). Its arguments show nothing of that, because everybody on the
machine may read them. It runs without the site module, and finds only Python's own modules and
those that the worker names: no code of the app.
"""

import json
import os
import select
import signal
import sys

IGNORED = ("INT", "TERM", "HUP", "QUIT", "TSTP", "TTIN", "TTOU", "USR1", "USR2")
"""Signals that are meant for the worker, which may go on for a while."""
FIRST_LINE_S = 60.0
"""How long the guard waits for what it is to guard: a worker says that at once."""


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
