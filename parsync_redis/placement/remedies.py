"""Remedies: acts and commands, each of which would let a waiting task run. Pure functions.

The tasks that go before the waiting task are not considered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..model.amount import exact_text
from ..model.apart import APART_PREFIX, undeclared
from ..model.devices import hold
from ..model.explanation import NodeClass, Obstacle
from ..model.human import needs_shown
from ..model.near import NEAR_LABEL, near_of
from ..model.needs import QUEUE_LABEL, TAINT_LABEL, Resources, queues_of, without
from ..model.node import trust_remedy
from .facts import NodeFacts
from .now import NO_NAME_HERE, shortages

START_WORKER: Final = "start a worker of the app with --parsync"
"""The remedy for a cluster that has no node."""


def find_remedies(
    name: str,
    needs: Resources,
    classes: Sequence[NodeClass],
    nodes: Mapping[str, NodeFacts],
    held_slots: Mapping[str, int],
) -> tuple[str, ...]:
    """Return what would let a task of this name run: a remedy for each class of nodes.

    The class that lacks least comes first. A remedy mends everything that keeps the first node of
    its class. Returns () if a node has room.
    held_slots: by node, how many slots tasks hold. The facts of a closed node do not show that.
    """
    if not classes:
        return (START_WORKER,)
    nearest = classes[0]
    if not nearest.obstacles:
        return ()
    if not can_hold(nearest):
        return (*_for_none(name, needs, nodes[nearest.nodes[0]], nearest.obstacles, held_slots),)
    firsts = [nodes[node_class.nodes[0]] for node_class in classes if can_hold(node_class)]
    return tuple(" and ".join(_acts(needs, node, held_slots.get(node.name, 0))) for node in firsts)


def can_hold(node_class: NodeClass) -> bool:
    """Return True if the nodes of a class could hold the task when they are empty."""
    return not any(obstacle.static for obstacle in node_class.obstacles)


def _acts(needs: Resources, node: NodeFacts, held_slots: int) -> Iterator[str]:
    """Yield the acts that give the task room on a node that fits.

    The node is opened first; then what lacks is freed.
    """
    if node.state in ("down", "leaving"):
        yield f"start the worker of node {node.name} again"
        node = replace(
            node,
            state="up",
            free=node.given.slots,
            amounts_left=dict(node.given.amounts),
            held_back=False,
            leaves="",
        )
        held_slots = 0
    if node.leaves:
        yield f"{node.name} stays"
        node = replace(node, draining=False, leaves="")
    if not node.open:
        if node.draining:
            yield f"parsync nodes undrain {node.name}"
        else:
            yield trust_remedy(node.name, node.note)
        node = replace(node, state="up", draining=False, free=max(0, node.given.slots - held_slots))
    if node.booked:
        yield f"{node.name} is not reserved for {node.booked} any more"
    if node.held_back:
        yield (
            f"mend why such tasks fail on {node.name}: parsync events --event failed --node "
            f"{node.name}"
        )
    for obstacle in shortages(needs, node):
        yield _more(obstacle, needs, node)


def _more(obstacle: Obstacle, needs: Resources, node: NodeFacts) -> str:
    """Return what must be free besides, so that the obstacle is gone. No amount is rounded."""
    if obstacle.rule == "free slots":
        return (
            f"{obstacle.short:g} more free slot{'s' if obstacle.short > 1 else ''} on {node.name}"
        )
    if obstacle.rule == "apart":
        word = obstacle.what.removeprefix(APART_PREFIX)
        return f"the end of the task with apart={word} on {node.name}"
    if obstacle.rule == "free devices":
        return f"{obstacle.short:g} more {obstacle.what} with enough left on {node.name}"
    missing = dict(needs.amounts)[obstacle.what] - node.amounts_left.get(obstacle.what, 0)
    return f"{exact_text(missing)} more of {obstacle.what} free on {node.name}"


def _for_none(
    name: str,
    needs: Resources,
    nearest: NodeFacts,
    obstacles: Sequence[Obstacle],
    held_slots: Mapping[str, int],
) -> Iterator[str]:
    """Yield the remedies if no node could hold the task: another worker, or other needs."""
    static = [obstacle for obstacle in obstacles if obstacle.static]
    required_node = near_of(needs)
    who = (
        f"start the worker of node {required_node} again so that it has"
        if required_node
        else "start a worker that has"
    )
    knows = f" and knows {name}" if any(obstacle.why == NO_NAME_HERE for obstacle in static) else ""
    bare = without(needs, NEAR_LABEL, TAINT_LABEL, QUEUE_LABEL)
    amounts = [(resource, amount) for resource, amount in bare.amounts if not undeclared(resource)]
    shown_needs = Resources.made(bare.slots, amounts, bare.labels)
    consumes = "".join(f" and consumes queue {queue}" for queue in queues_of(needs))
    yield f"{who} {needs_shown(shown_needs.text)}{consumes}{knows}"
    if any(obstacle.rule in ("name", "near") for obstacle in static):
        return  # other needs would not help
    lacks = ", ".join(obstacle.why.removeprefix("lacks ") for obstacle in static)
    amounts_of_nearest = dict(nearest.offer.amounts)
    amounts = [
        (resource, amount)
        for resource, amount in needs.amounts
        if hold(amounts_of_nearest, [(resource, amount)]) is not None
    ]
    less = Resources.made(min(needs.slots, nearest.offer.slots), amounts, ())
    acts = " and ".join(_acts(less, nearest, held_slots.get(nearest.name, 0)))
    yield f"other needs: {nearest.name} lacks {lacks}" + (f"; and {acts}" if acts else "")
