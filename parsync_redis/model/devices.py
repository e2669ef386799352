"""Devices: a resource that a node has as a set of indexed things, each with amounts of its own.

    gpu.mem@0=25769803776 gpu.mem@1=25769803776 gpu@0=1 gpu@1=1      an offer, and what is left
    gpu=0.5 gpu.mem=8589934592                                       needs: half of a device
    gpu.mem@1=8589934592 gpu@1=0.5                                   the place: device 1 is chosen

The name before the point or the at sign is the *kind*. Each device has 1 of its kind, its *share*.
A task asks a share below 1 of one device, or whole devices: 1, 2, ... A task that asks only for
attributes (`gpu.mem`) holds the smallest share, so that nobody gets the whole device beside it.
lua/lib/node/devices.lua does the same; a property test compares them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import InvalidInput
from .amount import THOUSANDTHS, parse_amount
from .apart import APART_PREFIX, undeclared
from .ids import check_name, shown

MAX_INDEX: Final = 999
_KIND: Final = "[a-z][a-z0-9_]{0,31}"
_ATTRIBUTE: Final = r"\.[a-z][a-z0-9_]{0,31}"
_RANGE: Final = re.compile(r"(\d{1,3})-(\d{1,3})")
_INDEX: Final = r"@(?:0|[1-9]\d{0,2})"
PLACE_AMOUNT: Final = f"{_KIND}(?:{_ATTRIBUTE})?(?:{_INDEX})?"
"""The name of an amount in a place, as a regular expression."""

OFFER_AMOUNT: Final = f"{_KIND}(?:{_ATTRIBUTE})?{_INDEX}"
"""The name of an amount of a device in an offer."""

NEEDED_ATTRIBUTE: Final = f"{_KIND}{_ATTRIBUTE}"
"""The name of an attribute of devices in needs."""

Share = tuple[int, int]
"""(share of each device in thousandths, number of devices) that a task needs."""


def kind_of(name: str) -> str:
    """Return the kind of an amount: 'gpu' for 'gpu', 'gpu.mem', 'gpu@0' and 'gpu.mem@0'."""
    return name.partition("@")[0].partition(".")[0]


def by_kind(amounts: Iterable[tuple[str, int]]) -> dict[str, list[tuple[str, int]]]:
    """Return amounts grouped by kind: 'gpu' has the amounts of 'gpu' and 'gpu.mem'."""
    amounts_by_kind: dict[str, list[tuple[str, int]]] = {}
    for name, amount in amounts:
        amounts_by_kind.setdefault(kind_of(name), []).append((name, amount))
    return amounts_by_kind


def fold(amounts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return a node's amounts, summed over its devices: 'gpu' is the sum of 'gpu@0' and 'gpu@1'."""
    totals: dict[str, float] = {}
    for name, amount in amounts:
        bare = name.partition("@")[0]
        totals[bare] = totals.get(bare, 0) + amount
    return totals


