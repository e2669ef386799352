"""The nodes of a partition as a scheduler judges them: which fit a task, and which take new tasks."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..model.apps import TASKS_LABEL, digest_of
from ..model.needs import Resources, read_amounts
from ..model.node import Node
from ..placement.columns import Columns, Mask
from ..placement.fitting import fitting
from ..placement.rules import RULES
from ..placement.strategy import Ints

Knowers = frozenset[str] | None
"""The digests (model/apps.py) of the nodes that know a task's name, None for all."""


class Offers:
    """The offers of some nodes, by their index."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.digests = [digest_of(node.offer) for node in nodes]
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._open = np.array([node.state == "up" and not node.draining for node in nodes], dtype=bool)
        self._looks_ahead = np.array([node.span > node.offer.slots for node in nodes], dtype=bool)
        self._columns = Columns([node.offer for node in nodes])
        self._known: dict[Knowers, Mask] = {}

    def index_of(self, name: str) -> int:
        """Return the index of the node of this name, -1 if it is not here."""
        return self._index.get(name, -1)

    def _knowing(self, knowers: Knowers) -> Mask:
        """Return which nodes know a task's name; a node that does not say which tasks it knows knows all. Cached."""
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
        """Return which nodes fit when they are empty."""
        mask: Mask = self._knowing(knowers) & fitting(self._columns, needs)
        return mask

    def masks(self, needs: Resources, knowers: Knowers) -> list[Mask]:
        """Return which nodes are left at the beginning, after the name, after each rule, and by their state."""
        found = [self._columns.everyone()]
        found.append(self._knowing(knowers))
        for rule in RULES:
            found.append(found[-1] & rule.mask(self._columns, needs))
        return [*found, found[-1] & self._open]

    def open(self, needs: Resources, knowers: Knowers) -> Mask:
        """Return which nodes fit when they are empty, and take new tasks."""
        mask: Mask = self.fitting(needs, knowers) & self._open
        return mask

    def looks_ahead(self, needs: Resources, knowers: Knowers) -> bool:
        """Return True if a node with waiting seats fits when it is empty."""
        return bool((self.fitting(needs, knowers) & self._looks_ahead).any())

    def amounts_of(self, left: Mapping[str, str]) -> dict[str, Ints]:
        """Return, by resource, what each node has left (thousandths), from the texts of a snapshot."""
        known = ((index, text) for name, text in left.items() if (index := self._index.get(name)) is not None)
        return self._columns.spread((index, read_amounts(text)) for index, text in known)

    def left_of(self, left: Mapping[str, Ints], index: int) -> dict[str, int]:
        """Return what one node has left."""
        return {name: int(amounts[index]) for name, amounts in left.items()}
