"""The rule on taints: a task tolerates each taint of its node (model/taints.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ...model.needs import TAINT_LABEL, Resources
from ...model.taints import taints_of, tolerate_text, tolerated
from .rule import Rule

if TYPE_CHECKING:
    from ..columns import Columns, Mask


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
