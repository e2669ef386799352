"""The ring of a key: the nodes that fit, in the order of a hash of key and node.

So a node that comes or goes moves only keys of its own (rendezvous hashing, Thaler and
Ravishankar 1998).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from ..strategy import Ints

Hashes = npt.NDArray[np.uint64]

FILLED: Final = 0.7
"""The part of the slots of a warm set that its tasks hold on average, so that peaks find a slot."""


def hash_of(text: str) -> int:
    """Return a hash of 64 bits, the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def hashes_of(names: Iterable[str]) -> Hashes:
    """Return the hash of each name."""
    return np.array([hash_of(name) for name in names], dtype=np.uint64)


def mix(hashes: Hashes, key: str) -> Hashes:
    """Return a hash of each node with a key, from the hashes of the nodes.

    The mixer is the finalizer of splitmix64 (Steele, Lea and Flood 2014).
    """
    mixed = hashes ^ np.uint64(hash_of(key))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class NodeRing:
    """The nodes that fit tasks of a key, in the order of the ring.

    hashes: of each node with the key, ascending.
    tasks: number of tasks that each node has slots for.
    size: number of nodes of the warm set.
    """

    hashes: Hashes
    tasks: Ints
    size: int = 1

    @classmethod
    def of(cls, hashes: Sequence[Hashes], tasks: Sequence[Ints]) -> "NodeRing":
        """Return the ring of the nodes of all partitions. hashes: with the key."""
        together = np.concatenate(hashes) if hashes else np.zeros(0, dtype=np.uint64)
        order = np.argsort(together)
        return cls(together[order], np.concatenate(tasks)[order] if tasks else np.zeros(0, int))

    def size_for(self, tasks: float) -> int:
        """Return how many nodes so many tasks at a time need, at least 1."""
        room = np.cumsum(self.tasks) * FILLED
        return max(1, min(int(np.searchsorted(room, tasks)) + 1, len(room)))

    def places(self, hashes: Hashes) -> Ints:
        """Return the place of nodes in the ring, from 0, by their hashes with the key."""
        return np.searchsorted(self.hashes, hashes).astype(np.int64)
