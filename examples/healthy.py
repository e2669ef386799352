"""The health check of a container: exits 0 if its scheduler moves its counter, or its worker is a node that is up.

    python -m examples.healthy scheduler
    python -m examples.healthy worker

Both are asked of Redis: a process that is there but stuck, or cut off from the server, is not healthy.
"""

import socket
import sys
import time

from parsync_redis import ParsyncClient, ParsyncError
from parsync_redis.store.members import read_schedulers

PATIENCE_S = 5.0
"""How long a scheduler has to move its counter: longer than the pause between two renewals of its lease."""


def scheduler_lives(client: ParsyncClient, host: str) -> bool:
    """Whether a scheduler of this host moves its counter."""

    def counters() -> dict[str, int]:
        return {s.name: s.counter for s in read_schedulers(client.store) if s.name.startswith(f"{host}-")}

    before, deadline = counters(), time.monotonic() + PATIENCE_S
    while before and time.monotonic() < deadline:
        if any(counter != before.get(name) for name, counter in counters().items()):
            return True
        time.sleep(0.1)
    return False


def worker_is_up(client: ParsyncClient, host: str) -> bool:
    """Whether the worker of this host is a node that is up; a draining one is healthy."""
    return any(node.name in (host, f"celery@{host}") and node.state == "up" for node in client.nodes())


def main() -> int:
    """Checks what the argument names."""
    check = {"scheduler": scheduler_lives, "worker": worker_is_up}[sys.argv[1]]
    try:
        with ParsyncClient() as client:
            return 0 if check(client, socket.gethostname()) else 1
    except ParsyncError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
