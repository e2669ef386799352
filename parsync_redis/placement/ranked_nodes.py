"""The nodes with room for a task, ranked for people who ask before the task is placed.

The rules and the comparison are the scheduler's (placement/preferences/). The facts are those of a
scheduler that has read all nodes just now: one partition, which has every node.
"""

from collections.abc import Collection, Sequence

import numpy as np

from ..model.explanation import MOST_RANKED, RankedNode, RankedNodes
from ..model.needs import Resources
from ..model.options import Strategy
from ..model.status import TaskStatus
from .columns import Columns
from .facts import NodeFacts
from .preferences import rules_of
from .preferences.preference import ClusterNow, NodesNow, fifths, find_scarce, parts_in_use
from .preferences.ranks import compare, rank_nodes


def nodes_now(nodes: Sequence[NodeFacts]) -> NodesNow:
    """Return what preferences read of all nodes, as schedulers build it in their view.

    A fact that a new rule reads comes from here.
    """
    columns = Columns([node.offer for node in nodes])
    free = np.array([node.free for node in nodes], dtype=np.int64)
    scores = np.array([node.score for node in nodes], dtype=np.float64)
    index = {node.name: i for i, node in enumerate(nodes)}
    cluster = ClusterNow(
        fifths(scores),
        find_scarce([columns]),
        lambda label: parts_in_use(label, [(columns, free)]),
        leaving=frozenset(node.name for node in nodes if node.noticed),
    )
    return NodesNow(
        columns,
        lambda name: index.get(name, -1),
        free,
        columns.spread((i, node.amounts_left) for i, node in enumerate(nodes)),
        scores,
        cluster,
    )


def rank_for(
    task: TaskStatus,
    last: str,
    needs: Resources,
    nodes: Sequence[NodeFacts],
    with_room: Collection[str],
) -> RankedNodes:
    """Return the nodes with room for a task, as a scheduler would take them now.

    last: the node that the task avoids, '' for none.
    needs: of the task.
    nodes: all nodes of the cluster.
    with_room: the names of those with room, at least one.
    """
    rules = rules_of(task.prefer, task.strategy == Strategy.LATENCY, last)
    facts = nodes_now(nodes)
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
