"""The nodes of a partition as a scheduler judges them: which fit a task, and which take new tasks."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..model.amount import THOUSANDTHS
from ..model.apps import TASKS_LABEL, digest_of
from ..model.devices import by_kind, hold, kind_of
from ..model.needs import Resources, read_amounts
from ..model.node import Node
from ..placement.columns import MOST, Columns, Mask
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
        return {name: int(left[name][index]) for name, _ in self.nodes[index].offer.amounts if name in left}

    @property
    def protects(self) -> bool:
        """True if some node keeps its devices for tasks that ask for them."""
        return self._columns.protects

    def tasks_by_amounts(self, needs: Resources, left: Mapping[str, Ints]) -> Ints:
        """Return how many tasks of these needs each node could hold at once by what it has left."""
        columns, none = self._columns, np.zeros(len(self.nodes), dtype=np.int64)
        most = none + MOST
        for kind, some in by_kind(needs.amounts).items():
            own = none + MOST
            for name, amount in some:
                if amount:
                    own = np.minimum(own, np.maximum(left.get(name, none), 0) // amount)
            if kind in columns.devices:
                own = np.where(columns.devices[kind], columns.tasks_on_devices(kind, some, left), own)
            most = np.minimum(most, own)
        return most

    def take(self, needs: Resources, left: dict[str, Ints], owners: Sequence[int]) -> list[dict[str, int]]:
        """Take out of what is left what a task holds on each of some nodes; return it if some of it may be devices.

        The devices are those that commit would choose now.
        """
        if not any(kind_of(name) in self._columns.devices for name, _ in needs.amounts):
            _add_all(left, owners, needs.amounts, -1)
            return []
        held = []
        for owner in owners:
            held.append(hold(self.left_of(left, owner), needs.amounts) or {})
            _add_all(left, [owner], held[-1].items(), -1)
        return held

    def put_back(
        self, needs: Resources, left: dict[str, Ints], owners: Sequence[int], held: Sequence[Mapping[str, int]]
    ) -> None:
        """Put back what `take` has taken; held: what it returned."""
        if not held:
            _add_all(left, owners, needs.amounts, 1)
        for owner, some in zip(owners, held, strict=False):
            _add_all(left, [owner], some.items(), 1)

    def most_on_devices(self, left: Mapping[str, Ints]) -> dict[str, Ints]:
        """Return the most of each kind that each node's devices could give one task, and of each attribute."""
        found: dict[str, Ints] = {}
        for kind, indexes in self._columns.indexes.items():
            shares = np.array([left[name] for i in indexes if (name := f"{kind}@{i}") in left], dtype=np.int64)
            if len(shares):
                whole = (shares >= THOUSANDTHS).sum(axis=0) * THOUSANDTHS
                found[kind] = np.maximum(whole, shares.max(axis=0))
        for name, amounts in left.items():
            attribute, at, _ = name.partition("@")
            if at and "." in attribute:
                found[attribute] = np.maximum(found[attribute], amounts) if attribute in found else amounts
        return found


def _add_all(left: Mapping[str, Ints], owners: Sequence[int], amounts: Iterable[tuple[str, int]], factor: int) -> None:
    for name, amount in amounts:
        if name in left:
            np.add.at(left[name], owners, factor * amount)
