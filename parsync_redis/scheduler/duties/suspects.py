"""Put back tasks that do not start, and mark the node suspect if several in a row did not."""

import logging
from typing import Final

from ...model.place import Place
from ...store.store import Store

log = logging.getLogger("parsync.leader")

TRIES: Final = 3
"""A node that lets so many tasks wait for a lease, and starts none, is suspect."""

TRIES_LEASES: Final = 5
"""Within so many leases."""


class Suspects:
    """The times at which tasks were put back from each incarnation of a node since a task last started there."""

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store, self._lease_s = store, lease_s
        self._failed: dict[tuple[int, str, int], list[float]] = {}

    def reset(self) -> None:
        """Forget all failures."""
        self._failed.clear()

    def started(self, place: Place) -> None:
        """Forget the failures of a node: a task runs there."""
        self._failed.pop((place.partition, place.node, place.inc), None)

    def put_back(self, p: int, node: str, late: list[Place], now_s: float) -> None:
        """Requeue tasks that waited on a node for a lease and did not start, free their slots, and count it.

        Not while the node runs anything: a worker that runs its tasks itself (solo) answers its doorbells between them.
        """
        store, commands = self._store, self._store.commands
        record = store.nodes(p).get(node)
        leases = store.leases(p, [record]) if record else []
        if not leases or "running" in store.states([lease.place.task for lease in leases]):
            return
        why = f"{node} did not start it for a lease"
        words = store.run(commands.requeue([(place, why) for place in late], "unstarted"))
        back = [place for place, word in zip(late, words, strict=True) if word != "none"]
        store.run(commands.release(p, back))
        key = (p, node, late[0].inc)
        failed = [at for at in self._failed.pop(key, []) if now_s - at < TRIES_LEASES * self._lease_s]
        failed += [now_s] * len(back)
        if len(failed) < TRIES:
            self._failed[key] = failed
            return
        names = " ".join(place.task for place in back[:TRIES])
        log.warning("node %s lives, but did not start what it got (%s): it is suspect, and gets no more", node, names)
        why = f"alive, but {len(failed)} tasks in a row did not start there, the last: {names}"
        store.run(commands.set_node(p, node, "suspect", late[0].inc, why))
