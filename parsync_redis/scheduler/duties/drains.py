"""End drains whose deadline is over, and the probation of suspect nodes."""

import logging
from collections.abc import Mapping
from typing import Final

from ...model.node import BY_ITSELF, deadline_s
from ...store.store import Store
from ..age_tracker import AgeTracker

log = logging.getLogger("parsync.leader")

PROBATION_LEASES: Final = 3
"""A suspect node that reads its inbox gets tasks again after so many leases."""


class DrainDuty:
    """The drains and suspicions of nodes. They count from when this leader saw them first."""

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store, self._lease_s = store, lease_s
        self._ages = AgeTracker(lease_s)

    def work(self, now_s: float, notes: Mapping[tuple[int, str], tuple[str, str]]) -> None:
        """End what is over. notes: the drain state and the note of each node that has one, by (partition, name)."""
        ages = self._ages.look(now_s, {(*node, *noted) for node, noted in notes.items()})
        for (p, node), (drain, note) in notes.items():
            age_s, limit_s = ages[p, node, drain, note], deadline_s(note)
            if drain == "1" and limit_s is not None and age_s >= limit_s:
                log.warning("the drain of node %s is over: what it still runs is ended and goes back", node)
                self._store.run(self._store.commands.set_node(p, node, "over", note=note))
            elif drain == "0" and not note.startswith(BY_ITSELF) and age_s >= PROBATION_LEASES * self._lease_s:
                self._trust(p, node)  # a node that stands still is trusted again by its own worker

    def _trust(self, p: int, node: str) -> None:
        """Give a suspect node tasks again if it has read its inbox; one that has not is still of no use."""
        if not self._store.client.llen(self._store.keys.inbox(p, node)):
            log.info("node %s reads its inbox: it gets tasks again", node)
            self._store.run(self._store.commands.set_node(p, node, "trust"))
