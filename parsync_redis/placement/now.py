"""The obstacles of now, and the classes of nodes that have the same obstacles.

An obstacle of now: a node takes no new tasks, or has too few slots or resources free.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ..model.amount import THOUSANDTHS, shown_amount
from ..model.apart import APART_PREFIX, undeclared
from ..model.devices import hold, share_of
from ..model.explanation import NodeClass, Obstacle
from ..model.human import age_text, clock_text
from ..model.near import near_of
from ..model.needs import Resources
from ..model.node import drain_reason
from .facts import NodeFacts
from .rules import PLACEMENT_RULES
from .rules.devices import fitting, shortage, split
from .rules.labels import TaintsRule

STATE_RULES: Final = ("state", "reserved", "held", "leaves")
"""The rules of obstacles that close a node as a whole."""

LEAVES_NOW: Final = "leaves now"
"""The sentence about a node whose time to leave has come."""

NO_NAME_HERE: Final = "does not know a task of that name"


def obstacles(needs: Resources, node: NodeFacts) -> tuple[Obstacle, ...]:
    """Return what keeps a node from a task now, in the order of the rules; () if the node has room.

    A node that takes no new tasks has one obstacle for all of its slots and resources: its state.
    The same holds for a node that is reserved.
    """
    obstacles_of_node = [] if node.knows else [Obstacle("name", True, "name", NO_NAME_HERE)]
    if not is_near(needs, node):
        obstacles_of_node.append(
            Obstacle("near", True, "near", f"is not {near_of(needs)}, where the task must be")
        )
    for rule in PLACEMENT_RULES:
        if not rule.admits(node.offer, needs):
            lacks = rule.lacking(needs, node.offer)
            obstacles_of_node += [
                Obstacle(rule.name, True, lack.partition(" (has ")[0], f"lacks {lack}")
                for lack in lacks
            ]
    return (*obstacles_of_node, *(_closed(node) or shortages(needs, node)))


def is_near(needs: Resources, node: NodeFacts) -> bool:
    """Return whether the needs name this node, or no node (model/near.py)."""
    return near_of(needs) in ("", node.name)


def has_room(needs: Resources, node: NodeFacts) -> bool:
    """Return whether a node that fits could take the task now."""
    return not (_closed(node) or shortages(needs, node))


def what_keeps(needs: Resources, node: NodeFacts) -> Sequence[Obstacle]:
    """Return what keeps a node that fits: its state, else its slots, else its resources."""
    return _closed(node) or _free_slots(needs, node) or _free_resources(needs, node)


def shortages(needs: Resources, node: NodeFacts) -> Sequence[Obstacle]:
    """Return the slots and resources of which an open node has too little free for a task."""
    return (*_free_slots(needs, node), *_free_resources(needs, node))


def _closed(node: NodeFacts) -> Sequence[Obstacle]:
    """Return why a node takes no new tasks, or none of the task's kind; () if it is open to it."""
    if node.leaves and node.state == "up":
        return (Obstacle("leaves", False, "leaves", node.leaves),)
    if node.open and node.booked:
        return (Obstacle("reserved", False, "reserved", f"is reserved for {node.booked}"),)
    if node.open and node.held_back:
        return (
            Obstacle("held", False, "held back", "holds such tasks back, because they fail there"),
        )
    return _state(node)


def _state(node: NodeFacts) -> Sequence[Obstacle]:
    """Return the state of a node that is closed; () if it is open."""
    if node.open:
        return ()
    if node.state == "down":
        why = f"is down since {clock_text(node.down_ms)}" if node.down_ms is not None else "is down"
        return (Obstacle("state", False, "down", why),)
    if node.draining:
        why = "is drained" + (f": {reason}" if (reason := drain_reason(node.note)) else "")
        return (Obstacle("state", False, "drained", why),)
    if node.state == "suspect":
        return (
            Obstacle(
                "state", False, "suspect", "is suspect" + (f": {node.note}" if node.note else "")
            ),
        )
    return (Obstacle("state", False, "leaving", "shuts down"),)


def _free_slots(needs: Resources, node: NodeFacts) -> Sequence[Obstacle]:
    """Return the obstacle that too few slots are free; () if enough are."""
    if node.free >= needs.slots:
        return ()
    why = "is full" if needs.slots == 1 else f"has fewer than {needs.slots} free slots"
    return (Obstacle("free slots", False, "full", why, float(needs.slots - node.free)),)


def _free_resources(needs: Resources, node: NodeFacts) -> Sequence[Obstacle]:
    """Return the resources and devices that a node has, but of which too little is free."""
    plain, of_devices = split(needs, node.offer)
    offered = dict(node.offer.amounts)
    obstacles_of_node = []
    for name, amount in plain:
        available = node.amounts_left.get(name, undeclared(name))
        if available < amount <= offered.get(name, undeclared(name)):
            rule = "free resources"
            why = f"is short of {name}: the task needs {shown_amount(amount)}"
            if undeclared(name):
                rule = "apart"
                why = f"has a task with apart={name.removeprefix(APART_PREFIX)}"
            obstacles_of_node.append(
                Obstacle(rule, False, name, why, (amount - available) / THOUSANDTHS)
            )
    for kind, amounts in of_devices.items():
        free = {name: node.amounts_left.get(name, 0) for name in offered}
        if hold(free, amounts) is None and hold(offered, amounts) is not None:
            (_, count) = share_of(kind, amounts) or (0, 0)
            fit = fitting(kind, amounts, free)
            why = f"is short of {kind}: the task needs {shortage(kind, amounts)}"
            obstacles_of_node.append(Obstacle("free devices", False, kind, why, float(count - fit)))
    return obstacles_of_node


def before_they_end(at_ms: int) -> str:
    """Return the sentence about a node that leaves too early for a task."""
    return f"leaves at {clock_text(at_ms)}, before such tasks end"


def leaves_in(at_ms: int, run_ms: float | None, now_ms: int) -> str:
    """Return the sentence about a node that leaves too early for a task, as of now."""
    takes = (
        f"such tasks take up to {age_text(run_ms / 1000)}"
        if run_ms is not None
        else "how long such tasks take is not known yet"
    )
    return f"leaves in {age_text((at_ms - now_ms) / 1000)}: {takes}"


Distance = tuple[int, int, int, float]
_Member = tuple[Distance, str, tuple[Obstacle, ...]]
"""A node of a class: its distance, its name and its obstacles."""


def distance(obstacles_of_node: Sequence[Obstacle]) -> Distance:
    """Return how far a node is from holding a task, as numbers to compare.

    Lasting obstacles count first, then a closed node, then the amounts that are missing. A taint
    counts less than another lasting obstacle, because the task need only tolerate it.
    """
    static = sum(obstacle.static for obstacle in obstacles_of_node)
    closed = sum(obstacle.rule in STATE_RULES for obstacle in obstacles_of_node)
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
