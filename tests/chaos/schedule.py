"""Schedules: lists of steps drawn from a seed, carried out one after the other, and then healed.

Each step has a seed of its own for what it chooses and what goes wrong in it, so that steps can be
left out of the list and the others still mean the same. How often which step and fault comes is
drawn for each schedule (swarm testing).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from random import Random

import redis

from parsync_redis.model.needs import parse_resources
from parsync_redis.scheduler.core.core import MAX_KINDS_PER_LOOK
from parsync_redis.store import Store
from parsync_redis.store.repair.quarantine import entries
from tests.kit.oracle.audit import audit

from .ghost import Violation
from .player import NEEDS, NODES, Player
from .processes import LEASE_S
from .wire import CLUSTER, Scripts
from .world import World

WEIGHTS = {
    "turn": 16.0,
    "tick": 6.0,
    "beat": 6.0,
    "renew": 14.0,
    "bell": 16.0,
    "end": 12.0,
    "home": 12.0,
    "ahead": 16.0,
    "submit": 5.0,
    "publish": 1.0,
    "successor": 1.0,
    "cancel": 1.0,
    "late": 5.0,
    "drain": 0.8,
    "purge": 1.5,
    "kill_agent": 0.4,
    "start_agent": 1.5,
    "second_agent": 0.2,
    "kill_scheduler": 0.3,
    "start_scheduler": 0.8,
    "leave_scheduler": 0.1,
    "oversleep": 0.5,
    "still": 1.0,
    "sleep": 0.7,
    "jump": 0.3,
    "flush": 0.2,
    "restart": 0.2,
    "wall": 0.2,
    "age": 0.8,
    "lapse": 0.4,
    "rejoin": 0.2,
    "leave": 0.3,
    "rollback": 0.0,
}
THEMES: tuple[dict[str, float], ...] = (
    {},
    {},
    {},
    {"submit": 3, "ahead": 2, "end": 0.3},  # waiting seats fill
    # nodes are given up and come back while their runs live on
    {"lapse": 8, "end": 0.5, "bell": 2},
    {"drain": 8, "end": 0.5, "late": 2},
    {"rejoin": 8, "late": 2},
    {"age": 5, "publish": 5, "successor": 5, "end": 0.5},
    {"turn": 2, "late": 4},  # schedulers want the same slots, and old requests come again
)
"""Steps that some schedules take more often: a broken rule may need several of them together."""
SHARDS = 2
"""Shards of schedules on several primaries."""
SEVERAL = {"away": 0.8, "move": 0.5}
"""Steps of schedules on several servers, which also restart and lose writes more often."""
ROUNDS = 60
"""Rounds (a quarter of a lease each) after the last fault within which everything has come to rest.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A verb, and the seed of what it chooses."""

    verb: str
    seed: int

    def __str__(self) -> str:
        return f"{self.verb}:{self.seed}"


LIMITED = 0.4
"""The part of the schedules whose tasks are under limits."""


class Schedule:
    """A schedule made from a seed: odds, and steps.

    With more than one shard it is played on several primaries.
    """

    def __init__(self, seed: int, steps: list[Step] | None = None, shards: int = 1) -> None:
        rng = Random(f"chaos {seed}")
        self.seed = seed
        self.shards = shards
        self.weights = {
            verb: weight * rng.choice((0.3, 1.0, 1.0, 2.0, 4.0)) for verb, weight in WEIGHTS.items()
        }
        for verb in (
            "kill_agent",
            "second_agent",
            "oversleep",
            "jump",
            "leave",
            "drain",
            "kill_scheduler",
            "cancel",
        ):
            self.weights[verb] *= rng.choice((0, 1, 1, 2))
        theme = self.theme = rng.randrange(len(THEMES))
        for verb in ("publish", "successor", "age", "rejoin", "lapse"):
            self.weights[verb] *= 1 if verb in THEMES[theme] else rng.choice((0, 0, 1, 3))
        self.weights |= {verb: self.weights[verb] * more for verb, more in THEMES[theme].items()}
        if rng.random() < 0.08:
            self.weights["rollback"] = rng.choice((2.0, 8.0))
        if shards > 1:
            self.weights |= {
                verb: weight * rng.choice((0.0, 1.0, 2.0, 4.0)) for verb, weight in SEVERAL.items()
            }
            self.weights["restart"] *= 2.0
            if rng.random() < 0.2:
                self.weights["rollback"] = rng.choice((2.0, 8.0))
        self.odds = {
            "fault": rng.choice((0.0, 0.03, 0.1, 0.2)),
            "nest": rng.choice((0.0, 0.05, 0.15, 0.3)),
            "die": rng.choice((0.0, 0.0, 0.002, 0.01)),
            "oversleep": rng.choice((0.0, 0.0, 0.003, 0.01)),
            "deaf": rng.choice((0.0, 0.1, 0.5, 1.0)),
            "bell": rng.choice((0.0, 0.1, 0.3)),
            "again": rng.choice((0.0, 0.1, 0.3, 0.6)),
            "linger": rng.choice((0.0, 0.5, 0.9)),
            "expiry": rng.choice((0.0, 0.0, 0.2, 0.6)),
        }
        self.changes = rng.choice((MAX_KINDS_PER_LOOK, MAX_KINDS_PER_LOOK, 1, 2))
        self.drift = rng.choice((0.0, 0.0, 0.0, -0.5, 2.0))
        self.pace_s = LEASE_S * rng.choice((0.005, 0.01, 0.03))
        self.nodes = list(NODES)[: rng.choice((1, 2, 2, 3))]
        self.tasks = rng.choice((3, 6, 10))
        self.needs = rng.choice(
            (NEEDS, NEEDS, NEEDS, NEEDS[:1], NEEDS[3:4], NEEDS[2:5], NEEDS[0:6:4], NEEDS[0:6:5])
        )
        if theme == 3:
            self.nodes = list(NODES)[:1]
            self.tasks = 10
            self.needs = NEEDS[:1]
            self.pace_s = LEASE_S * 0.0003  # nothing waits for long: what does is handed back
        elif theme == 4:
            self.needs = NEEDS[2:4]
        elif theme == 8:
            self.nodes = list(NODES)[:1]
            self.needs = NEEDS[3:4]
            self.odds["again"] = 0.6
        dice = Random(f"{seed} limits")  # other draws stay as they are
        if dice.random() < LIMITED:
            limits = (["one"], ["two"], ["one", "two"], {"two": 2})
            self.needs = tuple({**needs, "limits": dice.choice(limits)} for needs in self.needs)
        self._verbs = list(self.weights)
        self._weights = list(self.weights.values())
        self.steps = steps or [self._draw(rng) for _ in range(rng.randint(60, 140))]

    def _draw(self, rng: Random) -> Step:
        return Step(rng.choices(self._verbs, self._weights)[0], rng.getrandbits(40))

    def nested(self, world: World) -> None:
        """Take one step while a process waits for the server."""
        Player(self, world).play(self._draw(world.rng))


def heal(player: Player) -> None:
    """Run without faults: everything must come to rest."""
    world = player.world
    ghost = player.ghost
    rng = Random(player.schedule.seed)
    world.calm = True
    world.trace("healing")
    world.primaries.end_outages(world.clock.now_s)
    while world.wire.late:
        request = world.wire.late.pop(rng.randrange(len(world.wire.late)))
        if rng.random() < 0.7:
            world.wire.arrive(request)
    world.clock.wall_s += 1_000_000
    for node in ghost.state.nodes:
        for p in range(2):
            world.customer.store.run(world.customer.store.commands.set_node(p, node, "undrain"))
    rested_s = None
    for _ in range(ROUNDS):
        world.pass_time(LEASE_S / 4)
        _round(player, rng)
        ghost.look()
        if all(task.final for task in ghost.tasks.values()):
            rested_s = world.clock.now_s if rested_s is None else rested_s
            if not ghost.state.leases and not any(
                len(agent.agent.node.runs) for agent in world.agents
            ):
                break
            ghost.check(
                world.clock.now_s - rested_s <= 2.5 * LEASE_S,
                6,
                f"leases are leaked: {ghost.state.leases}",
            )
    else:
        waiting = {
            id: ghost.state.tasks.get(id) for id, task in ghost.tasks.items() if not task.final
        }
        raise Violation(
            1, f"tasks never end: {waiting}; {ghost.state.nodes}; leases {ghost.state.leases}"
        )
    store = Store(world.client, CLUSTER, shards=player.schedule.shards)
    findings = audit(store)
    ghost.check(not findings, 3, "; ".join(findings))
    damaged = entries(store)
    ghost.check(not damaged, 10, f"what scripts have written was taken for damage: {damaged}")


def _round(player: Player, rng: Random) -> None:
    world = player.world
    if not world.schedulers:
        world.start_scheduler()
    if not any(agent.node == "n1" for agent in world.agents):
        player._new_agent(rng, "n1")
    for scheduler in list(world.schedulers):
        world.act(scheduler, "loop", scheduler.turn)
        world.act(scheduler, "member", scheduler.beat)
        world.act(scheduler, "member", scheduler.tick)
        world.act(scheduler, "loop", scheduler.turn)
    for agent in list(world.agents):
        world.act(agent, "pass", agent.renew)
        for _ in range(4):
            if (message := world.doorbell(agent)) is not None:
                world.act(agent, "bell", lambda agent=agent, message=message: agent.answer(message))  # type: ignore[misc]
        for run in agent.agent.node.runs.going():
            agent.end(
                run,
                {"": "succeeded", "SIGKILL": "lost", "recalled": "lost"}.get(
                    run.ending, "cancelled"
                ),
            )
        world.act(agent, "home", agent.bring_home)
        world.act(agent, "seats", agent.keep)
        if agent.agent.node.leaving:
            world.act(agent, "bell", agent.depart)


def run_schedule(
    client: redis.Redis, scripts: Scripts, schedule: Schedule, log: list[str] | None = None
) -> tuple[Violation | None, Counter[str]]:
    """Play a schedule from an empty server to rest; the broken promise if there was one, and what
    was reached.
    """
    world = World(client, scripts, schedule, schedule.seed, log, schedule.shards)
    player = Player(schedule, world)
    with world.in_force():
        try:
            world.calm = True
            for name in ("s1", "s2"):
                world.start_scheduler(name)
            for node in schedule.nodes:
                offer, score = NODES[node]
                world.start_agent(node, parse_resources(offer), score)
            world.calm = False
            for world.step, step in enumerate(schedule.steps):
                player.play(step)
            heal(player)
        except Violation as violation:
            return violation, world.ghost.coverage
    return None, world.ghost.coverage


def to_text(steps: list[Step]) -> str:
    """Return the step as JSON, for `--steps`."""
    return json.dumps([str(step) for step in steps])


def of_text(words: str) -> list[Step]:
    """Return steps from their JSON."""
    return [
        Step(verb, int(seed))
        for verb, _, seed in (word.partition(":") for word in json.loads(words))
    ]
