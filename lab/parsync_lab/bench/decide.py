"""The CPU time of a scheduler's decision, from a kind's line to the claims, without a server."""

import threading
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

import numpy as np

from parsync_lab import Stopped
from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.kind import Kind, KindLine
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.replies import Judged, Snapshot, Took
from parsync_redis.model.taints import offered_taints, tolerance
from parsync_redis.model.task import Taken
from parsync_redis.placement.rules import PLACEMENT_RULES
from parsync_redis.scheduler.core.core import Core

from .figures import ratio
from .placement import Say

SLOTS_OF_NODE: Final = 10
DECIDER_PARTITIONS: Final = 20

DECISION_STEPS: Final = (
    "name",
    "near",
    *(rule.name for rule in PLACEMENT_RULES),
    "state",
    "free",
    "kept back",
)
"""The rules that a decision applies."""

WISHES: Final = "warm=llama,zone:a,pack,score"
"""The preferences of the kinds with wishes, as the text of a kind has them."""


def offer_of(number: int) -> Resources:
    """Return the offer of node `number`.

    Every third node has four GPUs, every fourth is a spot node; labels differ.
    """
    labels = {"zone": "abc"[number % 3 - 1], "arch": ("x86", "arm")[number % 10 == 0]}
    gpus = number % 3 == 0
    return Resources.of(
        SLOTS_OF_NODE,
        {"cpu": 16, "mem": 64 + number % 7},
        {**labels, "vram_gb": str(16 + 8 * (number % 4))},
        offered_taints(["spot"] if number % 4 == 0 else []),
        {"gpu": range(4)} if gpus else {},
        {"gpu.mem": 24} if gpus else {},
    )


def needs_of(number: int) -> Resources:
    """Return needs that each rule has to judge; each number gives different needs."""
    return Resources.needed(
        1,
        {"cpu": 1, "mem": round(4 + number / 1000, 3), "gpu.mem": 5},
        {"zone": ["a", "b", "c"], "vram_gb": {">=": 24}, "arch": {"not": "arm"}},
        tolerance(["spot"]),
    )


class Decider:
    """A scheduler's core with a view of `slots` slots."""

    def __init__(self, slots: int) -> None:
        self.core = Core("s1", DECIDER_PARTITIONS, Strategy.QUALITY, 1.5, np.random.default_rng(1))
        self._reads = 0
        self._shots = list[tuple[int, bytes, dict[str, str]]]()
        rng = np.random.default_rng(2)
        nodes = [offer_of(number) for number in range(slots // SLOTS_OF_NODE)]
        for p in range(DECIDER_PARTITIONS):
            offers = list(enumerate(nodes))[p::DECIDER_PARTITIONS]
            partition_nodes = [
                Node(
                    f"n{n}",
                    "up",
                    1,
                    False,
                    position * SLOTS_OF_NODE,
                    SLOTS_OF_NODE,
                    float(rng.normal(9.5, 1.4)),
                    offer,
                )
                for position, (n, offer) in enumerate(offers)
            ]
            self.core.on_nodes(p, partition_nodes, 1)
            bits = np.packbits(np.ones(len(partition_nodes) * SLOTS_OF_NODE, dtype=bool)).tobytes()
            self._shots.append((p, bits, {node.name: node.offer.asked for node in partition_nodes}))

        for _ in range(DECIDER_PARTITIONS):
            self.read_next()

    def read_next(self) -> None:
        """Read the next partition with all slots free again, as a tick makes a scheduler do."""
        p, bits, free_amounts = self._shots[self._reads % DECIDER_PARTITIONS]
        self._reads += 1
        self.core.on_snapshot(Snapshot(p, self._reads, 1, bits, free_amounts), float(self._reads))
        self.core.plan(place=False, confirm=False)

    def decide(self, kinds: list[Kind], count: int) -> float:
        """Return the CPU seconds in which the core claims slots for `count` tasks of each kind."""
        core = self.core
        waiting = {kind.text: kind for kind in kinds}
        changes = [(text, str(KindLine(count, 1, count))) for text in waiting]
        began_s = time.process_time()
        core.on_took(Took("1", 0, changes=changes))
        plan = core.plan(confirm=False, room=len(kinds) * count)
        tasks = [
            Taken(f"{text} {number}", f"1@{number}", waiting[text], 0)
            for text, limit in plan.shard_looks[0].take
            for number in range(limit)
        ]
        core.on_took(Took("2", 0, changes=[(text, "") for text in waiting], tasks=tasks))
        plan = core.plan(place=False, confirm=False)
        took_s = time.process_time() - began_s
        claimed = sum(len(claims) for claims in plan.commit.values())
        if claimed != len(kinds) * count:
            raise AssertionError(f"{claimed} of {len(kinds) * count} tasks were claimed")
        for p, claims in plan.commit.items():
            core.on_judged(Judged(p, 1, 1, claims, [Verdict(ClaimOutcome.HELD, "1")] * len(claims)))
        core.won.confirmed(len(core.won.take()))
        return took_s


def run_decide(
    slots: int, batch: int, rounds: int, stop: threading.Event, say: Say
) -> dict[str, Any]:
    """Return the median CPU time per task (ms) of decisions about new and known kinds.

    A partition is read before each round.
    """
    decider = Decider(slots)
    numbers = iter(range(1, 10**9))

    def kinds(count: int, prefer: str = "") -> list[Kind]:
        return [
            Kind("work", needs_of(number).text, prefer=prefer)
            for number, _ in zip(numbers, range(count), strict=False)
        ]

    known_kinds = kinds(1)
    known_wishes = kinds(1, WISHES)
    cases: dict[str, tuple[int, Iterator[list[Kind]]]] = {
        "one task, new kind": (1, iter(lambda: kinds(1), None)),
        "one task, known kind": (1, iter(lambda: known_kinds, None)),
        "one task with wishes, new kind": (1, iter(lambda: kinds(1, WISHES), None)),
        "one task with wishes, known kind": (1, iter(lambda: known_wishes, None)),
        f"{batch} tasks of one new kind": (batch, iter(lambda: kinds(1), None)),
        f"{batch} tasks of 50 new kinds in turn": (batch // 50, iter(lambda: kinds(50), None)),
    }
    ms_by_case: dict[str, float] = {}
    for case, (count, kinds_of_rounds) in cases.items():
        took_s = list[float]()
        for number in range(rounds + 1):
            if stop.is_set():
                raise Stopped
            say(f"{case}: round {number} of {rounds}")
            decider.read_next()
            chosen = next(kinds_of_rounds)
            took_s.append(decider.decide(chosen, count) / (len(chosen) * count))
        ms_by_case[case] = ratio(1000 * median(took_s[1:]), 1, 4)
    return {
        "slots": slots,
        "nodes": slots // SLOTS_OF_NODE,
        "partitions": DECIDER_PARTITIONS,
        "rules": DECISION_STEPS,
        "wishes": WISHES.split(","),
        "ms": ms_by_case,
    }
