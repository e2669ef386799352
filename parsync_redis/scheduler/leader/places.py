"""The duty to compare `running` with the leases.

The duty puts back leases that are lost, and requeues tasks that do not start.
"""

import logging
from collections.abc import Callable, Sequence
from typing import cast

from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.place import Place
from ...model.record import read_run
from ...store.repair.lost_leases import now_ms, put_back_leases, runs_by_leases
from ...store.repair.quarantine import quarantine
from ...store.repair.repair import repair_partition, repair_task
from ...store.server.server_errors import AWAY, is_damage
from ...store.store import Store
from ..process.guarded import guarded, unless_away
from ..process.lease_watch import AgeTracker
from ..process.taken_tasks import TASK_OF
from .black_holes import Suspects

log = logging.getLogger("parsync.leader")


class PlaceDuty:
    """The entries of `running`; each pass looks at some hundreds of them."""

    def __init__(self, store: Store, partitions: int, lease_s: float) -> None:
        self._store = store
        self._partitions = partitions
        self._lease_s = lease_s
        self._unstarted = AgeTracker(lease_s / 2)
        self._suspects = Suspects(store, lease_s)
        self._shard = 0
        self._cursor = 0

    def reset(self) -> None:
        """Watch anew: no task is late for one lease."""
        self._unstarted.reset()
        self._suspects.reset()

    def work(self, clock: Callable[[], float]) -> None:
        """Look at the next entries, of one shard after the other.

        When the last entry of the last shard has been looked at, all entries have been seen.
        """
        self._unstarted.begin(clock())
        runs: list[tuple[Place, bool]] = []
        for _ in range(self._store.keys.shards):
            shard = self._shard
            with unless_away(self._store):
                runs += self._read()
                shard = -1
            if shard == self._shard:  # the primary of the shard is away
                self._shard = (shard + 1) % self._store.keys.shards
                self._cursor = 0
            if len(runs) >= MAX_BATCH or not (self._shard or self._cursor):
                break
        for start in range(0, len(runs), MAX_BATCH):
            self._compare(runs[start : start + MAX_BATCH], clock)
        if not (self._shard or self._cursor):
            self._unstarted.forget_unseen()

    def _read(self) -> list[tuple[Place, bool]]:
        """Return the next entries, and whether each has started; repair damaged ones."""
        store = self._store
        key = self._store.keys.queue("running", self._shard)
        cursor, texts_by_task = store.client.hscan(key, self._cursor, count=MAX_BATCH)
        runs: list[tuple[Place, bool]] = []
        for task, text in cast(dict[bytes, bytes], texts_by_task).items():
            place, started_ms = read_run(readable(text))
            if place is not None and place.task == readable(task):
                runs.append((place, started_ms is not None))
            else:
                quarantine(store, f"{key} {readable(task)}", "not a place", text)
                repair_task(store, readable(task), shard=self._shard)
        self._cursor = int(cursor)
        if not self._cursor:
            self._shard = (self._shard + 1) % store.keys.shards
        return runs

    def _compare(self, runs: list[tuple[Place, bool]], clock: Callable[[], float]) -> None:
        """Recover running tasks that have lost their slots; requeue placed tasks that start late.

        A task has lost its slots if a slot has another lease, or none.
        """
        store = self._store
        with store.client.pipeline(transaction=False) as pipe:
            for place, _ in runs:
                pipe.hget(store.keys.partition(place.partition, "slots"), place.seat)
            leases = pipe.execute(raise_on_error=False)
        now_s = clock()
        torn = list[Place]()
        late = dict[tuple[int, str], list[Place]]()
        damaged = set[int]()
        for (place, started), lease in zip(runs, leases, strict=True):
            if isinstance(lease, AWAY):
                continue  # the primary of the partition is away, so nobody knows
            if isinstance(lease, Exception):
                if not is_damage(lease):
                    raise lease
                damaged.add(place.partition)
            elif lease != place.text.encode():
                torn.append(place)
            elif started:
                self._suspects.started(place)
            elif self._unstarted.age_s(now_s, place) >= self._lease_s:
                late.setdefault((place.partition, place.node), []).append(place)
        for p in damaged:
            guarded(store, "repair_partition", repair_partition, store, p, "shut")
        for _, torn_of_shard in store.keys.by_shard(torn, TASK_OF):
            with unless_away(store):
                self._recover_torn(torn_of_shard)
        for (p, node), waiting in late.items():
            with unless_away(store):
                self._suspects.put_back(p, node, waiting, now_s)

    def _recover_torn(self, torn: Sequence[Place]) -> None:
        """Put back the leases that these tasks have lost; requeue tasks whose slots are taken."""
        with_lease, without_lease = put_back_leases(
            self._store, torn, runs_by_leases(self._store, self._partitions, now_ms(self._store))
        )
        if with_lease:
            log.warning("%d tasks had a place and no lease: they have it again", len(with_lease))
        if without_lease:
            self._requeue_torn(without_lease)

    def _requeue_torn(self, torn: Sequence[Place]) -> None:
        """Requeue those of these tasks whose lease is gone."""
        words = self._store.run(
            self._store.commands.requeue([(place, "its lease was gone") for place in torn])
        )
        if requeued := [word for word in words if word != "none"]:
            log.warning(
                "%d tasks had a place and no lease: %s",
                len(requeued),
                " ".join(sorted(set(requeued))),
            )
        for place, word in zip(torn, words, strict=True):
            if word == "none":
                repair_task(self._store, place.task)
