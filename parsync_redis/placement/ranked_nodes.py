"""The nodes with room for a task, ranked for people who ask before the task is placed.

The rules and the comparison are the scheduler's (placement/preferences/). The facts are those of a
scheduler that has read all nodes just now: one partition, which has every node.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ..model.explanation import MOST_RANKED, RankedNode, RankedNodes
from ..model.needs import Resources
from ..model.options import Strategy
from ..model.status import TaskStatus
from ..model.times import LearntTimes, class_of
from .columns import Columns
from .facts import NodeFacts
from .preferences import rules_of
from .preferences.preference import ClusterNow, NodesNow, fifths, find_scarce, parts_in_use
from .preferences.ranks import compare, rank_nodes
from .preferences.ring import NodeRing, RingNodes, WarmSet, hashes_of
from .reasons import find_fitting


def nodes_now(
    nodes: Sequence[NodeFacts], needs: Resources, learnt: LearntTimes, counts: Mapping[str, int]
) -> NodesNow:
    """Return what preferences of a task read of all nodes, as schedulers build it in their view.

    A fact that a new rule reads comes from here.

    needs: of the task.
    counts: by key, how many of its tasks are taken, placed or running.
    """
    columns = Columns([node.offer for node in nodes])
    capacities = Columns([node.given for node in nodes])
    is_open = np.array([node.open for node in nodes], dtype=bool)
    free = np.array([node.free for node in nodes], dtype=np.int64)
    scores = np.array([node.score for node in nodes], dtype=np.float64)
    index = {node.name: i for i, node in enumerate(nodes)}
    cluster = ClusterNow(
        fifths(scores),
        find_scarce([columns]),
        lambda label: parts_in_use(label, [(capacities, is_open, free)]),
        lambda key: _warm_set(key, nodes, needs, capacities, counts.get(key, 0)),
        leaving=frozenset(node.name for node in nodes if node.has_notice),
        run_ms=lambda name: _run_ms(learnt.means_of(name, columns.classes.values), needs, nodes),
    )
    return NodesNow(
        columns,
        capacities,
        lambda name: index.get(name, -1),
        free,
        columns.spread((i, node.amounts_left) for i, node in enumerate(nodes)),
        scores,
        cluster,
    )


def _warm_set(
    key: str, nodes: Sequence[NodeFacts], needs: Resources, capacities: Columns, count: int
) -> WarmSet:
    """Return the warm set of a key for what its tasks hold now.

    A scheduler's set is larger while its mean over the last minute is.
    """
    names = {node.name for node in _open(needs, nodes)}
    fitting = np.array([node.name in names for node in nodes], dtype=bool)
    hashes = hashes_of(node.name for node in nodes)
    ring = NodeRing.of(key, needs, [RingNodes(hashes, capacities, fitting)])
    return WarmSet(ring, ring.size_for(count + 1.0))


def _run_ms(
    means: Mapping[str, float], needs: Resources, nodes: Sequence[NodeFacts]
) -> Mapping[str, float]:
    """Return the mean run times (ms) of the classes of open nodes that fit. means: by class."""
    classes = {class_of(node.offer) for node in _open(needs, nodes)}
    return {node_class: ms for node_class, ms in means.items() if node_class in classes}


def _open(needs: Resources, nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the open nodes that fit when they are empty."""
    return [node for node in find_fitting(needs, nodes) if node.open]


def rank_for(
    task: TaskStatus,
    last: str,
    needs: Resources,
    nodes: Sequence[NodeFacts],
    with_room: Collection[str],
    learnt: LearntTimes,
    counts: Mapping[str, int] = MappingProxyType({}),
) -> RankedNodes:
    """Return the nodes with room for a task, as a scheduler would take them now.

    last: the node that the task avoids, '' for none.
    needs: of the task.
    nodes: all nodes of the cluster.
    with_room: the names of those with room, at least one.
    learnt: the run times.
    counts: by key of `warm`, how many of its tasks are taken, placed or running.
    """
    rules = rules_of(task.prefer, task.strategy == Strategy.LATENCY, last, task.name)
    facts = nodes_now(nodes, needs, learnt, counts)
    ranks_of_all = rank_nodes(facts, (rule.buckets(facts, needs) for rule in rules))
    indexes = [facts.index_of(name) for name in with_room]
    ranks = ranks_of_all[indexes]
    order = sorted(
        zip(ranks.tolist(), (nodes[i] for i in indexes), strict=True),
        key=lambda ranked: (ranked[0], -ranked[1].score, ranked[1].name),
    )
    first = tuple(
        RankedNode(node.name, node.score, compare(rules, ranks, rank)[1])
        for rank, node in order[:MOST_RANKED]
    )
    return RankedNodes(len(indexes), first[0].ranked[-1].nodes, first)
