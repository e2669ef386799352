"""The rules on the present: a node takes new tasks, and has enough slots and resources free."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from ..model.amount import THOUSANDTHS, shown_amount
from ..model.apart import APART_PREFIX, undeclared
from ..model.devices import hold, share_of
from ..model.explanation import Obstacle
from ..model.near import near_of
from ..model.needs import Resources
from ..model.node import drain_reason
from .facts import NodeFacts
from .rules import RULES
from .rules.devices import fitting, shortage, split

NO_NAME_HERE: Final = "does not know a task of that name"


def obstacles(needs: Resources, node: NodeFacts) -> tuple[Obstacle, ...]:
    """Return what keeps a node from a task now, in the order of the rules; nothing if it has room.

    Of a node that takes no new tasks nothing is free, so its state stands for that; so does that it
    is reserved.
    """
    found = [] if node.knows else [Obstacle("name", True, "name", NO_NAME_HERE)]
    if not is_near(needs, node):
        found.append(
            Obstacle("near", True, "near", f"is not {near_of(needs)}, where the task must be")
        )
    for rule in RULES:
        if not rule.admits(node.offer, needs):
            lacks = rule.lacking(needs, node.offer)
            found += [
                Obstacle(rule.name, True, what.partition(" (has ")[0], f"lacks {what}")
                for what in lacks
            ]
    return (*found, *(_closed(node) or shortages(needs, node)))


def is_near(needs: Resources, node: NodeFacts) -> bool:
    """Return whether a node is the one that needs are for, if they are for one."""
    return near_of(needs) in ("", node.name)


def has_room(needs: Resources, node: NodeFacts) -> bool:
    """Return whether a node that fits could take the task now."""
    return not (_closed(node) or shortages(needs, node))


def what_keeps(needs: Resources, node: NodeFacts) -> Sequence[Obstacle]:
    """Return what keeps a node that fits: its state, else the slots, else the resources of which
    too little is free.
    """
    return _closed(node) or _free_slots(needs, node) or _left(needs, node)


def shortages(needs: Resources, node: NodeFacts) -> Sequence[Obstacle]:
    """Return of what a node that is open has too little free for a task."""
    return (*_free_slots(needs, node), *_left(needs, node))


def _closed(node: NodeFacts) -> Sequence[Obstacle]:
    """Return why a node takes no new tasks, or keeps its room for another one."""
    if node.open and node.booked:
        return (Obstacle("reserved", False, "reserved", f"is reserved for {node.booked}"),)
    if node.open and node.held:
        return (
            Obstacle("held", False, "held back", "holds such tasks back, because they fail there"),
        )
    return _state(node)


def _state(node: NodeFacts) -> Sequence[Obstacle]:
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
    if node.free >= needs.slots:
        return ()
    why = "is full" if needs.slots == 1 else f"has fewer than {needs.slots} free slots"
    return (Obstacle("free slots", False, "full", why, float(needs.slots - node.free)),)


def _left(needs: Resources, node: NodeFacts) -> Sequence[Obstacle]:
    plain, of_devices = split(needs, node.offer)
    offered = dict(node.offer.amounts)
    found = []
    for name, amount in plain:
        if (
            (left := node.left.get(name, undeclared(name)))
            < amount
            <= offered.get(name, undeclared(name))
        ):
            rule = "free resources"
            why = f"is short of {name}: the task needs {shown_amount(amount)}"
            if undeclared(name):
                rule = "apart"
                why = f"has a task with apart={name.removeprefix(APART_PREFIX)}"
            found.append(Obstacle(rule, False, name, why, (amount - left) / THOUSANDTHS))
    for kind, some in of_devices.items():
        free = {name: node.left.get(name, 0) for name in offered}
        if hold(free, some) is None and hold(offered, some) is not None:
            (_, count) = share_of(kind, some) or (0, 0)
            fit = fitting(kind, some, free)
            why = f"is short of {kind}: the task needs {shortage(kind, some)}"
            found.append(Obstacle("free devices", False, kind, why, float(count - fit)))
    return found


def clock_text(ms: int) -> str:
    """Return a server time (ms) for people."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
