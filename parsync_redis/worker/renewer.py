"""Registers the node and renews its lease, in a thread that does nothing that could keep it from that."""

from __future__ import annotations

import logging
import time
from typing import Final

from redis.exceptions import RedisError

from ..errors import ParsyncError, ServerUnreachable
from ..model.apps import TASKS_LABEL
from ..model.node import STANDS_STILL
from ..settings import Settings
from ..store.cluster import ClusterConfig, join_cluster
from ..store.server_errors import Backoff
from ..store.store import Store
from .isolation.machine import now_s
from .loop_watch import BEAT_S, LoopWatch, whereabouts
from .port import WorkerPort
from .runs import Run
from .state import NodeState

log = logging.getLogger("parsync.agent")

SAY_S: Final = 3.0
"""How often a node logs what it waits for before it is up."""


class Renewer:
    """Keeps the node registered: joins the cluster, registers, renews, and ends runs that must not go on."""

    def __init__(self, settings: Settings, node: NodeState, port: WorkerPort, loop: LoopWatch) -> None:
        self._settings, self._node, self._port, self._loop = settings, node, port, loop

    def run(self, store: Store) -> None:
        """Renew until the node stops. The store is this thread's own."""
        if not self._wait_for_loop():
            return
        node, config = self._node, None
        backoff = Backoff(log, f"node {node.name}", node.pause_s / 2, SAY_S)
        while not node.stopped:
            pause_s = node.pause_s
            try:
                if config is None and (config := self._join(store)) is not None:
                    node.lease_s, node.pause_s = config.lease_s, config.lease_s / 5
                    pause_s = node.pause_s
                    backoff.well()
                    backoff = Backoff(log, f"node {node.name}", pause_s / 2)
                    shorten_timeouts(store, config.lease_s)
                if config is not None:
                    if not node.inc:
                        self.register(store, config)
                    self.renew(store, config)
                backoff.well()
            except (ParsyncError, RedisError, OSError) as error:
                pause_s = backoff.pause_s(error)
                if config is None and isinstance(error, ParsyncError) and not isinstance(error, ServerUnreachable):
                    log.critical("node %s stops: %s", node.name, error)
                    self._port.stop(cold=False)
                    return
            except Exception:
                log.exception("node %s: unexpected", node.name)  # whatever it is, the lease must go on being renewed
            node.wait(pause_s)

    def _wait_for_loop(self) -> bool:
        """Wait for the event loop's first turn: before that no doorbell is answered. Return False if the node stops."""
        said_s = self._loop.began_s
        while not self._loop.has_turned:
            if self._node.leaving or self._node.stopped:
                return False
            self._node.wait(BEAT_S / 4)
            if time.monotonic() - said_s > SAY_S:
                said_s = time.monotonic()
                log.warning("node %s is not up yet: its event loop does not turn; %s", self._node.name, whereabouts())
        return True

    def _join(self, store: Store) -> ClusterConfig | None:
        config = join_cluster(store, self._settings, create=False)
        if config is None:
            log.debug("node %s waits for the first scheduler of cluster %s", self._node.name, store.keys.cluster)
        return config

    def register(self, store: Store, config: ClusterConfig) -> None:
        """Register the node: a new incarnation, perhaps in another partition."""
        node, commands = self._node, store.commands
        spec = node.spec
        labels = " ".join(f"{name}:{value}" for name, value in spec.offer.labels if name != TASKS_LABEL)
        partition = store.run(commands.deal_node(spec.name, config.partitions, labels, spec.offer.slots, spec.score))
        spec.tell(store)  # first, so that no submit is refused
        sent_s = now_s()
        inc, _ = store.run(
            commands.register_node(partition, spec.name, node.inc, spec.score, spec.offer.text, spec.room)
        )
        node.partition, node.inc, node.moved, node.stalled = partition, inc, 0, ""
        log.info(
            "node %s is up: %s, score %g, partition p%d, incarnation %d",
            spec.name,
            spec.offer.text,
            spec.score,
            partition,
            inc,
        )
        try:
            node.isolation.renewed(sent_s, config.lease_s)
        finally:
            self._port.listen()

    def renew(self, store: Store, config: ClusterConfig) -> bool:
        """Renew the lease and end runs that must not go on; True if the node is still registered as it was."""
        node, commands, sent_s = self._node, store.commands, now_s()
        reply = store.run(commands.renew(node.partition, node.name, node.inc))
        if reply[0] == "superseded":
            log.critical("another worker has registered as node %s: this one stops", node.name)
            self.end_runs(node.runs.open())
            self._port.stop(cold=True)
            return False
        if reply[0] == "lapsed":
            log.warning("node %s was given up: what it ran is stopped, and it registers again", node.name)
            self.end_runs(node.runs.open())
            if not node.leaving:
                self.register(store, config)
            return False
        node.moved, node.drained = int(reply[1]), reply[3] != "0"
        if node.leaving and not node.said_leaving:
            if reply[2] != "leaving":
                store.run(commands.set_node(node.partition, node.name, "leaving", node.inc))
            node.said_leaving = True
        self._watch_loop(store, reply[2])
        self.end_runs([run for run in node.runs.open() if run.place.inc != node.inc])
        if reply[3] == "2":  # the deadline of its drain is over
            self.end_runs(node.runs.open(), "recalled")
        node.isolation.renewed(sent_s, config.lease_s)  # last: it may fail, and nothing else may wait for it
        return True

    def _watch_loop(self, store: Store, state: str) -> None:
        """Mark the node suspect while its event loop stands still, and trusted when the loop turns again.

        A solo pool runs tasks in the event loop: while it does, the node is busy, not suspect.
        """
        node = self._node
        if self._loop.still_s() > node.lease_s / 2 and not self._port.busy() and not node.leaving:
            why = node.stalled or f"{STANDS_STILL}; {whereabouts()}"
            if not node.stalled:
                log.warning("node %s is suspect, and gives back what has not begun: %s", node.name, why)
            node.stalled = why
            if state == "up":
                store.run(store.commands.set_node(node.partition, node.name, "suspect", node.inc, why))
        elif node.stalled:
            if state == "suspect":
                store.run(store.commands.set_node(node.partition, node.name, "trust", node.inc))
            node.stalled = ""
            log.warning("node %s gets tasks again: its event loop turns", node.name)

    def end_runs(self, runs: list[Run], ending: str = "SIGKILL") -> None:
        """Kill runs without reporting their end: their tasks are, or soon will be, placed elsewhere."""
        for run in runs:
            if run.request is None:
                run.unwanted = "recalled"
            elif not run.ending:
                run.ending = ending
                self._port.kill(run.request)


def shorten_timeouts(store: Store, lease_s: float) -> None:
    """Set a store's timeouts so that a silent connection is replaced well before the lease is over."""
    store.set_timeouts(min(5.0, max(0.5, lease_s / 4)))
