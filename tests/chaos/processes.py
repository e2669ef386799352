"""The processes of a schedule: the product's own scheduler and agent, called a pass at a time instead of by threads.

A process has hands that work side by side (in the product: threads, each with a connection). While
a hand waits for the server, another hand or another process may act; see World.between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from parsync_redis.model.apps import KnownTasks
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store.store import Store
from parsync_redis.wire.doorbell import read_doorbell
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.lease import Order
from parsync_redis.worker.node.look_ahead import MAX_SEATS_OF_SLOT
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.reporter import Reporter
from parsync_redis.worker.node.run_starter import Started
from parsync_redis.worker.node.runs import Run

from .wire import CLUSTER, MAX_STARTS, WireStore

if TYPE_CHECKING:
    from .world import World

PARTITIONS = 2
GAP_S = 1.0
LEASE_S = 8.0
SETTINGS = Settings(url="redis://127.0.0.1:1/0", cluster=CLUSTER, max_starts=MAX_STARTS)


class Listener:
    """The messages that a scheduler heard; the world delivers or loses them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard = list[list[str]]()

    def listen(self) -> None:
        """Subscribe again; messages under way are lost."""
        self.heard.clear()

    def listen_to_ticks(self) -> None:
        """Subscribe to the ticks again; ticks under way are lost."""
        self.heard = [words for words in self.heard if words[0] != "tick"]

    def hear(self, timeout_s: float, ticks: bool = True) -> list[list[str]]:
        """Return what is there, ticks or not."""
        self.world.spread_rumours()
        heard = self.heard
        self.heard = []
        return heard

    def close(self) -> None:
        """Do nothing: there is no connection to close."""


class SchedulerProcess:
    """A scheduler; hands: loop, member."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.awake_at = 0
        dice = np.random.default_rng(world.rng.getrandbits(32))
        self.scheduler = Scheduler(
            WireStore(world, self, "loop"), world.config, SETTINGS, name, rng=dice
        )
        self.listener: Any = Listener(world)
        self.scheduler.listener = cast(Any, self.listener)
        keys = self.scheduler.store.keys
        self.channels = {keys.tick: ("tick", 0), **keys.own_channels(name, PARTITIONS)}
        self.trouble = self.entered = False
        self.began_s = 0.0  # when its last beat began

    @property
    def leads(self) -> bool:
        """Return whether it believes to be leader."""
        return self.scheduler.membership.leads

    @property
    def knows_server(self) -> bool:
        """Return whether it has heard which server this is, and is not about to begin anew."""
        known = self.scheduler._rank.server or self.scheduler._run_id
        return self.entered and not self.trouble and known == self.world.primaries.run_of("")

    def knows(self, tag: str) -> bool:
        """Return whether it has heard which of several servers has a shard or partition now."""
        primaries = self.world.primaries
        return not primaries.several or self.scheduler._rank.servers.get(tag) == primaries.run_of(
            tag
        )

    def turn(self) -> None:
        """Run one turn of the loop, as Scheduler.run does."""
        if not self.entered:
            self.scheduler.enter()
            self.entered = True
        if self.trouble:
            self.scheduler.recover()
            self.trouble = False
        self.trouble = True
        self.scheduler.turn()
        self.trouble = False

    def beat(self) -> None:
        """Renew once and do a leader's pass, as Membership.run does."""
        member = self.scheduler.membership
        self.began_s = self.world.clock.now_s
        try:
            if self.entered:
                member.beat()
                if member.leads:
                    member._work.work()
        except Exception:
            member.doubt()
            raise

    def tick(self) -> None:
        """Publish a leader's tick."""
        if self.leads:
            self.scheduler.membership.tick()

    def leave(self) -> None:
        """Leave in order, as Scheduler.leave does."""
        self.scheduler.leave()
        self.dead = True


class WorkerPort:
    """The worker of an agent, as far as a schedule has one: it has no Celery, and no function that
    could be ended.
    """

    owed_results = ()
    processes: int | None = None
    ends_runs = True
    queues: set[str] | None = None

    def __init__(self, process: AgentProcess) -> None:
        self._process = process

    def busy(self) -> bool:
        """Return False: the event loop runs no task."""
        return False

    def listen(self) -> None:
        """Do nothing: the schedule rings doorbells."""

    def stop(self, cold: bool) -> None:
        """Let the process end: another one has taken the node's name."""
        self._process.superseded()

    def terminate(self, request: Any, signal: str) -> None:
        """Do nothing: a function ends when the schedule says so."""

    def kill(self, request: Any, signal: str = "SIGKILL") -> None:
        """Do nothing, for the same reason."""

    def tell_results(self, store: Store) -> None:
        """Do nothing: a schedule has no result backend."""

    def put_back_results(self, store: Store) -> None:
        """Do nothing: nothing was taken."""


