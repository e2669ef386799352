"""The reconciler compares the node's leases in Redis with the runs of this process.

The reconciler mends the differences. It also ends cancelled runs, and keeps the app's tasks known
to the server.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from signal import Signals
from typing import Any

from ...errors import ServerUnreachable
from ...model.capacity import slots_given
from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.needs import parse_resources
from ...model.node import Lease, Node
from ...model.record import place_text
from ...store.repair.repair import repair_partition
from ...store.server.server_errors import AWAY, is_damage
from ...store.store import Store
from .node_state import AgentState
from .runs import Run, RunKey
from .worker_port import WorkerPort

log = logging.getLogger("parsync.agent")

StoredRun = tuple[str, str]
"""The line of a task and the text of its run, as the server has them; '' for a missing one."""


class Reconciler:
    """Compares leases with runs, five times a lease."""

    def __init__(self, node: AgentState, port: WorkerPort) -> None:
        self._node = node
        self._port = port
        self._seen: set[RunKey] = set()
        self._shard = 0  # whose copy of the app's tasks was looked at last

    def reconcile(self, store: Store) -> None:
        """Compare once.

        A node that leaves, or whose event loop stands still, gives back the leases that it does not
        run. Runs go on while a node leaves, so a cancel ends them then as well.
        """
        node = self._node
        if node.leaving:
            self.end_cancelled(store)
            if node.said_leaving:
                self._give_back(store, self._not_run(store), "its worker shuts down")
            return
        if node.stalled:
            self._give_back_unrung(store, self._not_run(store), node.stalled)
        else:
            self._compare(store)
        self.end_cancelled(store)
        self._keep_known(store)
        node.runs.passed()

    def give_back_all(self, store: Store, going: Collection[RunKey] = ()) -> None:
        """Give back every lease of this incarnation: the worker has stopped.

        going: the runs that go on nevertheless, which keep their leases.
        """
        leases = [lease for lease in self._leases(store) if _key(lease) not in going]
        self._give_back(store, leases, "its worker stopped")

    def give_back_unread(self, store: Store, why: str) -> None:
        """Give back the tasks at waiting seats whose doorbells were not read.

        For a worker whose event loop is blocked by a running task, so that nobody reads the node's
        inbox.
        """
        slots = self._node.ahead.slots
        self._give_back_unrung(
            store, [lease for lease in self._not_run(store) if lease.slot >= slots], why
        )

    def _leases(self, store: Store) -> list[Lease]:
        """Return the lease of the first slot of each task that this incarnation holds."""
        offered = self._node.told_offer
        told_leaves = self._node.told_leaves
        node = store.nodes(self._node.partition).get(self._node.name)
        if node is None:
            return []
        if node.notice is None and node.inc == self._node.inc:
            self._node.forget_notice(told_leaves)
        # while the renewer, another thread, tells a new offer, the record may have either offer
        if (
            offered is not None
            and offered is self._node.told_offer
            and offered.note == self._node.spec.note
        ):
            self._correct(store, node)
        damaged: list[str] = []
        leases = store.leases(self._node.partition, [node], damaged)
        if damaged:
            repair_partition(store, self._node.partition, "shut")
        return [lease for lease in leases if lease.place.inc == self._node.inc and lease.leads]

    def _correct(self, store: Store, record: Node) -> None:
        """Tell the server the offer again if the node's record has another offer.

        Damage may have changed the record. Shut slots open if the runs behind them have ended.
        """
        node = self._node
        spec = self._node.spec
        if record.inc != node.inc or node.leaving or record.state == "down":
            return
        capacity = spec.capacity.of(spec.offer)
        shut = spec.offer.slots - slots_given(spec.offer, capacity)
        differs = (record.offer, record.score, record.capacity) != (
            parse_resources(spec.offer.text),
            spec.score,
            capacity,
        )
        if differs or record.state == "leaving":
            log.warning(
                "node %s: its record says what it does not offer: it is corrected", node.name
            )
        # the runs behind the slots may have ended
        if differs or record.state == "leaving" or record.shut_slots > shut:
            store.run(
                store.commands.set_node(node.partition, node.name, "offer", node.inc, spec.note)
            )

    def _not_run(self, store: Store) -> list[Lease]:
        """Return the leases for which this process has no run.

        The table of runs is read second: a run enters the table before its start is asked for, and
        leaves the table after its lease is gone.
        """
        leases = self._leases(store)
        keys = self._node.runs.keys()
        return [lease for lease in leases if _key(lease) not in keys]

    def _compare(self, store: Store) -> None:
        """Ring again for leases without a run in this pass and in the pass before.

        Their doorbells were lost. If nothing may start in their slots, the tasks go back instead.
        """
        not_run = self._not_run(store)
        twice = [lease for lease in not_run if _key(lease) in self._seen]
        self._seen = {_key(lease) for lease in not_run}
        twice = [lease for lease in twice if not self._given_back(store, lease)]
        words = store.run_all([store.commands.ring(lease.place) for lease in twice])
        for lease, word in zip(twice, words, strict=True):
            if word == "rung":
                log.info(
                    "rang again for task %s on slot %s/%d",
                    lease.place.task,
                    lease.place.node,
                    lease.slot,
                )

    def _given_back(self, store: Store, lease: Lease) -> bool:
        """Give back a lease if nothing may start in its slots; return whether it is back."""
        hindrance = self._node.hindrance(lease.place.slots)
        return bool(hindrance) and self._give_back_unrung(store, [lease], hindrance)

    def _give_back_unrung(self, store: Store, leases: list[Lease], why: str) -> bool:
        """Give back leases that this process does not run; return whether there were any.

        The leases are in the table of runs meanwhile, so that their doorbells start nothing.
        """
        runs = self._node.runs
        entered = [(Run(lease.place), lease) for lease in leases]
        entered = [(run, lease) for run, lease in entered if runs.enter(run)]
        try:
            self._give_back(store, [lease for _, lease in entered], why)
        finally:
            runs.drop([run for run, _ in entered])
        return bool(entered)

    def _give_back(self, store: Store, leases: list[Lease], why: str) -> None:
        """Put the tasks back to pending, then free their slots.

        The tasks of a shard that is away keep their slots until later.
        """
        places_by_shard = store.keys.by_shard(
            [lease.place for lease in leases], lambda place: place.task
        )
        batches = [
            batch[start : start + MAX_BATCH]
            for _, batch in places_by_shard
            for start in range(0, len(batch), MAX_BATCH)
        ]
        calls = [store.commands.requeue([(place, why) for place in batch]) for batch in batches]
        for batch, answer in zip(batches, store.run_each(calls), strict=True):
            if not isinstance(answer, Exception):
                store.run(store.commands.release(self._node.partition, batch))
            elif not (store.several and isinstance(answer, AWAY)):
                raise answer

    def end_cancelled(self, store: Store) -> None:
        """End the runs whose tasks were cancelled, by the signal that the cancel names.

        A run that has not begun is marked unwanted. If the server has lost a start in a failover,
        the start is repeated: the task runs here.
        """
        runs = self._node.runs.open()
        if not runs:
            return
        records = self._records(store, [run.place.task for run in runs])
        unknown = [
            run
            for run in runs
            if run.request is not None and not run.outcome and not _began(run, records)
        ]
        if unknown:
            store.run(store.commands.start([run.place for run in unknown[:MAX_BATCH]]))
        marked = [run for run in runs if _is_marked(run, records)]
        reads = [("hget", store.keys.extra(run.place.task), "cancel") for run in marked]
        for run, word in zip(marked, store.pipe_each(reads), strict=True):
            how = readable(word) if isinstance(word, bytes) else ""
            if not how:
                continue
            if run.request is None:
                run.unwanted = "cancelled"
            elif how not in ("after", run.ending):
                run.ending = how if how in Signals.__members__ else "SIGTERM"
                self._port.terminate(run.request, run.ending)

    def _records(self, store: Store, ids: Sequence[str]) -> dict[str, StoredRun]:
        """Return the line and the run of each task by its id.

        Tasks of a shard that is away are left out.
        """
        keys = store.keys
        reads: list[tuple[Any, ...]] = []  # Any: as Runner.pipe takes them
        shards = keys.by_shard(ids, str)
        for shard, ids_of_shard in shards:
            reads += [
                ("hmget", keys.queue(kind, shard), ids_of_shard) for kind in ("tasks", "running")
            ]
        replies = store.pipe_each(reads)
        records: dict[str, StoredRun] = {}
        for (_, ids_of_shard), lines, places in zip(
            shards, replies[::2], replies[1::2], strict=True
        ):
            if isinstance(lines, list) and isinstance(places, list):
                texts = [readable(text or b"") for text in (*lines, *places)]
                records |= zip(
                    ids_of_shard, zip(texts, texts[len(ids_of_shard) :], strict=False), strict=False
                )
        return records

    def _keep_known(self, store: Store) -> None:
        """Tell a shard again what the node offers and its app knows, if the shard lost that.

        Each call asks the next shard. If the keys are damaged, the leader deletes them first.
        """
        spec = self._node.spec
        if spec.tasks is None:
            return
        self._shard = (self._shard + 1) % store.keys.shards
        shapes, names, apps = (
            store.keys.queue(kind, self._shard) for kind in ("shapes", "names", "apps")
        )
        digest = spec.tasks.digest
        replies = store.pipe_each(
            [("hexists", names, digest), ("zscore", apps, digest), ("hget", shapes, spec.name)]
        )
        if errors := [reply for reply in replies if isinstance(reply, Exception)]:
            if not is_damage(errors[0]) and not isinstance(errors[0], ServerUnreachable):
                raise errors[0]
        elif not replies[0] or replies[1] is None or readable(replies[2] or b"") != spec.offer.text:
            spec.tell(store)


def _is_marked(run: Run, records: dict[str, StoredRun]) -> bool:
    """Return whether the task of a run has rare fields, such as a cancel.

    The run must be the present run of the task.
    """
    line, place = records.get(run.place.task, ("", ""))
    return line.startswith("+") and place_text(place) == run.place.text


def _began(run: Run, records: dict[str, StoredRun]) -> bool:
    """Return whether the server knows that a run has started; True if its shard is away."""
    record = records.get(run.place.task)
    return record is None or record[1].startswith(f"{run.place.text} started=")


def _key(lease: Lease) -> RunKey:
    """Return the key by which the table of runs knows a lease's run."""
    return lease.place.task, lease.place.attempt, lease.slot
