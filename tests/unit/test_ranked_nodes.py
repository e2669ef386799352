"""What people are told of preferences is what the core does.

The nodes that are ranked before the start, the choice that a scheduler notes, and what is read back
from the note agree with each other and with the rules, said once more here in plain Python.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log2
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.explanation import Choice, Ranked, RankedNodes
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.preferences import preferences_text
from parsync_redis.model.replies import Snapshot
from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import TaskState
from parsync_redis.model.times import LearntTimes
from parsync_redis.placement.facts import NodeFacts
from parsync_redis.placement.now import has_room
from parsync_redis.placement.ranked_nodes import rank_for
from parsync_redis.placement.reasons import find_fitting
from parsync_redis.scheduler.core.core import Core
from tests.kit.core_rig import Queue, judge, make

SLOTS = 4
GPUS = 2000  # in thousandths


@dataclass(frozen=True)
class Drawn:
    """A node: its free slots, its gpus left in thousandths (None: it has none), its labels."""

    name: str
    partition: int
    free: int
    gpus: int | None
    zone: str
    cost: str
    score: float

    @property
    def offer(self) -> Resources:
        labels = {"zone": self.zone, "cost": self.cost}
        amounts = {} if self.gpus is None else {"gpu": GPUS / 1000}
        return Resources.of(SLOTS, amounts, {name: text for name, text in labels.items() if text})

    @property
    def left(self) -> dict[str, int]:
        return {} if self.gpus is None else {"gpu": self.gpus}

    @property
    def facts(self) -> NodeFacts:
        return NodeFacts(self.name, "up", False, self.offer, self.free, self.left, score=self.score)


def core_of(nodes: Sequence[Drawn]) -> Core:
    """Return a core that has read these nodes at one moment."""
    core = make(3)
    for partition in range(3):
        members = [node for node in nodes if node.partition == partition]
        rows = [
            Node(node.name, "up", 1, 0, SLOTS * i, SLOTS, node.score, node.offer)
            for i, node in enumerate(members)
        ]
        core.on_nodes(partition, rows, 1)
        bits = [slot < node.free for node in members for slot in range(SLOTS)]
        packed = np.packbits(np.array(bits, dtype=bool)).tobytes()
        left = {n.name: Resources.made(1, n.left.items(), ()).asked for n in members}
        core.on_snapshot(Snapshot(partition, 1, 1, packed, left), 5.0)
    core.plan(place=False, confirm=False)
    return core


def of(rows: Sequence[tuple[int, int, int | None, str, str, float]]) -> list[Drawn]:
    """Return nodes n0, n1, ... with these facts."""
    return [Drawn(f"n{i}", *row) for i, row in enumerate(rows)]


NODES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, SLOTS),
        st.sampled_from([None, 0, 500, 1000, 2000]),
        st.sampled_from(["", "a", "b", "c"]),
        st.sampled_from(["", "0.3", "1", "1.9", "70"]),
        st.sampled_from([0.5, 1.0, 2.0, 9.5]),
    ),
    min_size=1,
    max_size=9,
).map(of)


# -- the rules, said once more ---------------------------------------------------------------------


def quarter(part: float) -> int:
    """Return the quarter of a part of a whole."""
    return min(3, max(0, floor(4 * part)))


def left(node: Drawn, slots: int, gpus: int, whole: bool) -> float:
    """Return what is left of the scarcest of the slots and, if a task asks for gpus, of the gpus.

    whole: before the task comes.
    """
    parts = [(node.free - (0 if whole else slots)) / SLOTS]
    if gpus and node.gpus is not None:
        parts.append((node.gpus - (0 if whole else gpus)) / GPUS)
    return min(parts)


def fifth(node: Drawn, nodes: Sequence[Drawn]) -> int:
    """Return the fifth of a node's score: how many of the bounds are above the score."""
    scores = sorted(each.score for each in nodes)
    bounds = {scores[ceil(round(q * (len(scores) - 1), 9))] for q in (0.2, 0.4, 0.6, 0.8)}
    return sum(bound > node.score for bound in bounds)


def used_in_zone(node: Drawn, nodes: Sequence[Drawn]) -> int:
    """Return the quarter of the slots in use on all nodes of a node's zone."""
    alike = [each for each in nodes if each.zone == node.zone]
    return quarter(1 - sum(each.free for each in alike) / (SLOTS * len(alike)))


Oracle = Callable[[Drawn, Sequence[Drawn], int, int], int]
RULES: dict[str, tuple[Any, Oracle]] = {
    "zone=a": ("zone=a", lambda node, _, slots, gpus: int(node.zone != "a")),
    "zone:a=2,b=0": (
        {"zone": {"a": 2, "b": 0}},
        lambda node, _, slots, gpus: {"a": 2, "b": 0}.get(node.zone, 3),
    ),
    "pack": ("pack", lambda node, _, slots, gpus: quarter(left(node, slots, gpus, whole=False))),
    "pack:gpu": (
        "pack:gpu",
        lambda node, _, slots, gpus: 3 if node.gpus is None else quarter((node.gpus - gpus) / GPUS),
    ),
    "spread": ("spread", lambda node, _, slots, gpus: quarter(1 - left(node, slots, gpus, True))),
    "spread:zone": ("spread:zone", lambda node, nodes, slots, gpus: used_in_zone(node, nodes)),
    "cheap": (
        "cheap",
        lambda node, _, slots, gpus: 32 + floor(log2(float(node.cost))) if node.cost else 63,
    ),
    "score": ("score", lambda node, nodes, slots, gpus: fifth(node, nodes)),
    "fresh": ("fresh", lambda node, nodes, slots, gpus: 0),
}
"""By name of a rule, how a task says it, and its bucket of a node for a task of slots and gpus."""