class AgentProcess:
    """A node's worker, which mostly looks ahead; hands: pass (it renews), bell (the event loop),
    home, seats, guard, task (a function that it runs).
    """

    def __init__(
        self, world: World, node: str, number: int, offer: Resources, score: float
    ) -> None:
        self.world = world
        self.name = f"{node}#{number}"
        self.node = node
        self.dead = False
        self.awake_at = 0
        spec = NodeSpec(
            node,
            offer,
            score,
            room=world.rng.choice((0, MAX_SEATS_OF_SLOT, MAX_SEATS_OF_SLOT)) * offer.slots,
        )
        spec.know(KnownTasks.of({"work": None}), ["celery"])
        self.agent = Agent(SETTINGS, WireStore(world, self, "bell"), spec, WorkerPort(self))
        self.passing = WireStore(world, self, "pass")
        self.reporting = WireStore(world, self, "home")
        self.seats = WireStore(world, self, "seats")
        self.task = WireStore(world, self, "task")
        self.guarding = WireStore(world, self, "guard")
        self.agent.nudge = self.nudge
        self.unreported: list[Run] = []
        self.waiting_bells: list[Place] = []  # read while another hand asked to start tasks

    def superseded(self) -> None:
        """Learn that another process has registered as this node."""
        self.world.trace("superseded", self)
        self.dead = True

    def renew(self) -> None:
        """Run one pass of the thread that renews, as Renewer.run does; the event loop has turned since the last pass."""
        agent = self.agent
        ghost = self.world.ghost
        agent.loop.turned()
        going = agent.node.runs.going()
        over = ghost.over_since(self.node)
        if not agent.node.inc:
            if agent.node.leaving:
                self.dead = True
                return
            agent.renewer.register(self.passing, self.world.config)
        if agent.renewer.renew(self.passing, self.world.config):
            ghost.renewed(self, going, over)
            agent.reconciler.reconcile(self.passing)

    def keep_alone(self) -> None:
        """Renew as the guard does for a worker that gives no sign of life; the other hands of the process go on."""
        node = self.agent.node
        keeper = self.agent.renewer._keeper
        if node.inc:
            order = Order(node.partition, node.inc, LEASE_S)
            report = keeper.renew(self.guarding, order)
            if report.word == "ok" and keeper.judge(self.guarding, order, LEASE_S, report.state):
                self.world.ghost.coverage["stood still"] += 1

    def answer(self, message: bytes) -> None:
        """Answer a doorbell; the function begins once the start is accepted."""
        self._answer([read_doorbell(message)])

    def _answer(self, bells: list[Place]) -> None:  # in the product, the hands wait for one another
        if not self.agent.starter._turn.locked():
            bells = self.waiting_bells + bells
            self.waiting_bells = []
            self._hand_over(self.agent.starter.answer(bells))
        else:
            self.waiting_bells += bells

    def _hand_over(self, found: Started) -> None:
        """Begin functions, as Turns hands runs to Celery."""
        for run, _ in found:
            if run.unwanted or run.place.inc != self.agent.node.inc:
                run.unbegun = True
                self.agent.reporter.ended(run, run.unwanted or "recalled")
            else:
                run.request = cast(Any, run.place)  # a run that has a request has begun
                run.name = "work"
                run.handed_s = run.began_s = self.world.clock.now_s
                self.world.ghost.began(self, run)

    def nudge(self) -> None:
        """Have the event loop start what waits."""
        self.world.act(self, "bell", lambda: self._answer([]))

    def keep(self) -> None:
        """Look once after the waiting seats, as the thread does that is there for it."""
        if self.agent.node.ahead.room and not self.agent.starter._turn.locked():
            self.agent.seat_keeper.keep(self.seats)

    def end(self, run: Run, outcome: str) -> None:
        """End a function."""
        self.world.trace("ends", self, run.place, outcome)
        self.world.ghost.ended(run, outcome)
        self.agent.reporter.ended(run, outcome)

    @property
    def something_to_bring(self) -> bool:
        """Return whether an outcome waits for the server."""
        return bool(self.unreported) or not self.agent.reporter._ended.empty()

    def bring_home(self) -> None:
        """Report ended runs as Reporter does, until the server has accepted them."""
        reporter = self.agent.reporter
        if not self.unreported:
            while (run := next_ended(reporter)) is not None:
                self.unreported.append(run)
        if (
            self.agent.node.runs.waiting() and not self.agent.starter._turn.locked()
        ):  # as a pool of threads: with the start of the next
            new = [run for run in self.unreported if not run.is_reported]
            ended = [run for run in self.unreported if run.is_reported]
            try:
                self._hand_over(self.agent.starter.start_next(self.reporting, (), new))
            finally:
                self.unreported = [*ended, *(run for run in new if not run.is_reported)]
        if self.unreported:
            trouble = reporter._report(self.reporting, self.unreported)
            self.unreported = reporter._occupied
            if trouble is not None:
                raise trouble

    def depart(self) -> None:
        """Leave in order, when nothing runs any more."""
        self.bring_home()
        if not len(self.agent.node.runs):
            self.agent.depart()
            self.dead = True


def next_ended(reporter: Reporter) -> Run | None:
    """Return the next ended run that waits for its report, None if there is none."""
    return None if reporter._ended.empty() else reporter._ended.get(timeout=0)


class Client:
    """A client that submits and cancels; a request without an answer is sent again later."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = "client"
        self.dead = False
        self.awake_at = 0
        self.store = WireStore(world, self, "client")
