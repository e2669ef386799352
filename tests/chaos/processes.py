"""The processes of a schedule: the product's own scheduler and agent, called a pass at a time instead of by threads.

A process has hands that work side by side (in the product: threads, each with a connection). While one of them waits
for the server, another one, or another process, may act; see World.between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parsync_redis.model.apps import KnownTasks
from parsync_redis.model.needs import Resources
from parsync_redis.scheduler.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store.cluster import ClusterConfig
from parsync_redis.wire.doorbell import Doorbell
from parsync_redis.worker.agent import Agent, NodeSpec
from parsync_redis.worker.reporter import Reporter
from parsync_redis.worker.runs import Run

from .wire import CLUSTER, MAX_STARTS, WireStore

if TYPE_CHECKING:
    from .world import World

PARTITIONS, GAP_S, LEASE_S = 2, 1.0, 8.0
CONFIG = ClusterConfig(PARTITIONS, GAP_S, LEASE_S)
SETTINGS = Settings(url="redis://127.0.0.1:1/0", cluster=CLUSTER, max_starts=MAX_STARTS)


class Listener:
    """What a scheduler heard; the world puts it there, or does not."""

    def __init__(self, world: World) -> None:
        self.world, self.heard = world, list[list[str]]()

    def listen(self) -> None:
        """Subscribed anew: what was under way is lost."""
        self.heard.clear()

    def hear(self, timeout_s: float, ticks: bool = True) -> list[list[str]]:
        """What is there, ticks or not."""
        self.world.spread_rumours()
        heard, self.heard = self.heard, []
        return heard

    def close(self) -> None:
        """Nothing is open."""


class SchedulerProcess:
    """A scheduler; hands: loop, member."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.dead, self.awake_at = False, 0
        dice = np.random.default_rng(world.rng.getrandbits(32))
        self.scheduler = Scheduler(WireStore(world, self, "loop"), CONFIG, SETTINGS, name, rng=dice)
        self.listener: Any = Listener(world)
        self.scheduler.listener = self.listener
        self.trouble = self.entered = False
        self.began_s = 0.0  # when its last beat began

    @property
    def leads(self) -> bool:
        """Whether it believes to be leader."""
        return self.scheduler.membership.leads

    def turn(self) -> None:
        """One turn of the loop, as Scheduler.run has it."""
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
        """One renewal, and a leader's pass, as Membership.run has it."""
        member = self.scheduler.membership
        self.began_s = self.world.clock.now_s
        try:
            if self.entered:
                member.beat()
        except Exception:
            member.doubt()
            raise

    def tick(self) -> None:
        """A leader's tick."""
        if self.leads:
            self.scheduler.membership.tick()

    def leave(self) -> None:
        """An orderly end, as Scheduler.leave has it."""
        self.scheduler.leave()
        self.dead = True


class AgentProcess:
    """A node's worker; hands: pass (the thread that renews), bell (the event loop), home."""

    def __init__(self, world: World, node: str, number: int, offer: Resources, score: float) -> None:
        self.world, self.name, self.node = world, f"{node}#{number}", node
        self.dead, self.awake_at = False, 0
        spec = NodeSpec(node, offer, score)
        spec.know(KnownTasks.of({"work": None}), ["celery"])
        self.agent = Agent(None, SETTINGS, spec)
        self.agent.store = WireStore(world, self, "bell")
        self.passing, self.homing = WireStore(world, self, "pass"), WireStore(world, self, "home")
        self.agent._home = Reporter(self.homing, self.agent.runs)
        self.agent.on_superseded = self._superseded
        self.on_the_way_home: list[Run] = []

    def _superseded(self) -> None:
        self.world.trace("superseded", self)
        self.dead = True

    def renew(self) -> None:
        """One pass of the thread that renews, as Agent._renewing has it; the event loop has turned since the last."""
        agent = self.agent
        agent.turned()
        if not agent.inc:
            if agent.leaving:
                self.dead = True
                return
            agent._register(self.passing, CONFIG)
        agent._pass(self.passing, CONFIG)

    def answer(self, message: bytes) -> None:
        """A doorbell; the function begins as soon as the start was accepted."""
        for run, _ in self.agent.answer([Doorbell.of(message)]):
            run.request = run.place
            self.world.ghost.began(self, run)

    def end(self, run: Run, outcome: str) -> None:
        """A function ended."""
        self.world.trace("ends", self, run.place, outcome)
        self.world.ghost.ended(run, outcome)
        self.agent.ended(run, outcome)

    @property
    def something_to_bring(self) -> bool:
        """Whether an outcome waits for the server."""
        home: Any = self.agent._home
        return bool(self.on_the_way_home) or not home._ended.empty()

    def bring_home(self) -> None:
        """What Reporter does with what has ended, until the server has it."""
        home: Any = self.agent._home
        if not self.on_the_way_home:
            while not home._ended.empty():
                self.on_the_way_home.append(home._ended.get())
        if self.on_the_way_home:
            home._bring_home(self.homing, self.on_the_way_home)
            self.on_the_way_home = []

    def depart(self) -> None:
        """An orderly end, when nothing runs any more."""
        self.bring_home()
        if not len(self.agent.runs):
            self.agent._depart()
            self.dead = True


class Client:
    """Who submits and cancels; a request without an answer is sent again later."""

    def __init__(self, world: World) -> None:
        self.world, self.name, self.dead, self.awake_at = world, "client", False, 0
        self.store = WireStore(world, self, "client")
