"""The tasks that Redis has in `taken` for a scheduler: confirm those that were placed, give the
others back.
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


_TASK: Final = attrgetter("task")
NONE: Final[Mapping[str, str]] = MappingProxyType({})


class TakenTasks:
    """The entries of one scheduler in `taken`."""

    def __init__(self, store: Store, core: Core) -> None:
        self._store = store
        self._core = core

    def confirm_due(self) -> None:
        """Confirm what was placed a while ago and has not started: `start` removes a task from
        `taken` too.
        """
        places = self._core.won.due
        self._core.won.confirmed(len(places), but=self.confirm(places))

    def confirm(self, places: Sequence[Place]) -> Sequence[Place]:
        """Confirm those of these places whose tasks are still in `taken`; return those whose
        servers are away.
        """
        store = self._store
        away = list[Place]()
        for at in range(0, len(places), MAX_BATCH):
            some = store.keys.by_shard(places[at : at + MAX_BATCH], _TASK)
            late = list[Place]()
            reads = [
                ("hmget", store.keys.queue("taken", shard), [place.task for place in mine])
                for shard, mine in some
            ]
            for (_, mine), attempts in zip(some, store.pipe_each(reads), strict=True):
                if is_away(store, attempts):
                    away += mine
                else:
                    pairs = zip(mine, attempts, strict=True)
                    late += [place for place, attempt in pairs if attempt == place.attempt.encode()]
            some = store.keys.by_shard(late, _TASK)
            answers = run_apart(store, [store.commands.confirm(mine) for _, mine in some])
            for (_, mine), answer in zip(some, answers, strict=True):
                away += mine if is_away(store, answer) else ()
        return away

    def give_back_all(self) -> None:
        """Give back every task of this scheduler, and let the core forget them."""
        unclaimed = self._core.unclaimed
        self._give_back(range(self._store.keys.shards), unclaimed=unclaimed)
        self._core.forget()

    def give_back_strays(self, shards: Iterable[int] | None = None) -> None:
        """Give back tasks of some shards, or all, that were taken under this name and that the core
        does not know.

        The take of a request that was given up may still be executed late; or an earlier process of
        this name took it.
        """
        self._give_back(
            range(self._store.keys.shards) if shards is None else shards, self._core.taken
        )

    def _give_back(
        self,
        shards: Iterable[int],
        known: Set[str] | None = None,
        unclaimed: Mapping[str, str] = NONE,
    ) -> None:
        for shard in shards:
            try:
                found = self._store.client.hscan_iter(
                    self._store.keys.queue("taken", shard), count=1000
                )
                entries = {readable(task): readable(attempt) for task, attempt in found}
                mine = [
                    task
                    for task, attempt in entries.items()
                    if owner_of(attempt) == self._core.name
                ]
                if strays := [task for task in mine if known is None or task not in known]:
                    # the task may have gone back and been taken again: a take that the core has not
                    # heard of counts
                    undone = {
                        task: unclaimed[task]
                        for task in strays
                        if unclaimed.get(task) == entries[task]
                    }
                    if known is not None:
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
    undone: Mapping[str, str] = NONE,
) -> None:
    """Give back tasks that a scheduler has taken, as a shard has them in `taken`, whatever their
    attempt.

    undone: the takes that are undone, as (task, attempt): no claim of theirs can have won.
    """
    for at in range(0, len(tasks), MAX_BATCH):
        some = tasks[at : at + MAX_BATCH]
        rows: list[tuple[str, str, GiveBack, str]] = [
            (task, undone[task], "undo", why) if task in undone else (task, "", "", why)
            for task in some
        ]
        words = store.run(store.commands.give_back(owner, rows))
        for task, word in zip(some, words, strict=True):
            if word == "stale":
                repair_task(store, task, shard=shard)