def buckets_of(
    node: Drawn, nodes: Sequence[Drawn], names: Sequence[str], gpus: int, last: str
) -> list[int]:
    """Return the buckets of a node by the rules of every task, then by the task's own."""
    having = sum(each.gpus is not None for each in nodes)
    kept_back = 0 < 2 * having < len(nodes) and node.gpus is not None and not gpus
    own = [RULES[name][1](node, nodes, 1, gpus) for name in names]
    return [int(kept_back), *([int(node.name == last)] if last else []), *own]


def derived(
    node: Drawn, able: Sequence[Drawn], names: Sequence[str], buckets: dict[str, list[int]]
) -> list[tuple[str, int, int, int]]:
    """Return how a node compares by each rule: the rule, its bucket, the best, how many are as good."""
    rows = []
    for i, name in enumerate(names):
        bucket = buckets[node.name][i]
        best = min(buckets[each.name][i] for each in able)
        able = [each for each in able if buckets[each.name][i] == bucket]
        rows.append((name, bucket, best, len(able)))
    return rows


def numbers(ranked: Sequence[Ranked]) -> list[tuple[str, int, int, int]]:
    """Return what the rules say, without their sentences."""
    return [(rule.rule, rule.bucket, rule.best, rule.nodes) for rule in ranked]


# -- before and after the start --------------------------------------------------------------------


def ranked_before(
    nodes: Sequence[Drawn], kind: Kind, needs: Resources, last: str
) -> RankedNodes | None:
    """Return what `explain` and `plan` say of a task before it has a place."""
    facts = [node.facts for node in nodes]
    able = [node.name for node in find_fitting(needs, facts) if has_room(needs, node)]
    task = TaskStatus("t", TaskState.WAITING, kind.name, strategy=kind.strategy, prefer=kind.prefer)
    return rank_for(task, last, needs, facts, able, LearntTimes()) if able else None


def read_back(choice: Choice) -> Choice:
    """Return a choice as the shard stores it and `explain` reads it."""
    stored = Choice.of(choice.text)
    assert stored is not None
    return stored


@given(
    NODES,
    st.lists(st.sampled_from([*RULES]), max_size=6, unique=True),
    st.sampled_from([0, 500, 1000]),
    st.sampled_from(["", "n0"]),
    st.sampled_from(["", Strategy.QUALITY, Strategy.LATENCY]),
)
# with the seat that the task had on its last node, a quarter of the zone would be in use
@example(
    of([(0, 3, None, "a", "", 1.0), (0, 4, None, "a", "", 1.0)]),
    ["spread:zone", "pack"],
    0,
    "n0",
    "",
)
def test_the_ranked_nodes_the_choice_and_its_note_follow_from_the_rules(
    nodes: list[Drawn], rules: list[str], gpus: int, last: str, strategy: str
) -> None:
    needs = Resources.of(1, {"gpu": gpus / 1000} if gpus else {})
    kind = Kind("work", needs.text, strategy, prefer=preferences_text([RULES[r][0] for r in rules]))
    own = rules
    if strategy == Strategy.LATENCY and rules:
        own = ["fresh", *(rule for rule in rules if rule != "fresh")]
    names = ["not kept back", *(["elsewhere"] if last else []), *own]
    able = [node for node in nodes if node.free and (not gpus or (node.gpus or 0) >= gpus)]
    buckets = {node.name: buckets_of(node, nodes, own, gpus, last) for node in nodes}
    order = sorted(able, key=lambda node: (buckets[node.name], -node.score, node.name))
    candidates = ranked_before(nodes, kind, needs, last)
    core = core_of(nodes)
    queue = Queue(core).add(kind.text)
    queue.last = last
    queue.tell()
    plan = queue.turn()
    if candidates is None:
        assert not able
        assert not plan.commit
        return
    assert [node.node for node in candidates.nodes] == [node.name for node in order]
    for ranked, node in zip(candidates.nodes, order, strict=True):
        assert numbers(ranked.ranked) == derived(node, able, names, buckets)
    judge(core, plan, ClaimOutcome.HELD)
    core.on_tick(1)
    (choice,) = core.plan(confirm=False).choices.values()
    assert choice.ranked == candidates.nodes[0].ranked, "the best node is chosen, by each rule"
    assert buckets[choice.node] == buckets[order[0].name]
    note = read_back(choice)
    assert note == replace(choice, age_s=round(choice.age_s, 4))
    assert (note.fitted, note.equal) == (candidates.fitted, candidates.equal)
    assert note.fitted == len(able)
    assert note.equal == sum(buckets[node.name] == buckets[order[0].name] for node in able)
