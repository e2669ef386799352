"""The demand for machines of one sort.

The demand is the slots of the waiting tasks that such a machine could hold, and the slots that
tasks hold on the machines that are there. Pure.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Final

from ..model.devices import fold, whole_of
from ..model.needs import (
    QUEUE_LABEL,
    RESERVED_PREFIX,
    TAINT_LABEL,
    Resources,
    are_needs,
    parse_needs,
    queue_label,
    without,
)
from ..model.taints import offered_taints
from ..model.views import KindView, NodeView
from ..placement.columns import Columns
from ..placement.fits import fits, fitting
from ..placement.preferences.ring import NodeRing, RingNodes, hashes_of
from ..placement.reasons import reason_class
from ..placement.rules.labels import LabelsRule
from ..store.reads.accounts import WarmKey
from .survey import Survey

MOST_SHAPES: Final = 100
"""Maximum number of shapes in an answer, the largest first; the sums count all shapes."""

IDLE_MS: Final = 300_000
"""A node that has held nothing for so long could go."""

LABELS_RULE: Final = LabelsRule()
ANY_NAME: Final = re.compile("")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that could be added.

    offer: the resources of a node on the machine; None if the query does not describe them.
    require: conditions on labels; only tasks with all these conditions count.
    name: a pattern of task names; only tasks with such names count.
    """

    offer: Resources | None = None
    require: Resources = field(default_factory=Resources)
    name: re.Pattern[str] = ANY_NAME

    @classmethod
    def of(
        cls,
        slots: int,
        resources: Mapping[str, str],
        labels: Mapping[str, str],
        taints: Sequence[str],
        require: Mapping[str, Any],
        name: re.Pattern[str] = ANY_NAME,
        devices: Mapping[str, Sequence[str]] | None = None,
        of_devices: Mapping[str, str] | None = None,
        shared: bool = False,
    ) -> "Machine":
        """Return the machine that a request describes. Raises InvalidInput.

        slots: 0 if the request describes no machine.
        devices, of_devices, shared: see `Resources.of`.
        """
        conditions = Resources.needed(1, None, require)
        if not slots:
            return cls(None, conditions, name)
        values = {key: value.split(",") for key, value in labels.items()}
        offer = Resources.of(
            slots, resources, values, offered_taints(taints), devices, of_devices, shared
        )
        return cls(offer, conditions, name)

    def could_hold(self, kind: KindView) -> bool:
        """Return whether the machine could hold a task of a kind.

        Its worker is assumed to know the name and to consume the queue.
        """
        if not are_needs(kind.needs) or not self.name.match(kind.name):
            return False
        needs = parse_needs(kind.needs)
        if not {*self.require.labels} <= {*needs.labels}:
            return False
        return self.offer is None or fits(self.offer, _needs_of_machine(needs))

    def is_like(self, node: NodeView) -> bool:
        """Return whether a node is on such a machine, by labels, taints and kinds of resources."""
        labels = [
            (name, value) for name, values in node.labels.items() for value in values.split(",")
        ]
        if node.state == "down" or not LABELS_RULE.admits(
            Resources(labels=tuple(labels)), self.require
        ):
            return False
        if self.offer is None:
            return True
        labels_of_machine = {label for label in self.offer.labels if label[0] != TAINT_LABEL}
        taints = {value for name, value in self.offer.labels if name == TAINT_LABEL}
        has_kinds = {*fold(self.offer.amounts)} <= {*fold(node.resources.items())}
        return labels_of_machine <= {*labels} and taints == {*node.taints} and has_kinds


def _needs_of_machine(needs: Resources) -> Resources:
    """Return needs without what a machine does not decide: queues, and other tasks."""
    return _without_others(without(needs, QUEUE_LABEL))


def _without_others(needs: Resources) -> Resources:
    """Return needs without what other tasks decide."""
    labels = [
        (name, value)
        for name, value in needs.labels
        if name == TAINT_LABEL or not name.startswith(RESERVED_PREFIX)
    ]
    return Resources.made(needs.slots, needs.amounts, labels)


def _offer_of(node: NodeView) -> Resources:
    """Return what a node offers, as far as a machine decides it."""
    labels = [
        *((name, value) for name, values in node.labels.items() for value in values.split(",")),
        *offered_taints(node.taints),
    ]
    amounts = [(name, round(1000 * amount)) for name, amount in node.resources.items()]
    return Resources.made(node.slots, amounts, labels)


def _offer_with_queues(node: NodeView) -> Resources:
    """Return what a node offers, with the queues that its worker consumes."""
    offer = _offer_of(node)
    queues = map(queue_label, node.queues)
    return Resources.made(offer.slots, offer.amounts, [*offer.labels, *queues])


def _given_by(node: NodeView) -> Resources:
    """Return what a node can give now of its slots and amounts."""
    capacity = dict(node.capacity)
    slots = int(capacity.pop("slots", node.slots))
    return _offer_of(replace(node, slots=slots, resources={**node.resources, **capacity}))


def _different(nodes: Iterable[NodeView]) -> list[tuple[NodeView, Resources]]:
    """Return of nodes with equal offers the first by name, and what it offers."""
    first = dict[tuple[object, ...], NodeView]()
    for node in sorted(nodes, key=lambda node: node.name):
        parts = (*node.resources.items(),), (*node.labels.items(),), (*node.taints,)
        first.setdefault((node.slots, *parts), node)
    return [(node, _offer_of(node)) for node in first.values()]


