"""The world of a schedule: a server, processes, requests on their way, and the dice, with one thread and one clock.

Side by side is played by nesting. Whenever a process waits for the server, other processes, and its
own other hands, may take steps. Then the process goes on, or dies there, or sleeps there until its
lease is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Protocol
from unittest.mock import patch

import redis
from redis.exceptions import RedisError

from parsync_redis.errors import ParsyncError
from parsync_redis.model.needs import Resources
from parsync_redis.scheduler.leader import janitor
from parsync_redis.scheduler.process import loop, membership, plan_runner
from parsync_redis.scheduler.process.listener import understand
from parsync_redis.store.cluster import ClusterConfig
from parsync_redis.worker.node import reporter, seat_keeper
from parsync_redis.worker.node import run_starter as starter

from .ghost import Ghost
from .primaries import Primaries
from .processes import GAP_S, LEASE_S, PARTITIONS, AgentProcess, Client, SchedulerProcess
from .state import LIMITS
from .wire import Clock, Scripts, Wire


class Process(Protocol):
    """The surroundings of all processes."""

    name: str
    dead: bool
    awake_at: int


class Crash(BaseException):
    """A process ends in the middle of what it does."""


class Dice(Protocol):
    """The part of a schedule's plan that the world needs: how often each fault happens, and steps
    to nest.

    changes: how many changed kinds a scheduler is told at a time; drift: how much too fast the wall
    clock runs.
    """

    odds: dict[str, float]
    changes: int
    drift: float

    def nested(self, world: World) -> None:
        """Take one step."""


class World:
    """Everything there is. `calm` ends all faults."""

    def __init__(
        self,
        client: redis.Redis,
        scripts: Scripts,
        dice: Dice,
        seed: int,
        log: list[str] | None = None,
        shards: int = 1,
    ) -> None:
        self.client = client
        self.dice = dice
        self.rng = Random(seed)
        self.log = log
        self.primaries = Primaries(seed, shards)
        self.config = ClusterConfig(PARTITIONS, GAP_S, LEASE_S, shards)
        self.clock = Clock()
        self.ghost = Ghost(self)
        self.wire = Wire(self, client, scripts)
        self.calm = False
        self.step = 0
        self.agents: list[AgentProcess] = []
        self.schedulers: list[SchedulerProcess] = []
        self.customer = Client(self)
        self.bells: list[tuple[str, bytes]] = []  # doorbells that come late: node, message
        self.stack: list[tuple[Process, str]] = []
        self.numbers = 0
        self.backup: dict[bytes, Any] = {}
        client.flushall()
        if not all(client.script_exists(*scripts.shas.values())):
            self.wire.load()
        for shard in range(shards):  # the first scheduler fixed it before all else
            client.hset(self.primaries.keys.queue("meta", shard), "shards", shards)
            for name, units in LIMITS.items():
                client.hset(self.primaries.keys.queue("policy", shard), name, f"units={units}")
        self.rumours: Any = client.pubsub()

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Make the product's modules use this world's clock."""
        with (
            patch.object(loop, "time", self.clock),
            patch.object(plan_runner, "MAX_KINDS_PER_LOOK", self.dice.changes),
            patch.object(membership, "time", self.clock),
            patch.object(janitor, "time", self.clock),
            patch.object(starter, "time", self.clock),
            patch.object(reporter, "time", self.clock),
            patch.object(seat_keeper, "time", self.clock),
        ):
            yield
        self.rumours.close()

    def trace(self, *what: object) -> None:
        """Write down what happens, for people who read a failure."""
        if self.log is not None:
            words = (x.name if hasattr(x, "awake_at") else str(x) for x in what)  # type: ignore[attr-defined]
            self.log.append("  " * len(self.stack) + " ".join(words))

    # -- time and dice -----------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let time pass for all processes."""
        self.clock.now_s += seconds
        self.clock.wall_s += seconds * self.dice.drift

    def dares(self, odds: float) -> bool:
        """Return whether something unusual of these odds happens."""
        return not self.calm and self.rng.random() < odds

    def fate(self) -> str:
        """Return what becomes of a request."""
        if self.calm or self.rng.random() >= self.dice.odds["fault"]:
            return "fine"
        return self.rng.choice(
            ("lost", "late", "late", "cut", "twice", "twice", "unheard", "unheard")
        )

    def between(self, process: Process) -> None:
        """Let others act while a process waits for the server; it may die or oversleep."""
        if self.calm:
            return
        if len(self.stack) < 4 and self.rng.random() < self.dice.odds["nest"]:
            for _ in range(self.rng.randint(1, 3)):
                self.dice.nested(self)
        if (
            len(self.stack) < 3
            and self.rng.random() < self.dice.odds["oversleep"]
            and process is not self.customer
        ):
            self.oversleep(process)
        if process is not self.customer and self.rng.random() < self.dice.odds["die"]:
            self.kill(process)
        if process.dead:
            raise Crash

    # -- acting ------------------------------------------------------------------------------------

    def act(self, process: Process, hand: str, what: Callable[[], object]) -> bool:
        """Let a hand of a process act, unless it is busy, asleep or dead; return whether it
        finished.
        """
        busy = any(who is process and which == hand for who, which in self.stack)
        if process.dead or busy or (process.awake_at > self.step and not self.calm):
            return False
        self.stack.append((process, hand))
        try:
            what()
            return True
        except Crash:
            assert process.dead
        except (ParsyncError, RedisError, OSError) as error:
            self.trace("trouble", process, hand, error)
        finally:
            self.stack.pop()
            self.bury()
        return False

    def kill(self, process: Process) -> None:
        """Kill a process as kill -9 does, with the functions that it runs."""
        self.trace("killed", process)
        self.ghost.coverage["killed"] += 1
        process.dead = True

    def bury(self) -> None:
        """Remove dead processes."""
        self.agents = [agent for agent in self.agents if not agent.dead]
        self.schedulers = [scheduler for scheduler in self.schedulers if not scheduler.dead]

    def oversleep(self, process: Process) -> None:
        """Let a process sleep for more than a lease, while all others renew theirs."""
        self.trace("oversleeps", process)
        self.ghost.coverage["slept past a lease"] += 1
        hand = self.stack[-1] if self.stack else (process, "")
        asleep = process.awake_at
        process.awake_at = self.step + 10**6
        for _ in range(self.rng.randint(4, 6)):
            self.pass_time(LEASE_S / 2.5)
            for other in [*self.schedulers, *self.agents]:
                if other is not process:
                    self.renew(other)
        process.awake_at = asleep
        assert not self.stack or self.stack[-1] == hand

    def renew(self, process: Any) -> None:
        """Renew a process's lease."""
        if isinstance(process, AgentProcess):
            self.act(process, "pass", process.renew)
        else:
            self.act(process, "member", process.beat)

    def start_agent(self, node: str, offer: Resources, score: float) -> None:
        """Start a process under the name of a node, whether one of that name lives or not."""
        self.numbers += 1
        self.agents.append(AgentProcess(self, node, self.numbers, offer, score))

    def start_scheduler(self, name: str = "") -> None:
        """Start a scheduler, under a new name or that of an earlier one."""
        self.numbers += 1
        scheduler = SchedulerProcess(self, name or f"s{self.numbers}")
        self.schedulers.append(scheduler)
        self.rumours.ssubscribe(*scheduler.channels)

    def spread_rumours(self) -> None:
        """Deliver published messages to the schedulers, or lose, double or reorder them."""
        self.rumours.ping()
        while (message := self.rumours.get_message(timeout=5.0)) is not None and message[
            "type"
        ] != "pong":
            if message["type"] != "smessage":
                continue
            channel = message["channel"].decode()
            for scheduler in self.schedulers:
                if channel not in scheduler.channels:
                    continue
                words = understand(message["data"], *scheduler.channels[channel])
                heard = scheduler.listener.heard
                for _ in range(
                    0 if self.dares(self.dice.odds["deaf"]) else 2 if self.dares(0.05) else 1
                ):
                    heard.insert(
                        self.rng.randint(0, len(heard)) if self.dares(0.1) else len(heard), words
                    )

    def restart_server(self, name: str = "") -> None:
        """Restart a server after more than a lease: its data is whole, its scripts are gone, its
        run id is new.
        """
        name = name or self.primaries.names[0]
        self.trace("server restarts", name)
        self.ghost.coverage["server restarts"] += 1
        away_s = self.rng.uniform(0.1, 2.0) * LEASE_S
        if self.primaries.several:  # the others go on meanwhile
            self.primaries.away_until_s[name] = self.clock.now_s + away_s
        else:
            self.pass_time(away_s)
        self.client.script_flush()
        run_id = f"run{self.step}-{self.rng.getrandbits(16)}"
        self.primaries.restart(
            name, self.primaries.away_until_s.get(name, self.clock.now_s), run_id
        )
        for scheduler in self.schedulers:
            scheduler.listener.heard.clear()

    def keep(self) -> None:
        """Remember the servers' data as it is now."""
        keys: Any = self.client.keys()
        self.backup = {
            key: (self.client.dump(key), max(0, int(self.client.pttl(key)))) for key in keys
        }

    def restore(self, name: str = "") -> None:
        """Restore the data of one primary that `keep` remembered."""
        of = self.primaries.of
        name = name or self.primaries.names[0]
        present: Any = self.client.keys()
        if mine := [key for key in present if of(key) == name]:
            self.client.delete(*mine)
        for key, (value, ttl_ms) in self.backup.items():
            if of(key) == name:
                self.client.restore(key, ttl_ms, value)

    def doorbell(self, agent: AgentProcess) -> bytes | None:
        """Return the next message of a node's inbox; it is lost, late or doubled as kombu does."""
        node = agent.node
        partition = agent.agent.node.partition
        if not 0 <= partition < PARTITIONS:
            return None
        message: Any = self.client.rpop(self.primaries.keys.inbox(partition, node))
        if message is None or self.dares(0.1):
            late = [bell for bell in self.bells if bell[0] == node]
            if late and not (self.calm and self.rng.random() < 0.5):
                bell = self.rng.choice(late)
                self.bells.remove(bell)
                if message is not None:
                    self.bells.append((node, message))
                return bell[1]
        if message is not None and self.dares(self.dice.odds["bell"]):
            self.ghost.coverage["doorbells gone astray"] += 1
            kind = self.rng.choice(("lost", "late", "twice"))
            if kind != "lost":
                self.bells.append((node, message))
            return message if kind == "twice" else None
        return message
