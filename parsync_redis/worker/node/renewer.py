"""The renewer registers the node, and has its lease kept.

The guard keeps the lease; on a machine without a guard this thread does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final

from redis.exceptions import RedisError

from ...errors import ParsyncError, ServerUnreachable
from ...health_file import HealthFile
from ...model.apps import TASKS_LABEL
from ...model.capacity import limits_slots, slots_given
from ...model.node import NO_PROCESS, STANDS_STILL
from ...settings import Settings
from ...store.cluster import ClusterConfig, join_cluster
from ...store.repair.lost_leases import now_ms
from ...store.server.server_errors import Backoff
from ...store.store import Store
from .lease import LeaseKeeper, Order, Report, shorten_timeouts
from .loop_watch import BEAT_S, LoopWatch, whereabouts
from .node_state import LEAVING_S, AgentState, Offered
from .notices import Leaving
from .runs import Run, RunKey
from .sources import SILENT_S
from .worker_port import WorkerPort

log = logging.getLogger("parsync.agent")

LOG_WAITING_S: Final = 3.0
"""Interval at which a node that is not up logs the reason, in seconds."""
RECALL_GRACE_S: Final = 5.0
"""Seconds that a recalled run has from SIGTERM until it is killed."""
LEAVING_GRACE_S: Final = 1.0
"""The same on a node that is about to leave."""
NEWS_CHECK_S: Final = 0.1
"""Interval at which the renewer looks for messages of the guard, in seconds."""


class Renewer:
    """Keeps the node registered, gives signs of life, and ends runs that must not go on."""

    def __init__(
        self, settings: Settings, node: AgentState, port: WorkerPort, loop: LoopWatch
    ) -> None:
        self._settings = settings
        self._node = node
        self._port = port
        self._loop = loop
        self._keeper = LeaseKeeper(node.name)
        self._health = HealthFile(settings.health_file)
        self._listens = 0  # to the inbox of this incarnation
        # the offer of the last attempt to tell the server
        self._seen: Offered | None = None
        # the incarnation and the notice of the last attempt to tell the server
        self._seen_leaves: tuple[int, Leaving | None] = 0, None
        self.own_loop = LoopWatch()  # of the thread that runs this

    def run(self, store: Store) -> None:
        """Renew until the node stops. The store is this thread's own."""
        try:
            if self._wait_for_loop():
                self._renew_until_stopped(store)
        finally:
            self._health.remove()

    def _renew_until_stopped(self, store: Store) -> None:
        node = self._node
        config = None
        backoff = Backoff(log, f"node {node.name}", node.pause_s / 2, LOG_WAITING_S)
        while not node.stopped:
            pause_s = node.pause_s
            self.own_loop.turned()
            try:
                if config is None and (config := self._join(store)) is not None:
                    node.isolation.join(config.id, config.shards)
                    node.lease_s = config.lease_s
                    node.pause_s = config.lease_s / 5
                    pause_s = node.pause_s
                    backoff.well()
                    backoff = Backoff(log, f"node {node.name}", pause_s / 2)
                    shorten_timeouts(store, config.lease_s)
                if config is not None:
                    node.isolation.begin()
                    if not node.inc:
                        if (reader := node.spec.capacity.reader) is not None:
                            reader.asked.wait(SILENT_S)
                        self.register(store, config)
                    self.renew(store, config)
                backoff.well()
            except (ParsyncError, RedisError, OSError) as error:
                pause_s = backoff.pause_s(error)
                if (
                    config is None
                    and isinstance(error, ParsyncError)
                    and not isinstance(error, ServerUnreachable)
                ):
                    log.critical("node %s stops: %s", node.name, error)
                    self._port.stop(cold=False)
                    return
            except Exception:
                # after any error the lease must go on being renewed
                log.exception("node %s: unexpected", node.name)
            try:
                self._wait(pause_s)
            except Exception:
                log.exception("node %s: unexpected", node.name)
                node.wait(pause_s)

    def _wait(self, pause_s: float) -> None:
        """Wait until the pause is over, the guard has a message, or the worker shuts down."""
        node = self._node
        leaving = self._node.leaving
        until_s = time.monotonic() + (min(pause_s, LEAVING_S) if leaving else pause_s)
        while (
            (rest_s := until_s - time.monotonic()) > 0
            and not node.stopped
            and node.leaving == leaving
        ):
            if node.isolation.has_news():
                return
            if node.inc and not leaving and self._offered() != self._seen:
                return
            leaves = node.inc, node.leaves
            if node.inc and node.owes_notice and self._seen_leaves != leaves:
                self._seen_leaves = leaves  # whatever happens, the next try comes after a pause
                return
            node.wait(min(rest_s, NEWS_CHECK_S))

    def _wait_for_loop(self) -> bool:
        """Wait for the first turn of the event loop; return False if the node stops.

        No doorbell is answered before that turn.
        """
        said_s = self._loop.began_s
        while not self._loop.has_turned:
            self.own_loop.turned()
            if self._node.leaving or self._node.stopped:
                return False
            self._node.wait(BEAT_S / 4)
            if time.monotonic() - said_s > LOG_WAITING_S:
                said_s = time.monotonic()
                log.warning(
                    "node %s is not up yet: its event loop does not turn; %s",
                    self._node.name,
                    whereabouts(),
                )
        return True

    def _join(self, store: Store) -> ClusterConfig | None:
        config = join_cluster(store, self._settings, create=False)
        if config is None:
            log.debug(
                "node %s waits for the first scheduler of cluster %s",
                self._node.name,
                store.keys.cluster,
            )
        return config

    def register(self, store: Store, config: ClusterConfig) -> None:
        """Register the node: a new incarnation, perhaps in another partition."""
        node = self._node
        commands = store.commands
        spec = node.spec
        offered = self._offered()
        partition = self._deal(store, config)
        node.told_offer = None
        spec.tell(store)  # the offer is told first, so that no submit is refused
        inc, _ = store.run(
            commands.register_node(
                partition,
                spec.name,
                node.inc,
                spec.score,
                spec.offer.text,
                spec.room,
                spec.capacity.of(spec.offer),
            )
        )
        node.partition = partition
        node.inc = inc
        node.stalled = ""
        node.told_offer = self._seen = offered
        log.info(
            "node %s is up: %s, score %g, partition p%d, incarnation %d",
            spec.name,
            spec.offer.text,
            spec.score,
            partition,
            inc,
        )

    def _deal(self, store: Store, config: ClusterConfig) -> int:
        """Tell the partitions' sums what the node offers; return the node's partition."""
        spec = self._node.spec
        labels = " ".join(
            f"{name}:{value}" for name, value in spec.offer.labels if name != TASKS_LABEL
        )
        return store.run(
            store.commands.deal_node(
                spec.name, config.partitions, labels, spec.offer.slots, spec.score
            )
        )

    def _offered(self) -> Offered:
        """Return what the node offers now."""
        node = self._node
        processes = self._port.processes
        node.spec.follow(processes, self._port.queues)
        behind = frozenset[RunKey]()
        if not node.spec.room:
            capacity = node.spec.capacity.of(node.spec.offer)
            limit = slots_given(node.spec.offer, capacity)
            behind = node.runs.behind(limit, limits_slots(capacity))
        return Offered(node.spec.note, node.spec.offer.text, processes == 0, behind)

    def _tell_offer(self, store: Store, config: ClusterConfig) -> None:
        """Tell the server the offer and the capacity, if they or the runs behind slots changed."""
        node = self._node
        spec = node.spec
        offered = self._seen
        told_offer = node.told_offer
        if offered is None or offered == told_offer:
            return
        node.told_offer = None
        word, *_ = store.run(
            store.commands.set_node(node.partition, node.name, "offer", node.inc, offered.note)
        )
        if word == "gone":
            return  # another process has the name: the next renewal says so
        if told_offer is None or told_offer.offer != offered.offer:
            spec.tell(store)
            self._deal(store, config)
        node.told_offer = offered
        if told_offer is None or told_offer.note != offered.note:
            log.info("node %s offers now: %s", node.name, offered.note)

    def _tell_notice(self, store: Store) -> None:
        """Tell the server when the node leaves, or that it stays after all."""
        node = self._node
        if not node.owes_notice:
            return
        leaves = node.leaves
        until_ms = leaves.until_ms(now_ms(store)) if leaves else 0
        store.run(
            store.commands.set_node(node.partition, node.name, "until", node.inc, str(until_ms))
        )
        node.told_leaves = node.inc, leaves
        if leaves:
            log.warning("node %s leaves: it gets only tasks that end before", node.name)
        else:
            log.warning("node %s stays: its notice is withdrawn", node.name)

    def renew(self, store: Store, config: ClusterConfig) -> bool:
        """Renew the lease and end runs that must not go on.

        Returns False if the node had to register again or was superseded.
        """
        node = self._node
        # noted before the server is told: after an error the next try comes after a pause
        self._seen = self._offered()
        self._seen_leaves = node.inc, node.leaves
        self._watch()
        for source in node.sources:
            source.watch()
        self.kill_recalled()
        if node.leaving and not node.said_leaving:
            store.run(store.commands.set_node(node.partition, node.name, "leaving", node.inc))
            node.said_leaving = True
        order = Order(node.partition, node.inc, config.lease_s, node.stalled)
        reports = node.isolation.keep(store, self._keeper, order)
        taken = [self._take(store, config, report) for report in reports]
        if all(taken):
            self._tell_notice(store)
        if all(taken) and not node.leaving:
            # last: the lease is kept, whatever happens here
            self._tell_offer(store, config)
            self._shrink(store)
        return all(taken)

    def _shrink(self, store: Store) -> None:
        """Recall runs beyond the capacity, if that has lasted too long."""
        node = self._node
        spec = node.spec
        beyond = spec.capacity.to_recall(store, node.runs.going(), spec.offer)
        if beyond:
            tasks = ", ".join(run.place.task for run in beyond)
            log.warning("node %s recalls what is beyond its capacity: %s", node.name, tasks)
        self.recall(beyond, f"{node.name} shrank")

    def _take(self, store: Store, config: ClusterConfig, report: Report) -> bool:
        """Do what the reply to a renewal asks for.

        Returns False if the node had to register again or was superseded.
        """
        node = self._node
        if report.inc != node.inc:
            return True  # the report is about an earlier incarnation
        if report.word == "superseded":
            log.critical("another worker has registered as node %s: this one stops", node.name)
            self.end_runs(node.runs.open())
            self._port.stop(cold=True)
            return False
        if report.word == "lapsed":
            log.warning(
                "node %s was given up: what it ran is stopped, and it registers again", node.name
            )
            self.end_runs(node.runs.open())
            if not node.leaving:
                self.register(store, config)
            return False
        node.drained = report.drain != "0"
        if report.state == "up" or node.stalled == NO_PROCESS:
            how = "suspect" if node.stalled else "drained" if node.drained else "up"
            self._health.renew(time.monotonic(), f"node {node.name} is {how}")
        if node.leaving and report.state == "up":  # the server has lost the state `leaving`
            store.run(store.commands.set_node(node.partition, node.name, "leaving", node.inc))
        self.end_runs([run for run in node.runs.open() if run.place.inc != node.inc])
        if report.drain == "2":  # the deadline of its drain is over
            self.recall(node.runs.open(), "its node is drained")
        elif report.drain == "3":  # the time of its notice has come
            self.recall(node.runs.open(), "its node leaves", LEAVING_GRACE_S)
        # tasks are accepted only now: without a lease no run may start
        if self._listens != node.inc:
            self._listens = node.inc
            self._port.listen()
        return True

    def _watch(self) -> None:
        """Note whether the event loop stands still or the pool has no process.

        The node is suspect meanwhile.

        A solo pool runs tasks in the event loop: while it does, the node is busy, not suspect.
        """
        node = self._node
        stalled = node.stalled
        if node.leaving:
            node.stalled = ""
        elif self._loop.still_s(node.lease_s / 2) > node.lease_s / 2 and not self._port.busy():
            stood_still = stalled.startswith(STANDS_STILL)
            node.stalled = stalled if stood_still else f"{STANDS_STILL}; {whereabouts()}"
        else:
            node.stalled = NO_PROCESS if self._port.processes == 0 else ""
        if node.stalled and not stalled:
            log.warning(
                "node %s is suspect, and gives back what has not begun: %s", node.name, node.stalled
            )
        elif stalled and not node.stalled and not node.leaving:
            log.warning(
                "node %s gets tasks again: nothing keeps its tasks from starting", node.name
            )

    def end_runs(self, runs: list[Run]) -> None:
        """Kill runs without reporting their end: their tasks are placed elsewhere."""
        for run in runs:
            if run.request is None:
                run.unwanted = "recalled"
            elif run.ending in ("", "recalled"):
                run.ending = "SIGKILL"
                self._port.kill(run.request)

    def recall(self, runs: Iterable[Run], why: str, grace_s: float = RECALL_GRACE_S) -> None:
        """End runs in favour of other nodes: their tasks go back, and these starts do not count.

        A run gets SIGTERM, and is killed by `kill_recalled` if it goes on after grace_s. A pool
        that cannot end a run lets it go on to its end. A run that has not begun is not begun.
        Repeated calls change nothing.

        why: the reason in the history of the task.
        """
        for run in runs:
            # a run may be handed over while its recall is noted: then the next call ends it
            if run.ending or (run.unwanted and run.request is None):
                continue
            run.why = why
            if run.request is None:
                run.unwanted = "recalled"
            else:
                run.ending = "recalled"
                run.kill_s = time.monotonic() + grace_s
                self._port.kill(run.request, "SIGTERM")

    def kill_recalled(self) -> None:
        """Kill the recalled runs that go on after the grace of their SIGTERM."""
        now_s = time.monotonic()
        for run in self._node.runs.going():
            if run.request is not None and 0 < run.kill_s < now_s:
                run.kill_s = 0.0
                self._port.kill(run.request)