def _node_class(
    needs: Resources, different: Iterable[tuple[NodeView, Resources]], waiting: int
) -> dict[str, str | int] | None:
    """Return the smallest node that could hold a task, and how many such nodes so many tasks need.

    Returns {"like": name of the node, "nodes": number}, or None if no node could.
    The smallest node has the fewest slots, then the least resources.

    different: see `_different`.
    """
    needs_of_node = _needs_of_machine(needs)
    able = [node for node, offer in different if fits(offer, needs_of_node)]
    if not able:
        return None
    smallest = min(
        able, key=lambda node: (node.slots, sum(fold(node.resources.items()).values()), node.name)
    )
    tasks = int(Columns([_offer_of(smallest)]).tasks_when_empty(needs)[0])
    return {"like": smallest.name, "nodes": math.ceil(waiting / max(1, tasks))}


def _idle_nodes(survey: Survey, nodes: Sequence[NodeView]) -> list[str]:
    """Return which of these nodes could go: those that have been idle for long.

    A node that is kept for a task, that is in the warm set of a key to which tasks count, or
    without which the guarantees of tenants could not be met, stays. A node that has a notice goes
    already.
    """
    open_nodes = [
        node
        for node in survey.nodes
        if node.state == "up" and not node.draining and node.leaves_ms is None
    ]
    leavable = {node.name for node in open_nodes}
    idle = {
        name
        for name, since_ms in survey.idle_since_ms.items()
        if survey.now_ms - since_ms >= IDLE_MS
    }
    if idle:
        leavable -= _warm_nodes(open_nodes, survey.warm_keys)
    remaining = Counter[str]()
    for node in open_nodes:
        remaining.update(_sizes(node))
    guaranteed = Counter[str]()
    for tenant in survey.tenancy.tenants:
        if "/" not in tenant.name:  # those below it are part of it
            guaranteed.update(tenant.at_least)
    names = list[str]()
    for node in nodes:
        without_node = remaining - Counter(_sizes(node))
        is_needed = any(without_node[name] < amount for name, amount in guaranteed.items())
        if node.name in leavable & idle and not node.reserved and not is_needed:
            names.append(node.name)
            remaining = without_node
    return names


def _warm_nodes(open_nodes: Sequence[NodeView], keys: Iterable[WarmKey]) -> set[str]:
    """Return the nodes that are in the warm set of a key, by what its tasks hold now.

    All nodes are assumed to know the names of the tasks, and to share no devices.
    """
    names = [node.name for node in open_nodes]
    offers = Columns([_offer_with_queues(node) for node in open_nodes])
    capacities = Columns([_given_by(node) for node in open_nodes])
    hashes = hashes_of(names)
    warm = set[str]()
    for key, tasks, text in keys:
        needs = parse_needs(text)
        mask = fitting(offers, _without_others(needs))
        if not mask.any():
            continue
        ring = NodeRing.of(key, needs, [RingNodes(hashes, capacities, mask)])
        in_set = ring.places[0] < ring.size_for(tasks + 1.0)
        warm.update(compress(names, in_set))
    return warm


def _sizes(node: NodeView) -> dict[str, float]:
    """Return what a node has, devices by their kinds."""
    return {"slots": float(node.slots), **fold(node.resources.items())}


def measure_demand(survey: Survey, machine: Machine) -> dict[str, Any]:
    """Return the waiting tasks and held slots for such a machine, in all and by shape."""
    kinds = [kind for kind in survey.kinds if machine.could_hold(kind)]
    nodes = [node for node in survey.nodes if machine.is_like(node)]
    present = [node for node in survey.nodes if node.state != "down" and node.leaves_ms is None]
    different = _different(present) if kinds else []
    shapes = _shapes(kinds)
    for shape in shapes[:MOST_SHAPES]:
        shape["node_class"] = _node_class(parse_needs(shape["needs"]), different, shape["waiting"])
    waiting = Counter[str]()
    held_amounts = Counter[str]()
    for shape in shapes:
        waiting.update({"slots": shape["slots"], **shape["resources"]})
    for node in nodes:
        held_amounts.update({"slots": node.held})
        free_amounts = fold(node.left.items())
        for name, amount in fold(node.resources.items()).items():
            held_amounts.update({name: amount - free_amounts.get(name, 0)})
    offer = machine.offer
    return {
        "waiting_tasks": sum(kind.waiting for kind in kinds),
        "waiting_slots": waiting["slots"],
        "held_slots": held_amounts["slots"],
        "wanted_slots": waiting["slots"] + held_amounts["slots"],
        "nodes": len(nodes),
        "machines": _machines(offer, waiting + held_amounts) if offer else None,
        "shapes": shapes[:MOST_SHAPES],
        "idle_nodes": [] if kinds else _idle_nodes(survey, nodes),
    }


def _machines(offer: Resources, amounts: Mapping[str, float]) -> int:
    """Return the least number of machines that offer these amounts in all.

    Tasks that do not pack well may need more machines.
    """
    sizes = {
        "slots": float(offer.slots),
        **{name: amount / 1000 for name, amount in fold(offer.amounts).items()},
    }
    return max(
        math.ceil(round(amounts.get(name, 0) / size, 9)) for name, size in sizes.items() if size
    )


def _shapes(kinds: Iterable[KindView]) -> list[dict[str, Any]]:
    """Return the waiting tasks by needs, the shape with the most slots first."""
    shapes: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        needs = parse_needs(kind.needs)
        shape = shapes.setdefault(
            needs.text,
            {
                "needs": needs.text,
                "waiting": 0,
                "slots": 0,
                "resources": Counter(),
                "reasons": Counter(),
            },
        )
        shape["waiting"] += kind.waiting
        shape["slots"] += kind.waiting * needs.slots
        shape["resources"].update(
            {name: kind.waiting * amount / 1000 for name, amount in whole_of(needs.amounts).items()}
        )
        shape["reasons"][reason_class(kind.why)] += kind.waiting
    return sorted(shapes.values(), key=lambda shape: (-shape["slots"], shape["needs"]))
