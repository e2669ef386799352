"""The preference `warm`: tasks of a key go to few nodes, where what they load is there already.

The warm set of a key is the first nodes of its ring (ring.py), as many as its tasks need that run
at a time (Zhang et al., "Faster and Cheaper Serverless Computing on Harvested Resources", SOSP
2021). Nobody reports what is warm: every scheduler computes the same set from the same accounts.
"""

import numpy as np

from ...model.needs import Resources
from ..strategy import Ints
from .preference import MAX_BUCKET, QUARTERS, ClusterNow, Lasts, NodesNow, Preference
from .rooms import quarters


class WarmPreference(Preference):
    """Prefers the warm set of a key, there the nodes with the largest part of their slots free.

    Behind the warm set come the other nodes in the order of the ring.
    """

    lasts = Lasts.FREE

    def __init__(self, key: str) -> None:
        """key: what is loaded, the name of a model for example."""
        self.name = f"warm:{key}"
        self._key = key

    def state(self, cluster: ClusterNow) -> str:
        """Return the number of the ring, and the size of the warm set."""
        warm_set = cluster.warm_set(self._key)
        return f"{warm_set.number} {warm_set.size}" if warm_set else ""

    def buckets(self, nodes: NodesNow, needs: Resources) -> Ints:
        """Return the quarter of slots in use in the warm set, else how far along the ring."""
        warm_set = nodes.cluster.warm_set(self._key)
        if warm_set is None:
            return nodes.everyone()
        beyond = warm_set.ring.places[nodes.partition] - warm_set.size
        in_use = quarters(1.0 - nodes.parts("slots", 0))
        return np.where(beyond < 0, in_use, np.minimum(QUARTERS + beyond, MAX_BUCKET))

    def sentence(self, bucket: int) -> str:
        """Say where in the ring a node is."""
        key = self.name.partition(":")[2]
        if bucket >= QUARTERS:
            open_end = " or more" if bucket == MAX_BUCKET else ""
            return f"{bucket - QUARTERS + 1}{open_end} behind the warm set of {key}"
        low = bucket * 100 // QUARTERS
        return f"in the warm set of {key}, {low} to {low + 100 // QUARTERS} % of its slots in use"
