"""The rules on capacity: enough slots, and enough of each resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ...model.amount import amount_text
from ...model.apart import undeclared
from ...model.needs import Resources
from .rule import Rule, there_are

if TYPE_CHECKING:
    from ..columns import Columns, Mask


class SlotsRule(Rule):
    """A node has at least the slots that a task holds."""

    name: ClassVar[str] = "slots"
    reads: ClassVar[str] = "slots= of both"
    lua: ClassVar[str] = "amounts_fit"

    def concerns(self, needs: Resources) -> bool:
        """Return whether the task holds more than one slot, which every node has."""
        return needs.slots > 1

    def admits(self, offer: Resources, needs: Resources) -> bool:
        """Return whether the node has enough slots."""
        return offer.slots >= needs.slots

    def mask(self, columns: Columns, needs: Resources) -> Mask:
        """Return which nodes have enough slots."""
        mask: Mask = columns.slots >= needs.slots
        return mask

    def lacking(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Return the slots that are too few."""
        return [] if self.admits(offer, needs) else [f"slots={needs.slots} (has {offer.slots})"]

    def nowhere(self, needs: Resources, offers: Mapping[str, Resources]) -> Sequence[str]:
        """Name the node with the most slots if it has too few."""
        largest = max(sorted(offers), key=lambda node: offers[node].slots)
        if self.admits(offers[largest], needs):
            return []
        return [f"task needs slots={needs.slots}; the largest node has {offers[largest].slots} ({largest})"]


class AmountsRule(Rule):
    """A node declares at least the amount of each resource that a task holds."""

    name: ClassVar[str] = "resources"
    reads: ClassVar[str] = "NAME=AMOUNT of both"
    lua: ClassVar[str] = "amounts_fit"

    def concerns(self, needs: Resources) -> bool:
        """Return whether the task holds amounts."""
        return bool(needs.amounts)

    def admits(self, offer: Resources, needs: Resources) -> bool:
        """Return whether the node declares enough of each resource."""
        offered = dict(offer.amounts)
        return all(offered.get(name, undeclared(name)) >= amount for name, amount in needs.amounts)

    def mask(self, columns: Columns, needs: Resources) -> Mask:
        """Return which nodes declare enough of each resource."""
        mask = columns.everyone()
        for name, amount in needs.amounts:
            enough = amount <= undeclared(name)
            mask = mask & (columns.amounts[name] >= amount if name in columns.amounts else enough)
        return mask

    def lacking(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Return each resource that is too little."""
        has = dict(offer.amounts)
        return [
            f"{name}={amount_text(amount)} (has {amount_text(has.get(name, 0))})"
            for name, amount in needs.amounts
            if amount > has.get(name, undeclared(name))
        ]

    def nowhere(self, needs: Resources, offers: Mapping[str, Resources]) -> Sequence[str]:
        """Name each resource of which no node has enough, with the most that there is."""
        reasons = []
        for name, amount in needs.amounts:
            if amount <= undeclared(name):
                continue
            asked = f"task needs {name}={amount_text(amount)}"
            most = {node: dict(offer.amounts).get(name, 0) for node, offer in sorted(offers.items())}
            largest = max(most, key=lambda node: most[node])
            if not any(name in dict(offer.amounts) for offer in offers.values()):
                known = sorted({known for offer in offers.values() for known, _ in offer.amounts})
                reasons.append(f"{asked}; no node declares {name}; {there_are('resources', known)}")
            elif amount > most[largest]:
                reasons.append(f"{asked}; the most is {amount_text(most[largest])} ({largest})")
        return reasons
