"""The demand for machines: waiting tasks that one could hold, and slots held on those there are.

Pure.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..model.devices import fold, whole_of
from ..model.needs import (
    QUEUE_LABEL,
    RESERVED_PREFIX,
    TAINT_LABEL,
    Resources,
    are_needs,
    parse_needs,
)
from ..model.taints import offered_taints
from ..model.views import KindView, NodeView
from ..placement.fits import fits
from ..placement.reasons import reason_class
from ..placement.rules.labels import LabelsRule
from .survey import Survey

SHOWN: Final = 100
"""Shapes in an answer, those that want most slots; the sums are of all."""

RULE: Final = LabelsRule()
ANY_NAME: Final = re.compile("")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that could be added.

    offer: of a node on it, or None if the query does not describe it.

    require: conditions on labels, as needs; only tasks that have them all count. name: a pattern of
    the tasks' names.
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
        """Return the machine that a request describes, slots 0 if it describes none; raises
        InvalidInput.

        devices, of_devices, shared: as `Resources.of` takes them.
        """
        wanted = Resources.needed(1, None, require)
        if not slots:
            return cls(None, wanted, name)
        values = {key: value.split(",") for key, value in labels.items()}
        offer = Resources.of(
            slots, resources, values, offered_taints(taints), devices, of_devices, shared
        )
        return cls(offer, wanted, name)

    def could_hold(self, kind: KindView) -> bool:
        """Return whether the machine could hold a task of a kind; its worker is taken to know name
        and queue.
        """
        if not are_needs(kind.needs) or not self.name.match(kind.name):
            return False
        needs = parse_needs(kind.needs)
        if not {*self.require.labels} <= {*needs.labels}:
            return False
        return self.offer is None or fits(self.offer, _of_machine(needs))

    def is_like(self, node: NodeView) -> bool:
        """Return whether a node is on such a machine, as far as its labels, taints and kinds of
        resources tell.
        """
        labels = [
            (name, value) for name, values in node.labels.items() for value in values.split(",")
        ]
        if node.state == "down" or not RULE.admits(Resources(labels=tuple(labels)), self.require):
            return False
        if self.offer is None:
            return True
        asked = {label for label in self.offer.labels if label[0] != TAINT_LABEL}
        taints = {value for name, value in self.offer.labels if name == TAINT_LABEL}
        kinds = {*fold(self.offer.amounts)} <= {*fold(node.resources.items())}
        return asked <= {*labels} and taints == {*node.taints} and kinds


def _of_machine(needs: Resources) -> Resources:
    """Return needs without what a machine does not decide: queues, and the node of another task."""
    labels = [
        (n, v)
        for n, v in needs.labels
        if n == TAINT_LABEL or not (n == QUEUE_LABEL or n.startswith(RESERVED_PREFIX))
    ]
    return Resources.made(needs.slots, needs.amounts, labels)


def measure_demand(survey: Survey, machine: Machine) -> dict[str, Any]:
    """Return the tasks that wait for such a machine, and the slots held on those there are, in all
    and by shape.
    """
    kinds = [kind for kind in survey.kinds if machine.could_hold(kind)]
    nodes = [node for node in survey.nodes if machine.is_like(node)]
    shapes = _shapes(kinds)
    waiting = Counter[str]()
    held = Counter[str]()
    for shape in shapes:
        waiting.update({"slots": shape["slots"], **shape["resources"]})
    for node in nodes:
        held.update({"slots": node.held})
        left = fold(node.left.items())
        held.update(
            {
                name: amount - left.get(name, 0)
                for name, amount in fold(node.resources.items()).items()
            }
        )
    offer = machine.offer
    return {
        "waiting_tasks": sum(kind.waiting for kind in kinds),
        "waiting_slots": waiting["slots"],
        "held_slots": held["slots"],
        "wanted_slots": waiting["slots"] + held["slots"],
        "nodes": len(nodes),
        "machines": _machines(offer, waiting + held) if offer else None,
        "shapes": shapes[:SHOWN],
    }


def _machines(offer: Resources, wanted: Mapping[str, float]) -> int:
    """Return the least number of machines that have so much in all: tasks that do not share one
    well may need more.
    """
    sizes = {
        "slots": float(offer.slots),
        **{name: amount / 1000 for name, amount in fold(offer.amounts).items()},
    }
    return max(
        math.ceil(round(wanted.get(name, 0) / size, 9)) for name, size in sizes.items() if size
    )


def _shapes(kinds: Iterable[KindView]) -> list[dict[str, Any]]:
    """Return what waits by needs, that which wants most slots first."""
    found: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        needs = parse_needs(kind.needs)
        shape = found.setdefault(
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
    return sorted(found.values(), key=lambda shape: (-shape["slots"], shape["needs"]))
