"""The rule that protects devices: their node takes only tasks that ask for some of them.

A node may share its devices; then it takes all tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ...model.devices import asks_any, indexes_of
from ...model.needs import SHARED_LABEL, Resources
from .rule import Rule

if TYPE_CHECKING:
    from ..columns import Columns, Mask


class ProtectionRule(Rule):
    """A task asks for some of the devices of a node that has devices and does not share them."""

    name: ClassVar[str] = "protection"
    reads: ClassVar[str] = (
        "NAME=AMOUNT of the needs, NAME@INDEX=AMOUNT and the label parsync.devices of the offer"
    )
    lua: ClassVar[str] = "protection_fits"

    def concerns(self, needs: Resources) -> bool:
        """Return True: only nodes tell whether they are protected."""
        return True

    def admits(self, offer: Resources, needs: Resources) -> bool:
        """Return whether the node keeps no devices, or has devices that the task asks for."""
        kinds = protected_kinds(offer)
        return not kinds or asks_any(kinds, needs.amounts)

    def mask(self, columns: Columns, needs: Resources) -> Mask:
        """Return which nodes have no devices, share them, or have some that the task asks for."""
        mask = ~columns.protected
        for kind in columns.devices if columns.protects else ():
            if asks_any([kind], needs.amounts):
                mask = mask | columns.devices[kind]
        return mask

    def lacking(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Say that the node keeps its devices for tasks that ask for them."""
        if self.admits(offer, needs):
            return []
        return [
            "shared devices: it takes only tasks that ask for its "
            f"{' or '.join(protected_kinds(offer))}"
        ]

    def nowhere(self, needs: Resources, offers: Mapping[str, Resources]) -> Sequence[str]:
        """Say that every node keeps its devices for tasks that ask for them."""
        if any(self.admits(offer, needs) for offer in offers.values()):
            return []
        kinds = sorted({kind for offer in offers.values() for kind in protected_kinds(offer)})
        return [
            f"every node has devices ({', '.join(kinds)}) and takes only tasks that ask for some "
            "of them: "
            "start a worker with --parsync-shared-devices, or one without devices"
        ]


def protected_kinds(offer: Resources) -> list[str]:
    """Return the kinds of devices that a node keeps for tasks that ask for them."""
    if "@" not in offer.text or SHARED_LABEL in offer.labels:
        return []
    return sorted(indexes_of(dict(offer.amounts)))
