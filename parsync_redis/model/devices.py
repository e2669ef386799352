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
from .apart import PREFIX, undeclared
from .ids import check_name, shown

MAX_INDEX: Final = 999
_KIND: Final = "[a-z][a-z0-9_]{0,31}"
_ATTRIBUTE: Final = r"\.[a-z][a-z0-9_]{0,31}"
_RANGE: Final = re.compile(r"(\d{1,3})-(\d{1,3})")
_INDEX: Final = r"@(?:0|[1-9]\d{0,2})"
NAME: Final = f"{_KIND}(?:{_ATTRIBUTE})?(?:{_INDEX})?"
"""The name of an amount in a place, as a regular expression."""

OFFERED: Final = f"{_KIND}(?:{_ATTRIBUTE})?{_INDEX}"
"""The name of an amount of a device in an offer."""

ASKED: Final = f"{_KIND}{_ATTRIBUTE}"
"""The name of an attribute of devices in needs."""

Share = tuple[int, int]
"""The share of each device that a task asks (thousandths), and of how many devices."""


def kind_of(name: str) -> str:
    """Return the kind in the name of an amount: gpu of 'gpu', 'gpu.mem', 'gpu@0' and
    'gpu.mem@0'.
    """
    return name.partition("@")[0].partition(".")[0]


def by_kind(amounts: Iterable[tuple[str, int]]) -> dict[str, list[tuple[str, int]]]:
    """Return amounts by their kind: 'gpu' has those of 'gpu' and 'gpu.mem'."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, amount in amounts:
        found.setdefault(kind_of(name), []).append((name, amount))
    return found


def fold(amounts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the amounts of a node with those of its devices together: 'gpu' has 'gpu@0' and
    'gpu@1'.
    """
    found: dict[str, float] = {}
    for name, amount in amounts:
        bare = name.partition("@")[0]
        found[bare] = found.get(bare, 0) + amount
    return found


