"""A core to drive by events: how tests of it make one, its nodes, its tasks and the verdicts on its claims."""

import numpy as np

from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.replies import Judged, Snapshot
from parsync_redis.model.task import Taken
from parsync_redis.scheduler.core import Core
from parsync_redis.scheduler.plan import Plan


def make(partitions: int = 1, strategy: Strategy = Strategy.QUALITY, seed: int = 1) -> Core:
    return Core("s1", partitions, strategy, 1.5, np.random.default_rng(seed))


def node(name: str, slots: int, score: float = 1.0, **labels: str) -> Node:
    return Node(name, "up", 1, False, 0, slots, score, Resources.of(slots, labels=labels))


def bitmap(count: int) -> bytes:
    return np.packbits(np.ones(count, dtype=bool)).tobytes()


def see(core: Core, p: int, nodes: list[Node], free: int, now_s: float = 0.0, version: int = 1) -> None:
    """The core has read a partition with `free` free slots from the first bit on."""
    core.on_nodes(p, nodes, 1)
    core.on_snapshot(Snapshot(p, version, 1, bitmap(free), {}), now_s)
    core.plan()


def tasks(count: int, needs: str = "slots=1", strategy: str = "") -> list[Taken]:
    return [Taken(f"t{i}", f"1@{i}", needs, strategy, 0) for i in range(count)]


def claims_of(plan: Plan) -> list[str]:
    return [f"{c.node}/{c.slots[0]}" for some in plan.commit.values() for c in some]


def judge(core: Core, plan: Plan, word: ClaimOutcome) -> None:
    for p, claims in plan.commit.items():
        core.on_judged(
            Judged(p, 2, 1000, claims, [Verdict(word, "1000" if word is ClaimOutcome.HELD else "x")] * len(claims))
        )
