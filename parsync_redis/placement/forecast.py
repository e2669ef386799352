"""Forecast when a waiting task starts, from what its nodes hold and how long such tasks run."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..model.apart import undeclared
from ..model.devices import hold
from ..model.needs import Resources
from .facts import Holder, NodeFacts

MOST_AHEAD: Final = 5000
"""With more tasks before it, no forecast is made."""


@dataclass(frozen=True, slots=True)
class Held:
    """A task that holds a node, and when it is expected to end (server time, ms); None if nobody knows."""

    holder: Holder
    until_ms: int | None


@dataclass(slots=True)
class _Room:
    free: int
    left: dict[str, int]

    def holds(self, needs: Resources) -> dict[str, int] | None:
        """Return the amounts that a task would hold; None if there is no room."""
        return hold(self.left, needs.amounts) if self.free >= needs.slots else None

    def change(self, slots: int, amounts: Mapping[str, int], sign: int) -> None:
        self.free += sign * slots
        for name, amount in amounts.items():
            if name in self.left or undeclared(name):
                self.left[name] = self.left.get(name, undeclared(name)) + sign * amount


def expected_start_ms(
    needs: Resources,
    nodes: Sequence[NodeFacts],
    held: Sequence[Held],
    ahead: int,
    run_ms: float | None,
    now_ms: int,
) -> int | None:
    """Return when a task of these needs is expected to start (server time); None if that cannot be said.

    nodes: those that could hold it and take new tasks. held: all that holds them, read at one moment of each node. What
    they have free is reckoned from that, because the free slots in their facts were read at another moment: a task
    that ended in between would be in neither. ahead: tasks of equal needs that come first. run_ms: how long each of
    those runs, None if nobody knows. Tasks of other needs do not count.
    """
    if ahead > MOST_AHEAD or (ahead and run_ms is None):
        return None
    rooms = {node.name: _Room(node.offer.slots, dict(node.offer.amounts)) for node in nodes}
    for one in held:
        if one.holder.node in rooms:
            rooms[one.holder.node].change(one.holder.slots, one.holder.resources, -1)
    ends = [
        (max(one.until_ms, now_ms), at, one.holder.node, one.holder.slots, one.holder.resources)
        for at, one in enumerate(held)
        if one.until_ms is not None and one.holder.node in rooms
    ]
    heapq.heapify(ends)
    at_ms, number, changed = now_ms, len(held), [*rooms]
    while True:
        for name in changed:
            room = rooms[name]
            while (amounts := room.holds(needs)) is not None:
                if not ahead:
                    return at_ms
                ahead, number = ahead - 1, number + 1
                room.change(needs.slots, amounts, -1)
                heapq.heappush(ends, (at_ms + int(run_ms or 0), number, name, needs.slots, amounts))
        if not ends:
            return None
        at_ms, _, name, slots, ended = heapq.heappop(ends)
        rooms[name].change(slots, ended, 1)
        changed = [name]
