"""The preference `warm`: tasks of a key go to few nodes, where what they load is there already.

Each key has a ring: the nodes that fit, in the order of a hash of key and node. So a node that
comes or goes moves only keys of its own (rendezvous hashing, Thaler and Ravishankar 1998). The
warm set of a key is the first nodes of its ring, as many as its tasks need that run at a time
(Zhang et al., "Faster and Cheaper Serverless Computing on Harvested Resources", SOSP 2021). Nobody
reports what is warm: every scheduler computes the same set from the same accounts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from ...model.needs import Resources
from ..columns import Columns, Mask
from ..strategy import Floats, Ints
from .preference import MAX_BUCKET, QUARTERS, ClusterNow, Lasts, NodesNow, Preference
from .rooms import SpreadPreference

Hashes = npt.NDArray[np.uint64]

FILLED: Final = 0.7
"""The part of the slots of a warm set that its tasks hold on average, so that peaks find a slot."""

_SPREAD: Final = SpreadPreference()


@lru_cache(maxsize=65_536)
def _hash_of(text: str) -> int:
    """Return a hash of 64 bits, the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def hashes_of(names: Iterable[str]) -> Hashes:
    """Return the hash of each name of a node."""
    return np.array([_hash_of(name) for name in names], dtype=np.uint64)


def _mix(hashes: Hashes, key: str) -> Hashes:
    """Return a hash of each node with a key, from the hashes of the nodes.

    The mixer is the finalizer of splitmix64 (Steele, Lea and Flood 2014).
    """
    mixed = hashes ^ np.uint64(_hash_of(key))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class RingNodes:
    """The nodes of one partition, for a ring. hashes: of their names. fitting: which nodes fit."""

    hashes: Hashes
    columns: Columns
    fitting: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """The nodes that fit tasks of a key, in the order of a hash of key and node.

    places: by partition, the place of each node, from 0; nodes that do not fit come last.
    room: for how many tasks at a time the first 1, 2, ... nodes are.
    """

    places: Sequence[Ints]
    room: Floats

    @classmethod
    def of(cls, key: str, needs: Resources, partitions: Sequence[RingNodes]) -> "Ring":
        """Return the ring of a key. partitions: by their numbers."""
        hashes = np.concatenate([_mix(nodes.hashes, key) for nodes in partitions])
        tasks = np.concatenate([_tasks(nodes.columns, needs) for nodes in partitions])
        fitting = np.concatenate([nodes.fitting for nodes in partitions]).nonzero()[0]
        order = fitting[np.argsort(hashes[fitting])]
        places = np.full(len(hashes), len(hashes), dtype=np.int64)
        places[order] = np.arange(len(order))
        ends = np.cumsum([nodes.columns.size for nodes in partitions])
        return cls(np.split(places, ends[:-1]), np.cumsum(tasks[order]) * FILLED)

    def size_for(self, tasks: float) -> int:
        """Return how many nodes so many tasks at a time need, at least 1."""
        return max(1, min(int(np.searchsorted(self.room, tasks)) + 1, len(self.room)))


def _tasks(columns: Columns, needs: Resources) -> Ints:
    """Return how many tasks of these needs fit on each empty node, at least 1."""
    tasks = columns.slots // needs.slots
    for name, amount in needs.amounts:
        total = columns.total(name)
        if amount:
            tasks = np.where(total > 0, np.minimum(tasks, total // amount), tasks)
    return np.maximum(tasks, 1)


@dataclass(frozen=True, slots=True)
class WarmSet:
    """The first nodes of a ring. size: their number. number: other rings have other numbers."""

    ring: Ring
    size: int
    number: int = 0


class WarmPreference(Preference):
    """Prefers the warm set of a key, there the nodes of which least is in use.

    Behind the warm set come the other nodes in the order of the ring.
    """

    lasts = Lasts.FREE
    reads_needs = True

    def __init__(self, key: str) -> None:
        """key: what is loaded, the name of a model for example."""
        self.name = f"warm:{key}"
        self._key = key

    def state(self, cluster: ClusterNow) -> str:
        """Return the number of the ring, and the size of the warm set."""
        warm_set = cluster.warm_set(self._key)
        return f"{warm_set.number} {warm_set.size}" if warm_set else ""

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the quarter in use for the warm set, else how far along the ring a node is."""
        warm_set = nodes.cluster.warm_set(self._key)
        if warm_set is None:
            return nodes.everyone()
        beyond = warm_set.ring.places[nodes.partition] - warm_set.size
        in_use = _SPREAD.buckets(nodes, needs)
        return np.where(beyond < 0, in_use, np.minimum(QUARTERS + beyond, MAX_BUCKET))

    def sentence(self, bucket: int) -> str:
        """Say where in the ring a node is."""
        key = self.name.partition(":")[2]
        if bucket >= QUARTERS:
            more = " or more" if bucket == MAX_BUCKET else ""
            return f"{bucket - QUARTERS + 1}{more} behind the warm set of {key}"
        return f"in the warm set of {key}, {_SPREAD.sentence(bucket)}"
