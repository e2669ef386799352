"""Reads the schedulers of a cluster for people."""

from collections.abc import Mapping
from dataclasses import dataclass

from .store import Store


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """A scheduler: the rank of its name, the counter that it moves while it lives, what it says of itself."""

    name: str
    ordinal: int
    keeper: bool
    counter: int
    stats: Mapping[str, str]


def read_schedulers(store: Store) -> list[SchedulerView]:
    """The schedulers by ordinal; one that was killed is among them until another has noticed."""
    counters = store.hash(store.keys.shared("schedulers"))
    keeper = store.hash(store.keys.shared("keeper")).get("holder", "").partition(" ")[0]
    return [
        SchedulerView(name, ordinal, name == keeper, int(counters[name]), store.hash(store.keys.stats(name)))
        for ordinal, name in enumerate(sorted(name for name in counters if counters[name].isdecimal()))
    ]
