"""The tasks that Redis has in `taken` for a scheduler.

Tasks that were placed are confirmed; all other tasks are given back.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.place import GiveBack, Place
from ...model.record import owner_of
from ...store.repair.repair import repair_task
from ...store.server.server_errors import AWAY
from ...store.store import Store
from ..core.core import Core
from .guarded import is_away, run_apart

log = logging.getLogger("parsync.scheduler")


TASK_OF: Final = attrgetter("task")
"""Returns the task of a place."""

NONE_UNDONE: Final[Mapping[str, str]] = MappingProxyType({})
"""No take is undone."""


class TakenTasks:
    """The entries of one scheduler in `taken`."""

    def __init__(self, store: Store, core: Core) -> None:
        self._store = store
        self._core = core

    def confirm_due(self) -> None:
        """Confirm the claims that were won a while ago and whose tasks have not started.

        A started task is in `taken` no more, because `start` removes it.
        """
        places = self._core.won.due
        self._core.won.confirmed(len(places), but=self.confirm(places))

    def confirm(self, places: Sequence[Place]) -> Sequence[Place]:
        """Confirm the places whose tasks are still in `taken`.

        Returns the places whose servers are away.
        """
        store = self._store
        away = list[Place]()
        for start in range(0, len(places), MAX_BATCH):
            places_by_shard = store.keys.by_shard(places[start : start + MAX_BATCH], TASK_OF)
            late = list[Place]()
            reads = []
            for shard, places_of_shard in places_by_shard:
                tasks = [place.task for place in places_of_shard]
                reads.append(("hmget", store.keys.queue("taken", shard), tasks))
            replies = store.pipe_each(reads)
            for (_, places_of_shard), attempts in zip(places_by_shard, replies, strict=True):
                if is_away(store, attempts):
                    away += places_of_shard
                else:
                    pairs = zip(places_of_shard, attempts, strict=True)
                    late += [place for place, attempt in pairs if attempt == place.attempt.encode()]
            places_by_shard = store.keys.by_shard(late, TASK_OF)
            answers = run_apart(
                store,
                [store.commands.confirm(places_of_shard) for _, places_of_shard in places_by_shard],
            )
            for (_, places_of_shard), answer in zip(places_by_shard, answers, strict=True):
                away += places_of_shard if is_away(store, answer) else ()
        return away

    def give_back_all(self) -> None:
        """Give back every task of this scheduler, and let the core forget them."""
        unclaimed = self._core.unclaimed
        self._give_back(range(self._store.keys.shards), unclaimed=unclaimed)
        self._core.forget()

    def give_back_strays(self, shards: Iterable[int] | None = None) -> None:
        """Give back tasks in `taken` for this scheduler's name that the core does not know.

        Such a task was taken by a request that had been given up and was executed late, or by an
        earlier process of this name. shards: where to look; None for all.
        """
        self._give_back(
            range(self._store.keys.shards) if shards is None else shards, self._core.taken
        )

    def _give_back(
        self,
        shards: Iterable[int],
        tasks_of_core: Set[str] | None = None,
        unclaimed: Mapping[str, str] = NONE_UNDONE,
    ) -> None:
        """Give back tasks of these shards, except those of `tasks_of_core`.

        unclaimed: by task, the attempt whose take may be undone.
        """
        for shard in shards:
            try:
                fields = self._store.client.hscan_iter(
                    self._store.keys.queue("taken", shard), count=1000
                )
                entries = {readable(task): readable(attempt) for task, attempt in fields}
                own_tasks = [
                    task
                    for task, attempt in entries.items()
                    if owner_of(attempt) == self._core.name
                ]
                if strays := [
                    task for task in own_tasks if tasks_of_core is None or task not in tasks_of_core
                ]:
                    # a take counts of which the core has not heard: the task may have gone back and
                    # been taken again
                    undone = {
                        task: unclaimed[task]
                        for task in strays
                        if unclaimed.get(task) == entries[task]
                    }
                    if tasks_of_core is not None:
                        log.warning(
                            "%d tasks were taken, but the scheduler does not know "
                            "them: they go back",
                            len(strays),
                        )
                    give_back(self._store, self._core.name, shard, strays, "", undone)
            except AWAY as error:
                if not self._store.several:
                    raise
                log.info("shard %d: %s; what was taken there goes back later", shard, error)


def give_back(
    store: Store,
    owner: str,
    shard: int,
    tasks: Sequence[str],
    why: str,
    undone: Mapping[str, str] = NONE_UNDONE,
) -> None:
    """Give back tasks that a scheduler has in `taken` on a shard, whatever their attempt.

    undone: by task, the attempt whose take is undone, because no claim of it can have won.
    """
    for start in range(0, len(tasks), MAX_BATCH):
        batch = tasks[start : start + MAX_BATCH]
        rows: list[tuple[str, str, GiveBack, str]] = [
            (task, undone[task], "undo", why) if task in undone else (task, "", "", why)
            for task in batch
        ]
        words = store.run(store.commands.give_back(owner, rows))
        for task, word in zip(batch, words, strict=True):
            if word == "stale":
                repair_task(store, task, shard=shard)
