"""The duty to end drains and notices whose time has come, and the probation of suspect nodes."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ...model.node import BY_ITSELF, Notice, deadline_s, trial_s
from ...store.repair.lost_leases import now_ms
from ...store.scripts.calls import Call
from ...store.store import Store
from ..process.guarded import run_guarded
from ..process.lease_watch import AgeTracker

log = logging.getLogger("parsync.leader")

PROBATION_LEASES: Final = 3
"""A suspect node that reads its inbox gets tasks again after so many leases."""


class DrainDuty:
    """The drains and suspicions of nodes, timed from when this leader first saw them."""

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._lease_s = lease_s
        self._ages = AgeTracker(lease_s)

    def work(self, now_s: float, notes: Mapping[tuple[int, str], tuple[str, str]]) -> None:
        """End the drains and suspicions that are over.

        notes: by (partition, name), the drain state and the note of each node that has a note.
        """
        ages = self._ages.look(now_s, {(*node, *noted) for node, noted in notes.items()})
        set_node = self._store.commands.set_node
        over = list[Call[list[str]]]()
        probation = list[tuple[int, str]]()
        for (p, node), (drain, note) in notes.items():
            age_s = ages[p, node, drain, note]
            limit_s = deadline_s(note)
            if drain == "1" and limit_s is not None and age_s >= limit_s:
                log.warning(
                    "the drain of node %s is over: what it still runs is ended and goes back", node
                )
                over.append(set_node(p, node, "over", note=note))
            elif (
                drain == "0" and not note.startswith(BY_ITSELF) and age_s >= self._probation_s(note)
            ):
                # a node that stands still is trusted again by its own worker
                probation.append((p, node))
        trusted = [set_node(p, node, "trust") for p, node in self._reading(probation)]
        run_guarded(self._store, "drains", [*over, *trusted])

    def end_notices(self, notices: Mapping[tuple[int, str], str]) -> None:
        """Have the runs that remain ended where a node is about to leave.

        notices: by (partition, name), the notice of each node that has a notice, as in its record.
        """
        if not notices:
            return
        now = now_ms(self._store)
        over = list[Call[list[str]]]()
        for (p, node), text in notices.items():
            notice = Notice.of(text)
            if not notice.over and now >= notice.end_ms(self._lease_s):
                log.warning(
                    "node %s is about to leave: what it still runs is ended and goes back", node
                )
                over.append(self._store.commands.set_node(p, node, "over", note=text))
        run_guarded(self._store, "notices", over)

    def _probation_s(self, note: str) -> float:
        """Return how long a suspect node gets no tasks."""
        return trial_s(note) or PROBATION_LEASES * self._lease_s

    def _reading(self, nodes: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """Return the suspect nodes that have read their inbox; the others are of no use yet."""
        reads = [("llen", self._store.keys.inbox(p, node)) for p, node in nodes]
        counts = self._store.pipe_each(reads) if reads else []
        reading = [node for node, unread in zip(nodes, counts, strict=True) if unread == 0]
        for _, node in reading:
            log.info("node %s reads its inbox: it gets tasks again", node)
        return reading
