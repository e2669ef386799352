"""The capacity of a node: what it can give now, at most what it offers.

    slots=6 mem=12GiB                  what a source says
    slots=6,mem=12884901888            in the node's record: only amounts below those of the offer
    slots=6,mem=12884901888?           the same, and the source fails: its last text stands

A node that can give what it offers has no capacity in its record.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import InvalidInput
from .amount import THOUSANDTHS, amount_text, exact_text, parse_amount, read_amount
from .devices import indexes_of, kind_of
from .ids import shown
from .limits import MAX_SLOTS, MAX_WORDS
from .needs import Resources

SLOTS: Final = "slots"
FAILS: Final = "?"
"""The last character of a capacity whose source fails."""

_SOURCE_WORD: Final = re.compile(r"([a-z][a-z0-9_.@]{0,70})=([^=,?]{1,40})")


def read_capacity(text: str) -> dict[str, int]:
    """Read the text of a source: {name: thousandths}, with the slots; raises InvalidInput."""
    words = text.split()
    amounts: dict[str, int] = {}
    if not 0 < len(words) <= MAX_WORDS:
        raise InvalidInput(
            f"a capacity of {len(words)} words is not valid: it must be like 'slots=6 mem=12GiB'"
        )
    for word in words:
        match = _SOURCE_WORD.fullmatch(word)
        if match is None or match[1] in amounts:
            raise InvalidInput(
                f"the word {shown(word)} of the capacity is not valid: it must be NAME=AMOUNT, and "
                "each name may come once"
            )
        amounts[match[1]] = parse_amount(match[1], match[2])
    slots = amounts.get(SLOTS, 0)
    if slots % THOUSANDTHS or slots > MAX_SLOTS * THOUSANDTHS:
        raise InvalidInput(
            f"slots={amount_text(slots)} in the capacity is not valid: it must be a whole number "
            f"from 0 to {MAX_SLOTS:,}"
        )
    return amounts


def capacity_of(offer: Resources, amounts: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return the capacity of a node as its record has it, and the names that are cut.

    amounts: what a source says. Amounts of which the node offers less, or nothing, are cut to the
        offer. The devices with the lowest indexes give an amount of their kind; each device gives
        an amount of an attribute (gpu.mem).
    """
    offered = {SLOTS: offer.slots * THOUSANDTHS, **dict(offer.amounts)}
    devices = indexes_of(dict(offer.amounts))
    limits: dict[str, int] = {}
    cut = []
    # single devices first, so that the amount of a kind goes by what they give
    for name, amount in sorted(amounts.items(), key=lambda item: "@" not in item[0]):
        indexes = () if "@" in name else devices.get(kind_of(name), ())
        parts = [f"{name}@{index}" for index in indexes] or [name]
        is_of_each = "." in name
        remaining = amount
        for part in parts:
            limits[part] = min(remaining, offered.get(part, 0), limits.get(part, remaining))
            remaining -= 0 if is_of_each else limits[part]
        offers = [offered.get(part, 0) for part in parts]
        if amount > (max(offers) if is_of_each else sum(offers)):
            cut.append(name)
    words = [
        f"{name}={amount_text(amount)}"
        for name, amount in sorted(limits.items(), key=lambda item: (item[0] != SLOTS, item[0]))
        if amount < offered.get(name, 0)
    ]
    return ",".join(words), cut


def limits_of(capacity: str) -> dict[str, int]:
    """Return the amounts of a capacity of a record, in thousandths, with the slots."""
    words = capacity.removesuffix(FAILS).split(",") if capacity.removesuffix(FAILS) else []
    pairs = (word.partition("=") for word in words)
    return {name: read_amount(amount) for name, _, amount in pairs}


def limits_slots(capacity: str) -> bool:
    """Return whether a capacity of a record has fewer slots than the offer."""
    return SLOTS in limits_of(capacity)


def slots_given(offer: Resources, capacity: str) -> int:
    """Return how many slots a node can give now."""
    slots = limits_of(capacity).get(SLOTS)
    return offer.slots if slots is None else min(offer.slots, slots // THOUSANDTHS)


def amounts_given(offer: Resources, capacity: str) -> Iterable[tuple[str, int]]:
    """Return the amounts that an empty node can give now, without the slots."""
    limits = limits_of(capacity)
    limits.pop(SLOTS, None)
    return (dict(offer.amounts) | limits).items()


def given_by(offer: Resources, capacity: str) -> Resources:
    """Return the offer with the slots, 0 perhaps, and the amounts that the node can give now."""
    if not limits_of(capacity):
        return offer
    return Resources.made(
        slots_given(offer, capacity), amounts_given(offer, capacity), offer.labels
    )


def source_fails(capacity: str) -> bool:
    """Return whether the source of a capacity of a record fails."""
    return capacity.endswith(FAILS)


def capacity_shown(offer: Resources, capacity: str) -> str:
    """Return what a node gives of its offer, for people; '' if it gives all.

    '6 of its 10 slots, mem=12GiB of 64GiB'
    """
    offered = dict(offer.amounts)
    limits = limits_of(capacity)
    slots = limits.pop(SLOTS, None)
    parts = [] if slots is None else [f"{slots // THOUSANDTHS} of its {offer.slots} slots"]
    parts += [
        f"{name}={exact_text(amount)} of {exact_text(offered.get(name, 0))}"
        for name, amount in limits.items()
    ]
    return ", ".join(parts)