def whole_of(asked: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return what a task holds in all: each of its devices has the attributes that it asks for."""
    some = list(asked)
    counts = {name: share_of(kind_of(name), some) or (0, 1) for name, _ in some if "." in name}
    return {name: amount * counts.get(name, (0, 1))[1] for name, amount in some}


def indexes_of(amounts: Iterable[str]) -> dict[str, list[int]]:
    """Return the indexes of the devices of each kind, by the names of an offer's amounts or of what
    is left.
    """
    found: dict[str, list[int]] = {}
    for name in amounts:
        kind, at, index = name.partition("@")
        if at and "." not in kind:
            found.setdefault(kind, []).append(int(index))
    return {kind: sorted(indexes) for kind, indexes in found.items()}


def attributes_of(kind: str, asked: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the attributes that a task asks of each of its devices of a kind, by name: ('gpu.mem',
    8 GiB).
    """
    return sorted(
        (name, amount) for name, amount in asked if amount > 0 and name.startswith(f"{kind}.")
    )


def share_of(kind: str, asked: Iterable[tuple[str, int]]) -> Share | None:
    """Return the share that a task asks of devices of a kind: (0, 0) for none; None for 1.5, which
    no devices make.
    """
    some = list(asked)
    share = dict(some).get(kind, 0)
    if share < THOUSANDTHS:
        return (max(share, 1), 1) if share or attributes_of(kind, some) else (0, 0)
    return None if share % THOUSANDTHS else (THOUSANDTHS, share // THOUSANDTHS)


def asks_any(kinds: Iterable[str], asked: Iterable[tuple[str, int]]) -> bool:
    """Return whether a task asks for a device of one of these kinds."""
    some = list(asked)
    return any(share_of(kind, some) != (0, 0) for kind in kinds)


def hold(left: Mapping[str, int], asked: Iterable[tuple[str, int]]) -> dict[str, int] | None:
    """Return what a task would hold of what a node has left; None if that is too little.

    It is what the task asks, with devices in the place of their kinds: the fullest that still have
    enough.
    """
    wanted = dict(asked)
    if all(left.get(name, undeclared(name)) >= amount for name, amount in wanted.items()):
        return wanted
    devices = indexes_of(left)
    held = {name: amount for name, amount in wanted.items() if kind_of(name) not in devices}
    if any(left.get(name, undeclared(name)) < amount for name, amount in held.items()):
        return None
    for kind in dict.fromkeys(map(kind_of, wanted)):
        if kind in devices:
            chosen = _choose(left, kind, wanted, devices[kind])
            if chosen is None:
                return None
            held |= chosen
    return held


def _choose(
    left: Mapping[str, int], kind: str, asked: Mapping[str, int], indexes: Iterable[int]
) -> dict[str, int] | None:
    found = share_of(kind, asked.items())
    if found is None:
        return None
    (share, count) = found
    attributes = attributes_of(kind, asked.items())
    fitting = []
    for index in indexes if count else ():
        has = [
            left.get(f"{kind}@{index}", 0),
            *(left.get(f"{name}@{index}", 0) for name, _ in attributes),
        ]
        if has[0] >= share and all(
            h >= amount for h, (_, amount) in zip(has[1:], attributes, strict=True)
        ):
            fitting.append((*has, index))
    if len(fitting) < count:
        return None
    chosen = [index for *_, index in sorted(fitting)[:count]]
    return {
        f"{name}@{index}": amount
        for index in chosen
        for name, amount in ((kind, share), *attributes)
    }


def read_devices(asked: str) -> dict[str, list[int]]:
    """Return the devices in the amounts of a place: {'gpu': [1]} of 'gpu.mem@1=8589934592
    gpu@1=0.5'.
    """
    return indexes_of(word.partition("=")[0] for word in asked.split()) if "@" in asked else {}


def read_indexes(flag: str, words: Iterable[str]) -> dict[str, list[str]]:
    """Read 'gpu=0,1' and 'gpu=0-7', also where words were split at the commas; raises
    InvalidInput.
    """
    found: dict[str, list[str]] = {}
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
            found.setdefault(kind, []).extend(
                map(str, range(int(first_last[1]), int(first_last[2]) + 1))
            )
        else:
            found.setdefault(kind, []).append(value)
    return found


def device_amounts(
    devices: Mapping[str, Iterable[object]], resources: Mapping[str, object] | None = None
) -> dict[str, int]:
    """Return the amounts of an offer that has these devices, checked; raises InvalidInput.

    devices: kind -> indexes. resources: amounts of each device, by 'KIND.NAME' ('gpu.mem') or by
    'KIND.NAME@INDEX'.
    """
    known = {
        check_name("device name", kind): [_index(kind, one) for one in some]
        for kind, some in devices.items()
    }
    if "slots" in known:
        raise InvalidInput("device name 'slots' is taken: use slots=N")
    if reserved := sorted(kind for kind in known if kind.startswith(PREFIX)):
        raise InvalidInput(
            f"device name {shown(reserved[0])} is reserved: names of devices do not begin with "
            f"{PREFIX}"
        )
    for kind, indexes in known.items():
        if not indexes or len({*indexes}) < len(indexes):
            raise InvalidInput(
                f"device {kind} is not valid: it must have at least one index, and each once"
            )
    found = {f"{kind}@{index}": THOUSANDTHS for kind, indexes in known.items() for index in indexes}
    for name, amount in sorted((resources or {}).items()):
        bare, at, index = name.partition("@")
        kind, _, attribute = bare.partition(".")
        if kind not in known:
            have = f"its devices are {', '.join(sorted(known))}" if known else "it has no devices"
            raise InvalidInput(
                f"device resource {shown(name)} is not valid: the node has no device {kind!r}; "
                f"{have}"
            )
        check_name("resource name", attribute)
        if at and (not index.isdecimal() or int(index) not in known[kind]):
            raise InvalidInput(
                f"device resource {shown(name)} is not valid: device {kind} has no index "
                f"{shown(index)}"
            )
        for one in [int(index)] if at else known[kind]:
            found[f"{bare}@{one}"] = parse_amount(name, amount)
    return found


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
