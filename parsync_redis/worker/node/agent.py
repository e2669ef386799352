"""The agent: parsync's part inside a worker that is a node.

Each of these threads has a connection of its own:

- the worker's event loop answers doorbells (run_starter.py);
- parsync-report reports outcomes and frees slots (reporter.py);
- parsync-renew registers the node and has the guard keep its lease (renewer.py);
- parsync-tend compares leases with runs (reconciler.py), and has the worker tell the result backend
  what is in the results outbox;
- with look-ahead, parsync-seats keeps the waiting seats (seat_keeper.py);
- with a source of its capacity, parsync-capacity asks what the node can give now (sources.py);
- with a source of notices, parsync-notice asks the source when the node leaves (notices.py).

The threads share the state of the node (node_state.py) and its table of runs (runs.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...model.capacity import capacity_shown
from ...model.octaves import no_octaves
from ...model.times import field_of
from ...settings import Settings
from ...store.reads.times import read_times
from ...store.scripts.calls import Call
from ...store.server.server_errors import Backoff
from ...store.store import Store
from ..duty import Duty
from ..isolation.guard_process import GUARD_WAIT_S
from ..isolation.machine import Isolation
from .capacity import CAPACITY_INTERVAL_S
from .lease import shorten_timeouts
from .loop_watch import LoopWatch, RenewalWatch
from .node import NodeSpec
from .node_state import AgentState
from .notices import INTERVAL_S
from .reconciler import Reconciler
from .renewer import Renewer
from .reporter import Reporter
from .run_starter import Starter
from .runs import Run
from .seat_keeper import SeatKeeper
from .sources import SourceReader
from .worker_port import WorkerPort

if TYPE_CHECKING:
    from .spans import PlaceSpans

log = logging.getLogger("parsync.agent")

THREAD_JOIN_S = 10.0
"""Seconds for which a worker that stops waits for each thread of its agent."""


class Agent:
    """The agent of one worker process.

    port: the worker around the agent.
    isolation: None to isolate no run.
    nudge: a function that has the event loop start the waiting runs.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        spec: NodeSpec,
        port: WorkerPort,
        isolation: Isolation | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self._port = port
        self.node = AgentState(spec, isolation or Isolation())
        self.loop = LoopWatch()
        node = self.node
        self.reporter = Reporter(store, node.runs, node.isolation, node.ahead.ran, node.failures)
        self.starter = Starter(store, self.node, self.reporter)
        self.renewer = Renewer(settings, self.node, port, self.loop)
        self.reconciler = Reconciler(self.node, port)
        self.seat_keeper = SeatKeeper(
            store, self.node, self.starter, self.reconciler, lambda: self.nudge()
        )
        self.spans = make_spans(store)
        self._has_learnt = False
        self.nudge: Callable[[], object] = lambda: None
        self.reporter.nudge = lambda: self.nudge()
        self.reporter.tell = self._tell
        renewing = Duty("parsync-renew", lambda: self.renewer.run(store.with_own_connections()))
        tending = Duty("parsync-tend", self._tend)
        self._renewal = RenewalWatch(node.name, self.renewer.own_loop, renewing)
        seats = (self.seat_keeper,) if spec.room else ()
        capacity = spec.capacity
        if capacity.source is not None:
            capacity.reader = SourceReader(
                "parsync-capacity",
                capacity.source,
                CAPACITY_INTERVAL_S,
                capacity.take,
                node.wait_until_stopped,
                lambda: node.stopped,
            )
        sources = [capacity.reader] if capacity.reader else []
        if spec.notice is not None:
            sources.append(
                SourceReader(
                    "parsync-notice",
                    spec.notice,
                    INTERVAL_S,
                    node.take_notice,
                    node.wait_until_stopped,
                    lambda: node.stopped,
                )
            )
        self._threads = (self.reporter, renewing, tending, *seats)
        node.sources = tuple(sources)

    def start(self) -> None:
        """Start the threads. The node registers as soon as the cluster is set up."""
        self.store.read_scripts()
        for thread in (*self._threads, *self.node.sources):
            thread.failed = lambda: self._port.stop(cold=True)
            thread.start()

    def leave(self) -> None:
        """Take no new tasks; the tasks that have not started are placed elsewhere.

        Safe in a signal handler.
        """
        self.node.leave()

    def stop(self) -> None:
        """Report the last outcomes, give back the leases, and mark the node down.

        The pool has ended before. See `depart` for runs that go on.
        """
        self.leave()
        if self.node.stopped:
            return
        self.starter.hand_back("its worker shuts down")
        self.node.stop()
        if self.reporter.ident is None:  # the thread was never started
            return
        self.reporter.close()
        # a source that hangs is not waited for
        for thread in self._threads:
            thread.join(timeout=THREAD_JOIN_S)
        if self.spans is not None:
            self.spans.close()
        try:
            self.node.isolation.leave(THREAD_JOIN_S)
            self.depart()
        except (ParsyncError, RedisError, OSError) as error:
            log.warning("node %s could not leave in order: %s", self.node.name, error)
            if owed := self._port.owed_results:
                log.warning("node %s: results that nobody tells: %s", self.node.name, owed)

    def depart(self) -> None:
        """Give back every lease, and mark the node down, if no run goes on.

        The guard renews no more, so the reply to one renewal gives the counter. The results that
        this node took from the outbox and could not tell go back, so that another process tells
        them.
        """
        try:
            self._give_back()
        finally:
            self._port.put_back_results(self.store)

    def _give_back(self) -> None:
        """Give back every lease, mark the node down, and forget an empty node.

        A run that goes on in a thread keeps its lease, and the node is not marked down. Nobody
        renews the node's lease any more, so the process ends before that lease is over: its threads
        end, or its guard kills it. After that the leader gives the tasks back.

        An operator's drain keeps the record of the node. Submits still know the offer for a while,
        so that tasks for this node are accepted until it comes back.
        """
        node = self.node
        store = self.store
        commands = self.store.commands
        if node.inc:
            going = [] if self._port.ends_runs else node.runs.going()
            self.reconciler.give_back_all(store, {run.key for run in going})
            if going:
                log.warning(
                    "node %s does not leave in order, because its threads still run %s: the leader "
                    "gives these tasks back when the lease of the node is over",
                    node.name,
                    ", ".join(sorted(run.place.task for run in going)),
                )
                return
            word, *counters = store.run(commands.renew(node.partition, node.name, node.inc))
            if word == "ok":
                store.run(commands.reclaim(node.partition, node.name, node.inc, int(counters[0])))
                store.run(commands.forget_node(node.partition, node.name, node.inc, "left"))
            log.info("node %s has left", node.name)

    def full_pool(self, run: Run) -> str:
        """Return why a run may not begin: no process is free, or the node shrank; '' if it may."""
        going = self.node.runs.going()
        spec = self.node.spec
        if not spec.capacity.has_room(run, going, spec.offer):
            capacity = capacity_shown(spec.offer, spec.capacity.of(spec.offer))
            return f"{self.node.name} gives {capacity} now"
        processes = self._port.processes
        if processes is None or len(going) < processes:
            return ""
        if not processes:
            return f"the pool of {self.node.name} has no process"
        return f"the pool of {self.node.name} has {processes} processes, and all run tasks"

    def another_store(self) -> Store:
        """Return the same state over new connections, whose timeouts suit the lease."""
        store = self.store.with_own_connections()
        shorten_timeouts(store, self.node.lease_s)
        return store

    def _tend(self) -> None:
        node = self.node
        store = self.store.with_own_connections()
        backoff = Backoff(log, f"node {node.name}")
        while not node.stopped:
            pause_s = node.pause_s
            try:
                limit_s = max(self.settings.standstill_s, GUARD_WAIT_S)
                is_up = bool(node.inc)
                if not node.leaving and self._renewal.is_stuck(node.lease_s, limit_s, is_up):
                    self._port.stop(cold=True)
                if node.inc:
                    self.reconciler.reconcile(store)
                    if node.leaving:
                        self._port.put_back_results(store)
                    else:
                        self._port.tell_results(store)
                    # last: nothing else waits for the primary that has the times
                    self._learn(store)
                backoff.well()
            except (ParsyncError, RedisError, OSError) as error:
                pause_s = backoff.pause_s(error)
            except Exception:
                # an error of a result backend, for example
                log.exception("node %s: unexpected", node.name)
            node.wait(pause_s)

    def _learn(self, store: Store) -> None:
        """Write the run times that this node has learnt.

        The first call also reads the run times that nodes had learnt before.
        """
        node = self.node
        ahead = self.node.ahead
        known_tasks = self.node.spec.tasks
        text = known_tasks.text if known_tasks else ""
        if not self._has_learnt:
            earlier_times = read_times(store).items()
            ahead.recall({name: times for name, times in earlier_times if f"\n{name} " in text})
            self._has_learnt = True
        new_times = ahead.take_new_times()
        try:
            offer = node.spec.offer
            by_class = {
                field_of(name, offer): replace(times, octaves=no_octaves())
                for name, times in new_times.items()
            }
            calls = [store.commands.learn_times(by_class | new_times)] if new_times else []
            self._report(store, calls)
        except BaseException:
            ahead.put_back(new_times)
            raise

    # Any: each call has a reply of its own
    def _report(self, store: Store, calls: list[Call[Any]]) -> None:
        """Send the report of failures in a row, in one round trip with these calls."""
        failures = self.node.failures
        node = self.node
        report = failures.report(store.commands, node.partition, node.name, node.inc)
        try:
            answers = store.run_all([*calls, *([report[0]] if report else [])])
        except BaseException:
            failures.not_reported(report[1] if report else [])
            raise
        if report:
            failures.reported(answers[-1])

    def _tell(self, store: Store) -> None:
        """Report failures in a row at once; after an error the next report repeats them."""
        try:
            self._report(store, [])
        except (ParsyncError, RedisError, OSError) as error:
            log.info("node %s could not report its failures: %s", self.node.name, error)
        # a reply that cannot be read must not end the thread that reports outcomes
        except Exception:
            log.exception("node %s could not report its failures: unexpected", self.node.name)


def make_spans(store: Store) -> PlaceSpans | None:
    """Return the maker of place spans, None if OpenTelemetry is not installed."""
    try:
        from .spans import PlaceSpans
    except ImportError:
        return None
    return PlaceSpans(store)