def whole_of(needed: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the total amounts of a task: an attribute counts once for each of its devices."""
    amounts = list(needed)
    counts = {
        name: share_of(kind_of(name), amounts) or (0, 1) for name, _ in amounts if "." in name
    }
    return {name: amount * counts.get(name, (0, 1))[1] for name, amount in amounts}


def indexes_of(amounts: Iterable[str]) -> dict[str, list[int]]:
    """Return {kind: sorted device indexes} for the names of an offer's or node's amounts."""
    indexes_by_kind: dict[str, list[int]] = {}
    for name in amounts:
        kind, separator, index = name.partition("@")
        if separator and "." not in kind:
            indexes_by_kind.setdefault(kind, []).append(int(index))
    return {kind: sorted(indexes) for kind, indexes in indexes_by_kind.items()}


def attributes_of(kind: str, needed: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the attributes that a task needs of each device of a kind: [('gpu.mem', 8 GiB)]."""
    return sorted(
        (name, amount) for name, amount in needed if amount > 0 and name.startswith(f"{kind}.")
    )


def share_of(kind: str, needed: Iterable[tuple[str, int]]) -> Share | None:
    """Return the share of a device, in thousandths, and the number of devices that a task needs.

    0.5 gpu is (500, 1), 2 gpu is (1000, 2). (0, 0) if the task needs no device of the kind. None
    for an amount that whole devices cannot give, such as 1.5.
    """
    amounts = list(needed)
    share = dict(amounts).get(kind, 0)
    if share < THOUSANDTHS:
        return (max(share, 1), 1) if share or attributes_of(kind, amounts) else (0, 0)
    return None if share % THOUSANDTHS else (THOUSANDTHS, share // THOUSANDTHS)


def asks_any(kinds: Iterable[str], needed: Iterable[tuple[str, int]]) -> bool:
    """Return whether a task asks for a device of one of these kinds."""
    amounts = list(needed)
    return any(share_of(kind, amounts) != (0, 0) for kind in kinds)


def hold(free: Mapping[str, int], needed: Iterable[tuple[str, int]]) -> dict[str, int] | None:
    """Return the amounts that a task would hold on a node; None if too little is free.

    free: the node's free amounts.
    needed: the amounts that the task needs. The returned amounts name devices: the fullest devices
        that have enough.
    """
    amounts = dict(needed)
    if all(free.get(name, undeclared(name)) >= amount for name, amount in amounts.items()):
        return amounts
    devices = indexes_of(free)
    held_amounts = {
        name: amount for name, amount in amounts.items() if kind_of(name) not in devices
    }
    if any(free.get(name, undeclared(name)) < amount for name, amount in held_amounts.items()):
        return None
    for kind in dict.fromkeys(map(kind_of, amounts)):
        if kind in devices:
            chosen = _choose(free, kind, amounts, devices[kind])
            if chosen is None:
                return None
            held_amounts |= chosen
    return held_amounts


def _choose(
    free: Mapping[str, int], kind: str, needed: Mapping[str, int], indexes: Iterable[int]
) -> dict[str, int] | None:
    share_and_count = share_of(kind, needed.items())
    if share_and_count is None:
        return None
    (share, count) = share_and_count
    amounts = [(kind, share), *attributes_of(kind, needed.items())]
    fitting = []
    for index in indexes if count else ():
        free_amounts = [free.get(f"{name}@{index}", 0) for name, _ in amounts]
        pairs = zip(free_amounts, amounts, strict=True)
        if all(free_amount >= amount for free_amount, (_, amount) in pairs):
            fitting.append((*free_amounts, index))
    if len(fitting) < count:
        return None
    chosen = [index for *_, index in sorted(fitting)[:count]]
    return {f"{name}@{index}": amount for index in chosen for name, amount in amounts}


def read_devices(amounts: str) -> dict[str, list[int]]:
    """Return a place's devices: {'gpu': [1]} for 'gpu.mem@1=8589934592 gpu@1=0.5'."""
    return indexes_of(word.partition("=")[0] for word in amounts.split()) if "@" in amounts else {}


def read_indexes(flag: str, words: Iterable[str]) -> dict[str, list[str]]:
    """Read device indexes such as 'gpu=0,1' or 'gpu=0-7'; raises InvalidInput.

    words: the texts of the flag; a text may also have been split at its commas.
    """
    indexes_by_kind: dict[str, list[str]] = {}
    kind = ""
    for word in ",".join(words).split(","):
        name, equals, value = word.strip().rpartition("=")
        kind = name if equals else kind
        if not kind:
            raise InvalidInput(
                f"{flag} {shown(word)} is not valid: it must be KIND=INDEXES, gpu=0,1 or gpu=0-7, "
                "or none"
            )
        first_last = _RANGE.fullmatch(value)
        if first_last and int(first_last[1]) <= int(first_last[2]):
            indexes_by_kind.setdefault(kind, []).extend(
                map(str, range(int(first_last[1]), int(first_last[2]) + 1))
            )
        else:
            indexes_by_kind.setdefault(kind, []).append(value)
    return indexes_by_kind


def device_amounts(
    devices: Mapping[str, Iterable[object]], resources: Mapping[str, object] | None = None
) -> dict[str, int]:
    """Return the amounts of an offer with these devices; raises InvalidInput.

    devices: {kind: indexes}.
    resources: {'KIND.NAME' (gpu.mem): amount of each device of the kind, or 'KIND.NAME@INDEX':
        amount of one device}.
    """
    indexes_by_kind = {
        check_name("device name", kind): [_index(kind, number) for number in numbers]
        for kind, numbers in devices.items()
    }
    if "slots" in indexes_by_kind:
        raise InvalidInput("device name 'slots' is taken: use slots=N")
    if reserved := sorted(kind for kind in indexes_by_kind if kind.startswith(APART_PREFIX)):
        raise InvalidInput(
            f"device name {shown(reserved[0])} is reserved: names of devices do not begin with "
            f"{APART_PREFIX}"
        )
    for kind, indexes in indexes_by_kind.items():
        if not indexes or len({*indexes}) < len(indexes):
            raise InvalidInput(
                f"device {kind} is not valid: it must have at least one index, and each once"
            )
    amounts = {
        f"{kind}@{index}": THOUSANDTHS
        for kind, indexes in indexes_by_kind.items()
        for index in indexes
    }
    for name, amount in sorted((resources or {}).items()):
        bare, separator, index = name.partition("@")
        kind, _, attribute = bare.partition(".")
        if kind not in indexes_by_kind:
            have = (
                f"its devices are {', '.join(sorted(indexes_by_kind))}"
                if indexes_by_kind
                else "it has no devices"
            )
            raise InvalidInput(
                f"device resource {shown(name)} is not valid: the node has no device {kind!r}; "
                f"{have}"
            )
        check_name("resource name", attribute)
        if separator and (not index.isdecimal() or int(index) not in indexes_by_kind[kind]):
            raise InvalidInput(
                f"device resource {shown(name)} is not valid: device {kind} has no index "
                f"{shown(index)}"
            )
        for number in [int(index)] if separator else indexes_by_kind[kind]:
            amounts[f"{bare}@{number}"] = parse_amount(name, amount)
    return amounts


def _index(kind: str, value: object) -> int:
    text = str(value)
    if not (
        text.isascii() and text.isdecimal() and str(int(text)) == text and int(text) <= MAX_INDEX
    ):
        raise InvalidInput(
            f"index {shown(value)} of device {kind} is not valid: it must be a number from 0 to "
            f"{MAX_INDEX}"
        )
    return int(text)
