"""The rule that protects a node's devices, and the shortages of devices.

model/devices.py says which tasks devices can hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ...model.amount import THOUSANDTHS, shown_amount
from ...model.devices import asks_any, attributes_of, by_kind, hold, indexes_of, share_of
from ...model.human import needs_shown
from ...model.needs import SHARED_LABEL, Resources, amounts_text
from .rule import Rule, there_are

if TYPE_CHECKING:
    from ..columns import Columns, Mask


Amounts = Sequence[tuple[str, int]]


def split(needs: Resources, offer: Resources) -> tuple[Amounts, dict[str, list[tuple[str, int]]]]:
    """Return what a task asks of a node itself, and by kind what it asks of the devices."""
    if "@" not in offer.text:
        return needs.amounts, {}
    devices = indexes_of(dict(offer.amounts))
    amounts_by_kind = by_kind(needs.amounts)
    plain = [
        pair for kind, amounts in amounts_by_kind.items() if kind not in devices for pair in amounts
    ]
    return plain, {kind: amounts for kind, amounts in amounts_by_kind.items() if kind in devices}


def lack(kind: str, amounts: Amounts, offered: Mapping[str, int]) -> str:
    """Return what the devices of an empty node lack, as 'gpu=4 (has 2)'; '' if they have enough."""
    if hold(offered, amounts) is not None:
        return ""
    share_and_count = share_of(kind, amounts)
    indexes = indexes_of(offered)[kind]
    if share_and_count is None:
        return (
            f"{kind}={shown_amount(dict(amounts)[kind])} (has devices, which are given whole, or a "
            "share of one below 1)"
        )
    if share_and_count[1] > len(indexes):
        return f"{kind}={share_and_count[1]} (has {len(indexes)})"
    for name, amount in attributes_of(kind, amounts):
        most = max(offered.get(f"{name}@{index}", 0) for index in indexes)
        if most < amount:
            return f"{name}={shown_amount(amount)} (has devices of {shown_amount(most)} at most)"
    return f"{needs_shown(amounts_text(amounts))} (has fewer such devices)"


def nowhere(kind: str, needed: Amounts, offers: Mapping[str, Resources]) -> str:
    """Return why no node's devices of a kind are enough, with the most there is.

    Returns '' if some node's devices are enough.
    """
    amounts = {node: dict(offer.amounts) for node, offer in sorted(offers.items())}
    if any(hold(offered, needed) is not None for offered in amounts.values()):
        return ""
    having = {node: offered for node, offered in amounts.items() if kind in indexes_of(offered)}
    share_and_count = share_of(kind, needed)
    text = f"task needs {needs_shown(amounts_text(needed))}"
    if share_and_count is None:
        return f"{text}; devices are given whole, or a share of one below 1"
    _, count = share_and_count
    sizes = {
        node: len(indexes_of(a).get(kind, ())) or a.get(kind, 0) // THOUSANDTHS
        for node, a in amounts.items()
    }
    largest = max(sizes, key=lambda node: sizes[node])
    if count > sizes[largest]:
        return f"{text}; the most is {sizes[largest]} ({largest})"
    for name, amount in attributes_of(kind, needed):
        most = {
            node: max(offered.get(f"{name}@{index}", 0) for index in indexes_of(offered)[kind])
            for node, offered in having.items()
        }
        best = max(most, key=lambda node: most[node])
        resources = {device.partition("@")[0] for offered in having.values() for device in offered}
        if name not in resources:
            attributes = sorted(
                resource for resource in resources if resource.startswith(f"{kind}.")
            )
            return (
                f"{text}; no {kind} has a {name}; {there_are('resources of devices', attributes)}"
            )
        if most[best] < amount:
            return f"{text}; no device has more {name} than {shown_amount(most[best])} ({best})"
    return f"{text}; no node has {count} such device{'s' if count > 1 else ''}"


def shortage(kind: str, amounts: Amounts) -> str:
    """Return how much a task needs of devices that are not free now."""
    share, count = share_of(kind, amounts) or (0, 0)
    whole_devices = "a whole device" if count == 1 else f"{count} whole devices"
    where = whole_devices if share == THOUSANDTHS else "on one device"
    return f"{needs_shown(amounts_text(amounts))}, {where}"


def what_is_left(kind: str, amounts: Amounts, amounts_left: Mapping[str, int]) -> str:
    """Return how much a node's devices have left, for a task that gets none.

    The text names the freest device.
    """
    share, count = share_of(kind, amounts) or (0, 0)
    shares = {index: amounts_left[f"{kind}@{index}"] for index in indexes_of(amounts_left)[kind]}
    usable = [index for index, has in shares.items() if has >= share]
    if share == THOUSANDTHS and len(usable) < count:
        return f"{len(usable)} of {len(shares)} {kind} devices are free"
    if not usable:
        return (
            _freest(kind, kind, kind, share, shares)
            if dict(amounts).get(kind)
            else f"each {kind} is held whole"
        )
    for name, amount in attributes_of(kind, amounts):
        has = {index: amounts_left.get(f"{name}@{index}", 0) for index in usable}
        if max(has.values()) < amount:
            candidates = kind if len(usable) == len(shares) else f"{kind} that is free enough"
            return _freest(candidates, kind, name, amount, has)
    count_fitting = fitting(kind, amounts, amounts_left)
    return f"{count_fitting} of {len(shares)} {kind} devices have all of it left"


def _freest(
    candidates: str, kind: str, name: str, amount: int, amounts_left: Mapping[int, int]
) -> str:
    """Return that no candidate has so much left, and which device has most."""
    best = max(amounts_left, key=lambda index: amounts_left[index])
    return (
        f"no {candidates} has {name}={shown_amount(amount)} left; the freest, {kind} {best}, has "
        f"{shown_amount(amounts_left[best])}"
    )


def fitting(kind: str, amounts: Amounts, amounts_left: Mapping[str, int]) -> int:
    """Return how many devices have enough left to be among those that the task gets."""
    share, _ = share_of(kind, amounts) or (0, 0)
    attributes = attributes_of(kind, amounts)
    return sum(
        amounts_left[f"{kind}@{index}"] >= share
        and all(amounts_left.get(f"{name}@{index}", 0) >= a for name, a in attributes)
        for index in indexes_of(amounts_left)[kind]
    )


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
            "of them: start a worker with --parsync-shared-devices, or one without devices"
        ]


def protected_kinds(offer: Resources) -> list[str]:
    """Return the kinds of devices that a node keeps for tasks that ask for them."""
    if "@" not in offer.text or SHARED_LABEL in offer.labels:
        return []
    return sorted(indexes_of(dict(offer.amounts)))
