"""The tasks that Redis has in `taken` for a scheduler: confirm those that were placed, give the others back."""

import logging
from collections.abc import Sequence

from ..model.ids import readable
from ..model.limits import MAX_BATCH
from ..model.place import Place
from ..model.record import owner_of
from ..store.repair import repair_task
from ..store.store import Store
from .core import Core

log = logging.getLogger("parsync.scheduler")


class TakenTasks:
    """The entries of one scheduler in `taken`."""

    def __init__(self, store: Store, core: Core) -> None:
        self._store, self._core = store, core

    def confirm_due(self) -> None:
        """Confirm what was placed a while ago and has not started: `start` removes a task from `taken` too."""
        places = self._core.due_to_confirm
        self.confirm(places)
        self._core.confirmed(len(places))

    def confirm(self, places: Sequence[Place]) -> None:
        """Confirm those of these places whose tasks are still in `taken`."""
        taken = self._store.keys.queue("taken")
        for at in range(0, len(places), MAX_BATCH):
            some = places[at : at + MAX_BATCH]
            attempts = self._store.client.hmget(taken, [place.task for place in some])
            late = [place for place, attempt in zip(some, attempts, strict=True) if attempt == place.attempt.encode()]
            if late:
                self._store.run(self._store.commands.confirm(late))

    def give_back_all(self) -> None:
        """Give back every task of this scheduler, and let the core forget them."""
        give_back(self._store, self._core.name, self._mine(), "")
        self._core.forget()

    def give_back_strays(self) -> None:
        """Give back tasks that were taken under this name and that the core does not know.

        The take of a request that was given up may still be executed late; or an earlier process of this name took it.
        """
        known = self._core.taken
        if strays := [task for task in self._mine() if task not in known]:
            log.warning("%d tasks were taken, but the scheduler does not know them: they go back", len(strays))
            give_back(self._store, self._core.name, strays, "")

    def _mine(self) -> list[str]:
        taken = self._store.client.hscan_iter(self._store.keys.queue("taken"), count=1000)
        return [readable(task) for task, attempt in taken if owner_of(readable(attempt)) == self._core.name]


def give_back(store: Store, owner: str, tasks: Sequence[str], why: str) -> None:
    """Give back tasks that a scheduler has taken, whatever their attempt."""
    for at in range(0, len(tasks), MAX_BATCH):
        some = tasks[at : at + MAX_BATCH]
        words = store.run(store.commands.give_back(owner, [(task, "", why) for task in some]))
        for task, word in zip(some, words, strict=True):
            if word == "stale":
                repair_task(store, task)
