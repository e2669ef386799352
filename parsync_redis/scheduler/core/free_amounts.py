"""The amounts left on the nodes of a partition, as arrays, and the nodes that have a task of each
`apart` word.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from ...model.amount import THOUSANDTHS
from ...model.apart import undeclared
from ...model.devices import by_kind, hold, kind_of
from ...model.needs import Resources, read_amounts
from ...placement.columns import UNLIMITED_TASKS, Columns, Mask
from ...placement.strategy import Ints

Held = Sequence[Mapping[str, int]]
"""The amounts that a task holds on each of some nodes; none if no devices are among them: then it
is what they ask.
"""


class Left:
    """The amounts left on each node, by its index, in thousandths.

    A word that keeps tasks apart is a resource of which each node has 1. There may be many words,
    of few nodes each, so they have sets of nodes and no arrays.
    """

    def __init__(
        self, columns: Columns, amounts: Mapping[str, Ints], apart: Mapping[str, Collection[int]]
    ) -> None:
        """columns: the amounts of the empty nodes."""
        self._columns = columns
        self._amounts = dict(amounts)
        self._apart = {name: set(nodes) for name, nodes in apart.items()}

    def of_nodes(self, name: str, nodes: Ints) -> Ints:
        """Return how much of a resource each of these nodes has left."""
        if full := undeclared(name):
            return np.where(np.isin(nodes, [*self._apart.get(name, ())]), 0, full)
        return self._amounts[name][nodes] if name in self._amounts else np.zeros_like(nodes)

    def tasks(self, needs: Resources, nodes: Ints) -> Ints:
        """Return how many tasks of these needs each of these nodes could hold at once by what it
        has left.
        """
        if len(needs.amounts) == 1 and not self._columns.devices and needs.amounts[0][1]:
            ((name, amount),) = needs.amounts  # the usual case, in a fourth of the time
            return np.maximum(self.of_nodes(name, nodes) // amount, 0)
        most = np.full(len(nodes), UNLIMITED_TASKS, dtype=np.int64)
        for kind, some in by_kind(needs.amounts).items():
            own = np.full(len(nodes), UNLIMITED_TASKS, dtype=np.int64)
            for name, amount in some:
                if amount:
                    own = np.minimum(own, np.maximum(self.of_nodes(name, nodes), 0) // amount)
            if kind in self._columns.devices:
                on_devices = self._columns.tasks_on_devices(kind, some, self._amounts)
                own = np.where(self._columns.devices[kind][nodes], on_devices[nodes], own)
            most = np.minimum(most, own)
        return most

    def within(self, needs: Resources, nodes: Sequence[int], seats: Mask) -> Mask:
        """Return which of these seats for tasks of these needs there is enough left for; nodes:
        that of each seat.
        """
        if not needs.amounts:
            return seats
        most = dict(zip(nodes, self.tasks(needs, np.array(nodes)).tolist(), strict=True))
        for i in np.flatnonzero(seats).tolist():
            most[nodes[i]] -= 1
            seats[i] = most[nodes[i]] >= 0
        return seats

    def take(self, needs: Resources, nodes: Sequence[int]) -> list[dict[str, int]]:
        """Take what tasks of these needs hold on these nodes; return it if some of it may be
        devices.

        The devices are those that commit would choose now.
        """
        if not any(kind_of(name) in self._columns.devices for name, _ in needs.amounts):
            self._change(needs.amounts, nodes, -1)
            return []
        held = []
        for node in nodes:
            held.append(hold(self.of_node(node), needs.amounts) or {})
            self._change(held[-1].items(), [node], -1)
        return held

    def put_back(self, needs: Resources, nodes: Sequence[int], held: Held) -> None:
        """Put back the amounts that `take` took; held: its result."""
        if not held:
            self._change(needs.amounts, nodes, 1)
        for node, some in zip(nodes, held, strict=False):
            self._change(some.items(), [node], 1)

    def _change(self, amounts: Iterable[tuple[str, int]], nodes: Sequence[int], sign: int) -> None:
        for name, amount in amounts:
            if undeclared(name):
                held = self._apart.setdefault(name, set())
                (held.update if sign < 0 else held.difference_update)(nodes)
            elif name in self._amounts:
                np.add.at(self._amounts[name], nodes, sign * amount)

    def most(self, nodes: Mask) -> dict[str, int]:
        """Return the most that any of these nodes could give one task, by resource, without words
        that keep apart.
        """
        found = {
            name: int(left.max(where=nodes, initial=0)) for name, left in self._amounts.items()
        }
        for name, left in self._most_on_devices().items():
            found[name] = max(found.get(name, 0), int(left.max(where=nodes, initial=0)))
        return found

    def _most_on_devices(self) -> dict[str, Ints]:
        """Return the most of each kind that each node's devices could give one task, and of each
        attribute.
        """
        found: dict[str, Ints] = {}
        for kind, indexes in self._columns.indexes.items():
            shares = np.array(
                [self._amounts[name] for i in indexes if (name := f"{kind}@{i}") in self._amounts]
            )
            if len(shares):
                whole = (shares >= THOUSANDTHS).sum(axis=0) * THOUSANDTHS
                found[kind] = np.maximum(whole, shares.max(axis=0))
        for name, amounts in self._amounts.items():
            attribute, at, _ = name.partition("@")
            if at and "." in attribute:
                found[attribute] = (
                    np.maximum(found[attribute], amounts) if attribute in found else amounts
                )
        return found

    def of_node(self, index: int) -> dict[str, int]:
        """Return what one node has left of what it declares, and 0 of the words of tasks that it
        has.
        """
        declared = self._columns.amounts
        found = {
            name: int(amounts[index])
            for name, amounts in self._amounts.items()
            if name in declared and declared[name][index]
        }
        return found | {name: 0 for name, nodes in self._apart.items() if index in nodes}


class LeftReader:
    """Reads what snapshots say of the nodes of a partition; it keeps what the last one said,
    without later claims.
    """

    def __init__(self, columns: Columns, index: Mapping[str, int]) -> None:
        """index: of each node, by its name."""
        self._columns = columns
        self._index = index
        self._amounts: dict[str, Ints] = {}
        self._apart: dict[str, set[int]] = {}

    def read(self, texts: Mapping[str, str], whole: bool = True) -> Left:
        """Return what is left by the texts of a snapshot, by the name of each node; it leaves out
        unknown names.

        whole: nodes without a text have nothing left, else they have what they had.
        """
        if whole:
            self._amounts = {}
            self._apart = {}
        by_text = defaultdict[str, list[int]](list)
        found = dict[str, tuple[list[int], list[int]]]()
        for name, text in texts.items():
            if name in self._index:
                by_text[text].append(self._index[name])
        for text, rows in by_text.items():
            for resource, amount in read_amounts(text).items():
                some, amounts = found.setdefault(resource, ([], []))
                some += rows
                amounts += [amount] * len(rows)
        rows = [*chain.from_iterable(by_text.values())]
        for left in self._amounts.values():
            left[rows] = 0
        for nodes in self._apart.values():
            nodes.difference_update(rows)
        for resource, (some, amounts) in found.items():
            if undeclared(resource):
                self._apart.setdefault(resource, set()).update(some)
            else:
                self._amounts.setdefault(resource, np.zeros(self._columns.size, dtype=np.int64))[
                    some
                ] = amounts
        self._apart = {name: nodes for name, nodes in self._apart.items() if nodes}
        return Left(
            self._columns, {name: left.copy() for name, left in self._amounts.items()}, self._apart
        )
