"""The preference `warm`: tasks of a key go to few nodes, where what they load is there already.

Each key has a ring: the nodes that fit, in the order of a hash of key and node. So a node that
comes or goes moves only keys of its own (rendezvous hashing, Thaler and Ravishankar 1998). The
warm set of a key is the first nodes of its ring, as many as its tasks need that run at a time
(Zhang et al., "Faster and Cheaper Serverless Computing on Harvested Resources", SOSP 2021). Nobody
reports what is warm: every scheduler computes the same set from the same accounts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from ...model.needs import Resources
from ..strategy import Ints
from .preference import MAX_BUCKET, QUARTERS, Hashes, Lasts, NodesNow, Preference
from .rooms import SpreadPreference

FILLED: Final = 0.7
"""The part of the slots of a warm set that its tasks hold on average, so that peaks find a slot."""

_SPREAD: Final = SpreadPreference()


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
class Ring:
    """The nodes that fit tasks of a key, in the order of the ring.

    hashes: of each node with the key, ascending.
    tasks: number of tasks that each node has slots for.
    size: number of nodes of the warm set.
    """

    hashes: Hashes
    tasks: Ints
    size: int = 1

    @classmethod
    def of(cls, hashes: Sequence[Hashes], tasks: Sequence[Ints]) -> "Ring":
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


class WarmPreference(Preference):
    """Prefers the warm set of a key, there the nodes of which least is in use.

    Behind the warm set come the other nodes in the order of the ring.
    """

    lasts = Lasts.MOMENT

    def __init__(self, key: str) -> None:
        """key: what is loaded, the name of a model for example."""
        self.name = f"warm:{key}"
        self._key = key

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the quarter in use for the warm set, else how far along the ring a node is."""
        if nodes.cluster.ring is None:
            return nodes.everyone()
        ring = nodes.cluster.ring(self._key)
        beyond = ring.places(mix(nodes.hashes, self._key)) - ring.size
        in_use = _SPREAD.buckets(nodes, needs)
        return np.where(beyond < 0, in_use, np.minimum(QUARTERS + beyond, MAX_BUCKET))

    def sentence(self, bucket: int) -> str:
        """Say where in the ring a node is."""
        if bucket < QUARTERS:
            return f"in the warm set of {self.name.partition(':')[2]}"
        return f"{bucket - QUARTERS + 1} behind the warm set"
