"""The rules on labels: a node meets each condition of a task, which tolerates its taints.

A taint is a reserved label (model/taints.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote

from ...model.condition import describe, holds
from ...model.needs import QUEUE_LABEL, RESERVED, RESERVED_PREFIX, TAINT_LABEL, Resources, queues_of
from ...model.taints import taints_of, tolerate_text, tolerated
from .rule import Rule, there_are

if TYPE_CHECKING:
    from ..columns import Columns, Mask


class LabelsRule(Rule):
    """A node meets all conditions on labels (model/condition.py).

    Labels `parsync.NAME` have rules of their own.
    """

    name: ClassVar[str] = "labels"
    reads: ClassVar[str] = "NAME:CONDITION of the needs, NAME:VALUE of the offer"
    lua: ClassVar[str] = "labels_fit"

    def concerns(self, needs: Resources) -> bool:
        """Return whether the task has conditions."""
        return bool(_conditions(needs))

    def admits(self, offer: Resources, needs: Resources) -> bool:
        """Return whether the node meets all conditions."""
        return _meets(offer, _conditions(needs))

    def mask(self, columns: Columns, needs: Resources) -> Mask:
        """Return which nodes meet all conditions."""
        mask = columns.everyone()
        for name, condition in _conditions(needs):
            mask = mask & columns.judge_label(name, condition, partial(holds, condition))
        return mask

    def lacking(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Return each condition that the node does not meet."""
        return [_lack(*label) for label in _conditions(needs) if not _meets(offer, [label])]

    def nowhere(self, needs: Resources, offers: Mapping[str, Resources]) -> Sequence[str]:
        """Name each condition that no node meets, and the values or the labels that there are."""
        sentences = []
        for name, condition in _conditions(needs):
            if not any(_meets(offer, [(name, condition)]) for offer in offers.values()):
                sentences.append(_nowhere(name, condition, offers))
        return sentences


def _conditions(needs: Resources) -> Sequence[tuple[str, str]]:
    """Return the task's conditions without those that other rules judge."""
    return [label for label in needs.labels if not label[0].startswith(RESERVED_PREFIX)]


def _meets(offer: Resources, conditions: Iterable[tuple[str, str]]) -> bool:
    """Return whether an offer meets all of these conditions."""
    values: dict[str, list[str]] = {}
    for name, value in offer.labels:
        values.setdefault(name, []).append(value)
    return all(holds(condition, values.get(name, ())) for name, condition in conditions)


def _lack(name: str, condition: str) -> str:
    """Return what a node lacks that does not meet a condition."""
    if name == QUEUE_LABEL:
        return f"queue {unquote(condition)}"
    if condition == "!*":
        return f"the absence of label {name}"
    if condition.startswith("!"):
        return f"a {name} other than {', '.join(sorted(condition[1:].split('|')))}"
    return describe(name, condition)


def _nowhere(name: str, condition: str, offers: Mapping[str, Resources]) -> str:
    """Return that no node meets a condition, and the values or labels that nodes have."""
    if name == QUEUE_LABEL:
        queues = sorted({queue for offer in offers.values() for queue in queues_of(offer)})
        return (
            f"no node consumes the queue {unquote(condition)}; nodes consume "
            f"{', '.join(queues) or 'none'}"
        )
    if condition == "!*":
        return f"every node has label {name}"
    labels = {label for offer in offers.values() for label in offer.labels}
    shown_condition = describe(name, condition)
    if shown_condition == f"{name}:{condition}":
        shown_condition = f"label {shown_condition}"
    if values := sorted(v for n, v in labels if n == name):
        return f"no node has {shown_condition}; there are {name}: {', '.join(values)}"
    names = sorted({n for n, _ in labels if not n.startswith(RESERVED)})
    return f"no node has {shown_condition}; {there_are('labels', names)}"


class TaintsRule(Rule):
    """A task tolerates each taint of the node."""

    name: ClassVar[str] = "taints"
    reads: ClassVar[str] = f"{TAINT_LABEL}:NAME of both"
    lua: ClassVar[str] = "taints_fit"

    def concerns(self, needs: Resources) -> bool:
        """Return True: a task that tolerates nothing is what taints turn away."""
        return True

    def admits(self, offer: Resources, needs: Resources) -> bool:
        """Return whether the task tolerates all taints of the node."""
        return not self._missing(needs, offer)

    def mask(self, columns: Columns, needs: Resources) -> Mask:
        """Return which nodes have only taints that the task tolerates."""
        return columns.judge_label(
            TAINT_LABEL, "|".join(sorted(tolerated(needs))), tolerated(needs).issuperset
        )

    def lacking(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Return the taints that the task does not tolerate, and the option that tolerates them."""
        if not (missing := self._missing(needs, offer)):
            return []
        taints = f"taint{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        return [f"the absence of {taints} ({_would_do(needs, missing)})"]

    def nowhere(self, needs: Resources, offers: Mapping[str, Resources]) -> Sequence[str]:
        """Return that every node has a taint, if so, and the option that opens one node."""
        missing = {node: self._missing(needs, offer) for node, offer in sorted(offers.items())}
        if not all(missing.values()):
            return []
        node = min(missing, key=lambda name: len(missing[name]))
        would_do = f"{_would_do(needs, missing[node])} for {node}"
        return [f"every node has a taint that the task does not tolerate; {would_do}"]

    def _missing(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Return the taints of the node that the task does not tolerate."""
        tolerated_taints = tolerated(needs)
        return [taint for taint in taints_of(offer) if taint not in tolerated_taints]


def _would_do(needs: Resources, missing: Sequence[str]) -> str:
    """Return the option that tolerates these taints too, as a sentence."""
    return f"{tolerate_text(sorted({*tolerated(needs), *missing}))} would do"
