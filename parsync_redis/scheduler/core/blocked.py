"""The groups without a seat, as arrays: a single comparison finds those that may fit a partition.

The comparison uses, for each resource by itself, the largest free amount of any open node of the
partition. So the search may return a group that does not fit after all, but never leaves out a
group that fits.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ...model.apart import undeclared
from ...model.needs import Resources
from .kind_group import KindGroup
from .offers import Knowers
from .partition import PartitionCopy

MIN_ROWS: Final = 64
"""Number of rows that the arrays begin with."""


class BlockedGroups:
    """The groups without a seat: for each, a row of amounts and the number of its filter.

    A filter is labels and knowers; groups share filters.

    unexplained: groups with a kind whose line has no reason, as far as is known.
    explained: groups whose reason was found since they were added, the latest last.
    strict: groups that need slots, because a waiting seat does not do.
    """

    def __init__(self) -> None:
        self._columns: dict[str, int] = {"slots": 0, "seats": 1}
        self._needs = np.zeros((MIN_ROWS, 2), dtype=np.int64)
        self._filter_of = np.zeros(MIN_ROWS, dtype=np.int64)
        self._used = np.zeros(MIN_ROWS, dtype=bool)
        self._rows: dict[KindGroup, int] = {}
        self.unexplained: dict[KindGroup, None] = {}
        self.explained: OrderedDict[KindGroup, None] = OrderedDict()
        self.strict: dict[KindGroup, None] = {}
        self._groups: list[KindGroup | None] = []
        self._spare: list[int] = []
        self._filters: list[tuple[Resources, Knowers]] = []
        self._filter_numbers: dict[tuple[str, Knowers], int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[KindGroup]:
        return iter(self._rows)

    def __contains__(self, group: object) -> bool:
        return group in self._rows

    def add(self, group: KindGroup) -> None:
        """Add a group, unless it is here."""
        if group in self._rows:
            return
        needs = group.needs
        # there are too many `apart` words for columns, so such a group may be tried in vain
        amounts = [(name, amount) for name, amount in needs.amounts if not undeclared(name)]
        for name, _ in amounts:
            self._columns.setdefault(name, len(self._columns))
        row = self._spare.pop() if self._spare else len(self._groups)
        if row == len(self._groups):
            self._groups.append(None)
        self._grow(row)
        self._groups[row] = group
        self._rows[group] = row
        self._needs[row] = 0
        if group.may_wait:
            self._needs[row, 1] = 1
        else:
            self._needs[row, 0] = needs.slots
            self.strict[group] = None
        for name, amount in amounts:
            self._needs[row, self._columns[name]] = amount
        labels = Resources.made(1, [(name, 1) for name, amount in amounts if amount], needs.labels)
        number = self._filter_numbers.setdefault((labels.text, group.knowers), len(self._filters))
        if number == len(self._filters):
            self._filters.append((labels, group.knowers))
        self._filter_of[row] = number
        self._used[row] = True
        self.unexplained[group] = None

    def on_unexplained(self, group: KindGroup) -> None:
        """Note that a kind of a group has no reason, if the group is blocked."""
        if group in self._rows:
            self.unexplained[group] = None

    def on_explained(self, group: KindGroup) -> None:
        """Note that the reason of a blocked group has just been found."""
        self.unexplained.pop(group, None)
        self.explained[group] = None
        self.explained.move_to_end(group)

    def discard(self, group: KindGroup) -> None:
        """Remove a group, if it is here."""
        row = self._rows.pop(group, None)
        if row is not None:
            self.unexplained.pop(group, None)
            self.explained.pop(group, None)
            self.strict.pop(group, None)
            self._used[row] = False
            self._groups[row] = None
            self._spare.append(row)

    def fitting(
        self, partitions: Sequence[PartitionCopy], groups: Sequence[KindGroup] | None = None
    ) -> list[KindGroup]:
        """Return the groups that may have a seat in one of these partitions.

        groups: the blocked groups to compare; None compares all.
        """
        partitions = [
            partition for partition in partitions if partition.free_count or partition.ahead_count
        ]
        if not self._rows or not partitions or groups == []:
            return []
        size = len(self._groups)
        rows = (
            np.flatnonzero(self._used[:size])
            if groups is None
            else np.array([self._rows[group] for group in groups])
        )
        most = np.zeros((len(self._filters), len(self._columns)), dtype=np.int64)
        for number in set(self._filter_of[rows].tolist()):
            labels, knowers = self._filters[number]
            for partition in partitions:
                for name, amount in partition.most_free(labels, knowers).items():
                    if (column := self._columns.get(name)) is not None:
                        most[number, column] = max(most[number, column], amount)
        fit = (self._needs[rows] <= most[self._filter_of[rows]]).all(axis=1)
        return [group for row in rows[fit].tolist() if (group := self._groups[row]) is not None]

    def _grow(self, row: int) -> None:
        """Enlarge the arrays until they have this row and a column for each resource."""
        height, width = self._needs.shape
        if row >= height or len(self._columns) > width:
            needs = np.zeros(
                (max(2 * height if row >= height else height, MIN_ROWS), len(self._columns)),
                dtype=np.int64,
            )
            needs[:height, :width] = self._needs
            self._filter_of = np.resize(self._filter_of, len(needs))
            self._used = np.concatenate([self._used, np.zeros(len(needs) - height, dtype=bool)])
            self._needs = needs
