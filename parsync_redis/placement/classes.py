"""Classes of nodes: the same obstacles keep all nodes of a class from a task."""

from collections.abc import Iterable, Sequence

from ..model.explanation import NodeClass, Obstacle
from ..model.needs import Resources
from .facts import NodeFacts
from .now import obstacles
from .rules.taints import TaintsRule

Distance = tuple[int, int, int, float]
_Member = tuple[Distance, str, tuple[Obstacle, ...]]
"""A node of a class: its distance, its name and its obstacles."""


def distance(obstacles_of_node: Sequence[Obstacle]) -> Distance:
    """Return how far a node is from holding a task, as numbers to compare.

    Lasting obstacles count first, then a closed node, then the amounts that are missing. A taint
    counts less than another lasting obstacle, because the task need only tolerate it.
    """
    static = sum(obstacle.static for obstacle in obstacles_of_node)
    closed = sum(obstacle.rule in ("state", "reserved", "held") for obstacle in obstacles_of_node)
    strict = sum(
        obstacle.static and obstacle.rule != TaintsRule.name for obstacle in obstacles_of_node
    )
    return static, strict, closed, sum(obstacle.short for obstacle in obstacles_of_node)


def classify(needs: Resources, nodes: Iterable[NodeFacts]) -> list[NodeClass]:
    """Return the classes of these nodes, those that lack least first.

    The first node of a class is the node that lacks least.
    """
    members_by_cause: dict[tuple[tuple[str, str], ...], list[_Member]] = {}
    for node in nodes:
        obstacles_of_node = obstacles(needs, node)
        cause = tuple((obstacle.rule, obstacle.what) for obstacle in obstacles_of_node)
        member = (distance(obstacles_of_node), node.name, obstacles_of_node)
        members_by_cause.setdefault(cause, []).append(member)
    classes = [sorted(members, key=_closeness) for members in members_by_cause.values()]
    classes.sort(key=lambda members: _closeness(members[0]))
    return [NodeClass(tuple(name for _, name, _ in members), members[0][2]) for members in classes]


def _closeness(member: _Member) -> tuple[Distance, str]:
    """Return what members are sorted by: the distance, then the name."""
    return member[:2]
