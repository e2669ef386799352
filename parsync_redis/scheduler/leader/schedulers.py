"""The duty to judge schedulers by their counters, and to give back what lost ones have taken."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from ...model.ids import readable
from ...model.record import owner_of
from ...store.store import Store
from ..process.guarded import unless_away
from ..process.lease_watch import LeaseWatch
from ..process.taken_tasks import give_back

log = logging.getLogger("parsync.leader")


class SchedulerDuty:
    """The members, and the owners in `taken` that are no members.

    lost: 'NAME COUNTER' of each member that the last pass judged lost.
    """

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._members = LeaseWatch(lease_s)
        self._owners = LeaseWatch(lease_s)
        self.lost: list[str] = []

    def reset(self) -> None:
        """Watch anew: no scheduler is judged for one lease."""
        self._members.reset()
        self._owners.reset()
        self.lost = []

    def work(
        self, clock: Callable[[], float], members: Mapping[str, int], seen_s: float | None = None
    ) -> None:
        """Give back the tasks of lost members, and tasks whose owner in `taken` is no member.

        A member is lost if its counter stood still for a lease. members: by name, the counters as
        they were at `seen_s` (monotonic); None for now.
        """
        taken: dict[str, dict[int, list[str]]] = {}
        for shard, key in enumerate(self._store.keys.queues("taken")):
            with unless_away(self._store):
                for task, attempt in self._store.client.hscan_iter(key, count=1000):
                    shards = taken.setdefault(owner_of(readable(attempt)), {})
                    shards.setdefault(shard, []).append(readable(task))
        now_s = clock()
        orphans = {owner: "" for owner in taken if owner not in members}
        for owner in self._owners.look(now_s, cast(dict[Any, Any], orphans)):
            self._give_back(cast(str, owner), taken[cast(str, owner)])
        self.lost = []
        watched_s = now_s if seen_s is None else seen_s
        for member in self._members.look(watched_s, cast(dict[Any, Any], members)):
            name = cast(str, member)
            log.warning("scheduler %s stood still for a lease: its tasks go back", name)
            self._give_back(name, taken.get(name, {}))
            self.lost.append(f"{name} {members[name]}")

    def _give_back(self, owner: str, taken: Mapping[int, list[str]]) -> None:
        """Give back the tasks of an owner, by shard."""
        for shard, tasks in taken.items():
            with unless_away(self._store):
                give_back(self._store, owner, shard, tasks, "its scheduler was lost")
