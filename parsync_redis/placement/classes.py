"""Put the nodes that the same things keep from a task into classes, those that lack least first."""

from collections.abc import Iterable, Sequence

from ..model.explanation import NodeClass, Obstacle
from ..model.needs import Resources
from .facts import NodeFacts
from .now import obstacles
from .rules.taints import TaintsRule

Distance = tuple[int, int, int, float]


def distance(found: Sequence[Obstacle]) -> Distance:
    """Return how far a node is from holding a task: lasting obstacles count first, then a closed
    node.

    A taint is nearer than another obstacle: the task need only tolerate it.
    """
    static = sum(obstacle.static for obstacle in found)
    closed = sum(obstacle.rule in ("state", "reserved", "held") for obstacle in found)
    strict = sum(obstacle.static and obstacle.rule != TaintsRule.name for obstacle in found)
    return static, strict, closed, sum(obstacle.short for obstacle in found)


def classify(needs: Resources, nodes: Iterable[NodeFacts]) -> list[NodeClass]:
    """Return the classes of some nodes. The first node of a class is the one that lacks least."""
    by_cause: dict[
        tuple[tuple[str, str], ...], list[tuple[Distance, str, tuple[Obstacle, ...]]]
    ] = {}
    for node in nodes:
        found = obstacles(needs, node)
        cause = tuple((obstacle.rule, obstacle.what) for obstacle in found)
        by_cause.setdefault(cause, []).append((distance(found), node.name, found))
    classes = [sorted(some, key=lambda member: member[:2]) for some in by_cause.values()]
    classes.sort(key=lambda some: some[0][:2])
    return [NodeClass(tuple(name for _, name, _ in some), some[0][2]) for some in classes]
