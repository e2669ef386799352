"""Check the health of a container: exit 0 if its scheduler renews its lease, or its worker is a node that is up.

    python -m examples.healthy scheduler
    python -m examples.healthy worker

Both checks read Redis, so a process that exists but is stuck, or cut off from the server, is not healthy.
"""

import socket
import sys
import time

from parsync_redis import ParsyncClient, ParsyncError
from parsync_redis.store.members import read_schedulers

RENEWAL_S = 5.0
"""A scheduler must increment its counter within this time; it is longer than the pause between two renewals."""


def scheduler_lives(client: ParsyncClient, host: str) -> bool:
    """True if the counter of a scheduler on this host changes."""

    def counters() -> dict[str, int]:
        return {s.name: s.counter for s in read_schedulers(client.store) if s.name.startswith(f"{host}-")}

    before, deadline = counters(), time.monotonic() + RENEWAL_S
    while before and time.monotonic() < deadline:
        if any(counter != before.get(name) for name, counter in counters().items()):
            return True
        time.sleep(0.1)
    return False


def worker_is_up(client: ParsyncClient, host: str) -> bool:
    """True if the worker of this host is a node that is up; a drained node is healthy too."""
    return any(node.name in (host, f"celery@{host}") and node.state == "up" for node in client.nodes())


def main() -> int:
    """Run the check that the argument names."""
    check = {"scheduler": scheduler_lives, "worker": worker_is_up}[sys.argv[1]]
    try:
        with ParsyncClient() as client:
            return 0 if check(client, socket.gethostname()) else 1
    except ParsyncError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
