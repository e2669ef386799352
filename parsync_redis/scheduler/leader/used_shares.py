"""The duty to note what tenants hold, for past use (`half_life`) and work done (`count`)."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from math import ceil
from typing import Final

from ...model.ids import encode_id
from ...model.kind import split_kind
from ...model.node import Node
from ...model.policy import Policy
from ...model.times import class_of, field_of_class
from ...model.used_share import (
    KEPT_HALF_LIVES,
    HeldSlots,
    SharesByTenant,
    rows_to_note,
    shares_held,
    shares_of_work,
    work_of,
)
from ...store.reads.accounts import read_account_lines
from ...store.reads.live_nodes import LiveNode, open_amounts, read_holders
from ...store.reads.views import read_live_nodes
from ...store.repair.lost_leases import now_ms
from ...store.store import Store
from ..process.guarded import batches
from ..process.run_time_reader import RunTimeReader

MAX_NEW_TASKS: Final = 1000
"""Maximum number of tasks whose kinds a pass reads. Other tasks count as the tasks that were read.

The work of a slot is a mean, so a sample of the tasks is enough.
"""

KEEP_WORK_S: Final = 600
"""Seconds that notes last without past use, if no leader writes them anew."""


class UsedShareDuty:
    """The notes in `{C}:shares`. The policy must ask for past use, or for shares by work done.

    The duty keeps nothing of past use: the hash says when each share was noted. So the next leader
    goes on, and two leaders at once count no time twice.
    """

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._times = RunTimeReader(store, lease_s)
        # by task that holds slots, its tenant and name
        self._kinds: dict[str, tuple[str, str]] = {}

    def work(self, policy: Policy, now_s: float) -> None:
        """Note the share of each tenant that holds something, or did at the last pass.

        now_s: monotonic.
        """
        if not policy.notes_shares:
            return
        store = self._store
        before = SharesByTenant.of(store.read("hgetall", store.keys.shared("shares")))
        live = [*chain.from_iterable(read_live_nodes(store))]
        shares = shares_held(read_account_lines(store), *open_amounts(live))
        work = self._work(live, now_s) if policy.by_work else {}
        shares = shares_of_work(shares, work)
        rows = [*rows_to_note(shares, before, now_ms(store), policy, work)]
        keep_s = max(ceil(KEPT_HALF_LIVES * policy.longest_half_life_s), KEEP_WORK_S)
        for batch in batches(rows):
            store.run(store.commands.note_shares(batch, keep_s))

    def _work(self, live: Sequence[LiveNode], now_s: float) -> dict[str, float]:
        """Return how much work a slot of each tenant does, by what runs where."""
        classes = {live_node.node.name: class_of(live_node.node.offer) for live_node in live}
        slots_by_class = Counter[str]()
        nodes: dict[int, list[Node]] = {}
        for live_node in live:
            nodes.setdefault(live_node.partition, []).append(live_node.node)
            if live_node.node.state == "up" and not live_node.node.draining:
                slots_by_class[classes[live_node.node.name]] += live_node.node.offer.slots
        if len(slots_by_class) < 2:
            self._kinds = {}
            return {}  # all nodes are equal
        holders = [
            holder
            for number, of_partition in nodes.items()
            for holder in read_holders(self._store, number, of_partition)
        ]
        self._read_kinds([holder.task for holder in holders])
        running = [
            HeldSlots(*self._kinds[holder.task], classes[holder.node], holder.slots)
            for holder in holders
            if holder.task in self._kinds
        ]
        names = sorted({slots.name for slots in running})
        fields = (field_of_class(name, of_class) for name in names for of_class in slots_by_class)
        self._times.read(chain(names, fields), now_s)
        return work_of(running, slots_by_class, self._times.learnt)

    def _read_kinds(self, tasks: Sequence[str]) -> None:
        """Read the tenants and names of tasks, as far as they are not known; forget the others."""
        self._kinds = {task: self._kinds[task] for task in tasks if task in self._kinds}
        new = [task for task in tasks if task not in self._kinds][:MAX_NEW_TASKS]
        for status in self._store.statuses(map(encode_id, new)) if new else ():
            if status.name:
                self._kinds[status.id] = split_kind(status.kind).tenant, status.name
