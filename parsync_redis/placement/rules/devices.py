"""Say what a node's devices lack for a task. model/devices.py says which tasks devices can hold."""

from collections.abc import Mapping, Sequence

from ...model.amount import THOUSANDTHS, shown_amount
from ...model.devices import attributes_of, by_kind, hold, indexes_of, share_of
from ...model.human import needs_shown
from ...model.needs import Resources, amounts_text
from .rule import there_are

Amounts = Sequence[tuple[str, int]]


def split(needs: Resources, offer: Resources) -> tuple[Amounts, dict[str, list[tuple[str, int]]]]:
    """Return the amounts that a task asks of a node by itself, and by kind those that it asks of
    the node's devices.
    """
    if "@" not in offer.text:
        return needs.amounts, {}
    devices = indexes_of(dict(offer.amounts))
    asked = by_kind(needs.amounts)
    plain = [pair for kind, some in asked.items() if kind not in devices for pair in some]
    return plain, {kind: some for kind, some in asked.items() if kind in devices}


def lack(kind: str, asked: Amounts, offered: Mapping[str, int]) -> str:
    """Return what the devices of an empty node lack, as 'gpu=4 (has 2)'; '' if they have enough."""
    if hold(offered, asked) is not None:
        return ""
    found = share_of(kind, asked)
    indexes = indexes_of(offered)[kind]
    if found is None:
        return (
            f"{kind}={shown_amount(dict(asked)[kind])} (has devices, which are given whole, or a "
            "share of one below 1)"
        )
    if found[1] > len(indexes):
        return f"{kind}={found[1]} (has {len(indexes)})"
    for name, amount in attributes_of(kind, asked):
        most = max(offered.get(f"{name}@{index}", 0) for index in indexes)
        if most < amount:
            return f"{name}={shown_amount(amount)} (has devices of {shown_amount(most)} at most)"
    return f"{needs_shown(amounts_text(asked))} (has fewer such devices)"


def nowhere(kind: str, asked: Amounts, offers: Mapping[str, Resources]) -> str:
    """Say why no node's devices of a kind are enough, with the most that there is; '' if some node
    meets the need.
    """
    amounts = {node: dict(offer.amounts) for node, offer in sorted(offers.items())}
    if any(hold(offered, asked) is not None for offered in amounts.values()):
        return ""
    having = {node: offered for node, offered in amounts.items() if kind in indexes_of(offered)}
    found = share_of(kind, asked)
    text = f"task needs {needs_shown(amounts_text(asked))}"
    if found is None:
        return f"{text}; devices are given whole, or a share of one below 1"
    sizes = {
        node: len(indexes_of(a).get(kind, ())) or a.get(kind, 0) // THOUSANDTHS
        for node, a in amounts.items()
    }
    largest = max(sizes, key=lambda node: sizes[node])
    if found[1] > sizes[largest]:
        return f"{text}; the most is {sizes[largest]} ({largest})"
    for name, amount in attributes_of(kind, asked):
        most = {
            node: max(offered.get(f"{name}@{index}", 0) for index in indexes_of(offered)[kind])
            for node, offered in having.items()
        }
        best = max(most, key=lambda node: most[node])
        known = {device.partition("@")[0] for offered in having.values() for device in offered}
        if name not in known:
            some = sorted(one for one in known if one.startswith(f"{kind}."))
            return f"{text}; no {kind} has a {name}; {there_are('resources of devices', some)}"
        if most[best] < amount:
            return f"{text}; no device has more {name} than {shown_amount(most[best])} ({best})"
    return f"{text}; no node has {found[1]} such device{'s' if found[1] > 1 else ''}"


def shortage(kind: str, asked: Amounts) -> str:
    """Return what a task needs of devices that are not free now."""
    share, count = share_of(kind, asked) or (0, 0)
    what = "a whole device" if count == 1 else f"{count} whole devices"
    return (
        f"{needs_shown(amounts_text(asked))}, {what if share == THOUSANDTHS else 'on one device'}"
    )


def what_is_left(kind: str, asked: Amounts, left: Mapping[str, int]) -> str:
    """Return how much the devices of a node have left, for a task that gets none; it names the
    freest.
    """
    share, count = share_of(kind, asked) or (0, 0)
    shares = {index: left[f"{kind}@{index}"] for index in indexes_of(left)[kind]}
    usable = [index for index, has in shares.items() if has >= share]
    if share == THOUSANDTHS and len(usable) < count:
        return f"{len(usable)} of {len(shares)} {kind} devices are free"
    if not usable:
        return (
            _freest(kind, kind, kind, share, shares)
            if dict(asked).get(kind)
            else f"each {kind} is held whole"
        )
    for name, amount in attributes_of(kind, asked):
        has = {index: left.get(f"{name}@{index}", 0) for index in usable}
        if max(has.values()) < amount:
            which = kind if len(usable) == len(shares) else f"{kind} that is free enough"
            return _freest(which, kind, name, amount, has)
    return f"{fitting(kind, asked, left)} of {len(shares)} {kind} devices have all of it left"


def _freest(which: str, kind: str, name: str, amount: int, left: Mapping[int, int]) -> str:
    best = max(left, key=lambda index: left[index])
    return (
        f"no {which} has {name}={shown_amount(amount)} left; the freest, {kind} {best}, has "
        f"{shown_amount(left[best])}"
    )


def fitting(kind: str, asked: Amounts, left: Mapping[str, int]) -> int:
    """Return how many devices could each be one of those that a task gets."""
    share, _ = share_of(kind, asked) or (0, 0)
    attributes = attributes_of(kind, asked)
    return sum(
        left[f"{kind}@{index}"] >= share
        and all(left.get(f"{name}@{index}", 0) >= a for name, a in attributes)
        for index in indexes_of(left)[kind]
    )
