"""The nodes of a partition as a scheduler judges them: which fit a task, and which take
new tasks.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from ...model.apps import TASKS_LABEL, digest_of
from ...model.near import near_of
from ...model.needs import Resources
from ...model.node import Node
from ...model.options import ONE_SLOT
from ...placement.columns import Columns, Mask
from ...placement.fitting import fitting
from ...placement.rules import RULES
from ...placement.strategy import Floats
from .free_amounts import Left, LeftReader

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Knowers = frozenset[str] | None
"""The digests (model/apps.py) of the nodes that know a task's name, None for all."""

MOST: Final = 256
"""Needs whose answers a partition keeps, until its nodes change."""


def keep(cache: dict[K, V], key: K, value: V) -> None:
    """Add an answer to a cache, which begins anew when it is full."""
    if len(cache) >= MOST:
        cache.clear()
    cache[key] = value


class Offers:
    """The offers and scores of some nodes, by their index.

    choosy: some turn away tasks that ask for one slot only.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.scores: Floats = np.array([node.score for node in nodes], dtype=np.float64)
        self.digests = [digest_of(node.offer) for node in nodes]
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._open = np.array(
            [node.state == "up" and not node.draining for node in nodes], dtype=bool
        )
        self._looks_ahead = np.array([node.has_waiting_seats for node in nodes], dtype=bool)
        self._columns = Columns([node.offer for node in nodes])
        self._known: dict[Knowers, Mask] = {}
        self._having: dict[frozenset[str], Mask] = {}
        self._fitting: dict[tuple[str, Knowers], Mask] = {}
        self._fitting_open: dict[tuple[str, Knowers], Mask] = {}
        self._censuses: dict[tuple[str, Knowers], Sequence[int]] = {}
        self._left = LeftReader(self._columns, self._index)
        self.choosy = not fitting(self._columns, ONE_SLOT).all()

    def index_of(self, name: str) -> int:
        """Return the index of the node of this name, -1 if it is not here."""
        return self._index.get(name, -1)

    def _knowing(self, knowers: Knowers) -> Mask:
        """Return which nodes know a task's name; a node that does not say which tasks it knows
        knows all. Cached.
        """
        mask = self._known.get(knowers)
        if mask is None:
            column = self._columns.labels.get(TASKS_LABEL)
            if knowers is None or column is None:
                mask = np.full(len(self.nodes), True)
            else:
                mask = column.judge(lambda digests: not digests or digests[0] in knowers)
            self._known[knowers] = mask
        return mask

    def fitting(self, needs: Resources, knowers: Knowers) -> Mask:
        """Return which nodes fit when they are empty. Cached."""
        mask = self._fitting.get((needs.text, knowers))
        if mask is None:
            mask = self._near(self._knowing(knowers) & fitting(self._columns, needs), needs)
            keep(self._fitting, (needs.text, knowers), mask)
        return mask

    def _near(self, mask: Mask, needs: Resources) -> Mask:
        """Return a mask with only the node that needs are for, if they are for one."""
        if node := near_of(needs):
            mask = mask & np.array([known.name == node for known in self.nodes], dtype=bool)
        return mask

    def census(self, needs: Resources, knowers: Knowers) -> Sequence[int]:
        """Return how many nodes are left at the beginning, after name and near, each rule, and
        state. Cached.
        """
        counts = self._censuses.get((needs.text, knowers))
        if counts is None:
            found = [self._columns.everyone(), self._knowing(knowers)]
            found.append(self._near(found[-1], needs))
            for rule in RULES:
                found.append(found[-1] & rule.mask(self._columns, needs))
            counts = [int(mask.sum()) for mask in (*found, found[-1] & self._open)]
            keep(self._censuses, (needs.text, knowers), counts)
        return counts

    def open(self, needs: Resources, knowers: Knowers) -> Mask:
        """Return which nodes fit when they are empty, and take new tasks. Cached."""
        mask = self._fitting_open.get((needs.text, knowers))
        if mask is None:
            mask = self.fitting(needs, knowers) & self._open
            keep(self._fitting_open, (needs.text, knowers), mask)
        return mask

    def others(self, names: Iterable[str]) -> Mask | None:
        """Return which nodes have none of these names; None if all."""
        found = [self._index[name] for name in names if name in self._index]
        if not found:
            return None
        mask = self._columns.everyone()
        mask[found] = False
        return mask

    def looks_ahead(self, needs: Resources, knowers: Knowers) -> bool:
        """Return True if a node with waiting seats fits when it is empty."""
        return bool((self.fitting(needs, knowers) & self._looks_ahead).any())

    @property
    def declaring(self) -> Mapping[str, Mask]:
        """Return, by resource, which nodes declare some; by kind of devices, which have some."""
        return self._columns.declaring

    def having(self, names: frozenset[str]) -> Mask:
        """Return which nodes declare one of these resources, or have such devices. Cached."""
        mask = self._having.get(names)
        if mask is None:
            mask = ~self._columns.everyone()
            for name in names & self.declaring.keys():
                mask = mask | self.declaring[name]
            self._having[names] = mask
        return mask

    def left_of(self, texts: Mapping[str, str], whole: bool = True) -> Left:
        """Return what each node has left, by the texts of a snapshot; whole: as in `Snapshot`."""
        return self._left.read(texts, whole)
