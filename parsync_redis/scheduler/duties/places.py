"""Compare `placed` with the leases: requeue tasks whose lease is gone, and tasks that do not start."""

import logging
import re
from collections.abc import Callable
from typing import Final, cast

from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.node import Lease
from ...model.place import Place
from ...store.quarantine import quarantine
from ...store.repair import repair_task
from ...store.server_errors import is_damage
from ...store.store import Store
from ..age_tracker import AgeTracker
from .guarded import guarded
from .suspects import Suspects

log = logging.getLogger("parsync.leader")

_PLACE: Final = re.compile(rb"p\d{1,4} [A-Za-z0-9][A-Za-z0-9_.@-]*/\d{1,4} inc=\d{1,15} attempt=[!-~]+")


class PlaceDuty:
    """The entries of `placed`, of which each pass looks at some hundreds."""

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store, self._lease_s = store, lease_s
        self._unstarted = AgeTracker(lease_s / 2)
        self._suspects = Suspects(store, lease_s)
        self._cursor = 0

    def reset(self) -> None:
        """Watch anew: no task is late for one lease."""
        self._unstarted.reset()
        self._suspects.reset()

    def work(self, clock: Callable[[], float]) -> None:
        """Look at the next entries."""
        store = self._store
        self._unstarted.begin(clock())
        cursor, some = store.client.hscan(store.keys.queue("placed"), self._cursor, count=MAX_BATCH)
        places = []
        for task, text in cast(dict[bytes, bytes], some).items():
            if _PLACE.fullmatch(text):
                places.append(parse_place(readable(task), text.decode()))
            else:
                quarantine(store, f"{store.keys.queue('placed')} {readable(task)}", "not a place", text)
                repair_task(store, readable(task))
        self._cursor = int(cursor)
        for at in range(0, len(places), MAX_BATCH):
            self._compare(places[at : at + MAX_BATCH], clock)
        if not self._cursor:
            self._unstarted.forget_unseen()

    def _compare(self, places: list[Place], clock: Callable[[], float]) -> None:
        """Requeue those of these tasks whose slot has another lease or none, and those that are late to start."""
        store = self._store
        with store.client.pipeline(transaction=False) as pipe:
            for place in places:
                pipe.hget(store.keys.partition(place.partition, "slots"), f"{place.node}/{place.slot}")
                pipe.hmget(store.keys.task(place.task), "state", "attempt")
            replies = pipe.execute(raise_on_error=False)
        now_s, torn, late = clock(), list[Place](), dict[tuple[int, str], list[Place]]()
        for place, text, task in zip(places, replies[::2], replies[1::2], strict=True):
            if wrong := [reply for reply in (text, task) if isinstance(reply, Exception)]:
                if not is_damage(wrong[0]):
                    raise wrong[0]
                guarded(store, "repair_task", repair_task, store, place.task)
                continue
            state, attempt = task
            lease = _lease(place, text)
            if lease is None or (lease.task, lease.attempt, lease.inc) != (place.task, place.attempt, place.inc):
                torn.append(place)
            elif state == b"running":
                self._suspects.started(place)
            elif (state, attempt) == (b"placed", place.attempt.encode()) and (
                self._unstarted.age_s(now_s, place) >= self._lease_s
            ):
                late.setdefault((place.partition, place.node), []).append(lease.place)
        if torn:
            self._requeue_torn(torn)
        for (p, node), waiting in late.items():
            self._suspects.put_back(p, node, waiting, now_s)

    def _requeue_torn(self, torn: list[Place]) -> None:
        """Requeue tasks whose lease is gone."""
        words = self._store.run(self._store.commands.requeue([(place, "its lease was gone") for place in torn]))
        if back := [word for word in words if word != "none"]:
            log.warning("%d tasks had a place and no lease: %s", len(back), " ".join(sorted(set(back))))
        for place, word in zip(torn, words, strict=True):
            if word == "none":
                repair_task(self._store, place.task)


def _lease(place: Place, text: bytes | None) -> Lease | None:
    """Return the lease of a slot; None if there is none that can be read."""
    try:
        return Lease.of(place.node, place.slot, readable(text)) if text else None
    except ValueError:
        return None


def parse_place(task: str, text: str) -> Place:
    """Read a line of the `placed` index, 'p3 n1/3 inc=3 attempt=1@17'."""
    partition, slot, inc, attempt = text.split()
    node, _, number = slot.rpartition("/")
    return Place(task, attempt[8:], int(partition[1:]), node, (int(number),), int(inc[4:]), 0)
