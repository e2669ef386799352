"""The ring of a key: all nodes that fit, in the order of a hash of key and node.

So a node that comes or goes moves only keys of its own (rendezvous hashing, Thaler and Ravishankar
1998).
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

Hashes = npt.NDArray[np.uint64]

FILLED: Final = 0.7
"""The part of the slots of a warm set that its tasks hold on average, so that peaks find a slot."""


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
    """The nodes of one partition, for a ring.

    hashes: of their names.
    capacities: what they can give now.
    fitting: which nodes fit.
    """

    hashes: Hashes
    capacities: Columns
    fitting: Mask


@dataclass(frozen=True, slots=True, eq=False)
class NodeRing:
    """The nodes that fit tasks of a key, in the order of a hash of key and node.

    places: by partition, the place of each node, from 0; nodes that do not fit come last.
    room: for how many tasks at a time the first 1, 2, ... nodes are.
    """

    places: Sequence[Ints]
    room: Floats

    @classmethod
    def of(cls, key: str, needs: Resources, partitions: Sequence[RingNodes]) -> "NodeRing":
        """Return the ring of a key. partitions: by their numbers."""
        fitting = np.concatenate([nodes.fitting for nodes in partitions])
        hashes = np.concatenate([nodes.hashes for nodes in partitions])[fitting]
        order = np.argsort(_mix(hashes, key))
        places = np.full(len(fitting), len(fitting), dtype=np.int64)
        places[fitting.nonzero()[0][order]] = np.arange(len(order))
        ends = np.cumsum([len(nodes.fitting) for nodes in partitions])
        tasks = np.concatenate([nodes.capacities.tasks_when_empty(needs) for nodes in partitions])
        tasks = tasks[fitting][order]
        return cls(np.split(places, ends[:-1]), np.cumsum(tasks) * FILLED)

    def size_for(self, tasks: float) -> int:
        """Return how many nodes so many tasks at a time need, at least 1."""
        return max(1, min(int(np.searchsorted(self.room, tasks)) + 1, len(self.room)))


@dataclass(frozen=True, slots=True)
class WarmSet:
    """The first nodes of a ring. size: their number. number: other rings have other numbers."""

    ring: NodeRing
    size: int
    number: int = 0
