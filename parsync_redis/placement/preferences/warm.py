"""The preference `warm`: tasks of a key go to few nodes, where what they load is there already.

The warm set of a key is the first nodes of its ring (ring.py), as many as its tasks need that run
at a time (Zhang et al., "Faster and Cheaper Serverless Computing on Harvested Resources", SOSP
2021). Nobody reports what is warm: every scheduler computes the same set from the same accounts.
"""

from typing import Final

import numpy as np

from ...model.needs import Resources
from ..strategy import Ints
from .preference import MAX_BUCKET, QUARTERS, Lasts, NodesNow, Preference
from .ring import mix
from .rooms import SpreadPreference

_IN_USE: Final = SpreadPreference()


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
        in_use = _IN_USE.buckets(nodes, needs)
        return np.where(beyond < 0, in_use, np.minimum(QUARTERS + beyond, MAX_BUCKET))

    def sentence(self, bucket: int) -> str:
        """Say where in the ring a node is."""
        if bucket < QUARTERS:
            return f"in the warm set of {self.name.partition(':')[2]}"
        return f"{bucket - QUARTERS + 1} behind the warm set"
