"""The rules on capacity: enough slots, and enough of each resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ...model.amount import shown_amount
from ...model.apart import undeclared
from ...model.devices import by_kind, hold, indexes_of
from ...model.needs import Resources
from .devices import lack, nowhere, split
from .rule import Rule, there_are

if TYPE_CHECKING:
    from ..columns import Columns, Mask


class SlotsRule(Rule):
    """A node has at least the slots that a task holds."""

    name: ClassVar[str] = "slots"
    reads: ClassVar[str] = "slots= of both"
    lua: ClassVar[str] = "amounts_fit"

    def concerns(self, needs: Resources) -> bool:
        """Return whether the task holds several slots; every node has at least one."""
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
        return [
            f"task needs slots={needs.slots}; the largest node has {offers[largest].slots} "
            f"({largest})"
        ]


class AmountsRule(Rule):
    """A node has at least the amount of each resource that a task holds.

    Of devices, single ones must have enough.
    """

    name: ClassVar[str] = "resources"
    reads: ClassVar[str] = "NAME=AMOUNT of both, NAME@INDEX=AMOUNT of the offer"
    lua: ClassVar[str] = "amounts_fit"

    def concerns(self, needs: Resources) -> bool:
        """Return whether the task holds amounts."""
        return bool(needs.amounts)

    def admits(self, offer: Resources, needs: Resources) -> bool:
        """Return whether the node has enough of each resource."""
        return hold(dict(offer.amounts), needs.amounts) is not None

    def mask(self, columns: Columns, needs: Resources) -> Mask:
        """Return which nodes have enough of each resource."""
        mask = columns.everyone()
        for kind, amounts in by_kind(needs.amounts).items():
            enough_of_kind = columns.everyone()
            for name, amount in amounts:
                enough = amount <= undeclared(name)
                enough_of_kind = enough_of_kind & (
                    columns.amounts[name] >= amount if name in columns.amounts else enough
                )
            mask = mask & (
                columns.have_devices(kind, amounts, enough_of_kind)
                if kind in columns.devices
                else enough_of_kind
            )
        return mask

    def lacking(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Return each resource of which the node has too little, with the amount that it has."""
        has = dict(offer.amounts)
        (plain, of_devices) = split(needs, offer)
        lacks = [
            f"{name}={shown_amount(amount)} (has {shown_amount(has.get(name, 0))})"
            for name, amount in plain
            if amount > has.get(name, undeclared(name))
        ]
        return [
            *lacks,
            *filter(None, (lack(kind, amounts, has) for kind, amounts in of_devices.items())),
        ]

    def nowhere(self, needs: Resources, offers: Mapping[str, Resources]) -> Sequence[str]:
        """Name each resource of which no node has enough, with the most that there is."""
        devices = {kind for offer in offers.values() for kind in indexes_of(dict(offer.amounts))}
        reasons = []
        for kind, amounts in by_kind(needs.amounts).items():
            reasons += (
                [nowhere(kind, amounts, offers)]
                if kind in devices
                else [_too_much(*pair, offers) for pair in amounts]
            )
        return [reason for reason in reasons if reason]


def _too_much(name: str, amount: int, offers: Mapping[str, Resources]) -> str:
    """Return why no node has enough of a resource that is no kind of devices.

    Returns '' if some node has enough.
    """
    most = {node: dict(offer.amounts).get(name, 0) for node, offer in sorted(offers.items())}
    largest = max(most, key=lambda node: most[node])
    if amount <= max(most[largest], undeclared(name)):
        return ""
    need = f"task needs {name}={shown_amount(amount)}"
    if not any(name in dict(offer.amounts) for offer in offers.values()):
        names_of_resources = sorted(
            {
                resource.partition("@")[0]
                for offer in offers.values()
                for resource, _ in offer.amounts
            }
        )
        return f"{need}; no node declares {name}; {there_are('resources', names_of_resources)}"
    return f"{need}; the most is {shown_amount(most[largest])} ({largest})"
