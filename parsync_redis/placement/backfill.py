"""Choose the nodes that are kept for tasks which have waited long (EASY backfill).

Pure: facts in, bookings out.

Freed slots go to the tasks that fit at that moment. So a task of eight slots beside a stream of
one-slot tasks may wait for ever: its node never has eight slots free at once. A booked node takes
only tasks that end before its large task can start. The leader books the node that can start it
first, by the run times of the tasks there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from ..model.booking import Booking
from ..model.needs import Resources
from .facts import NodeFacts
from .forecast import Held, expected_start_ms
from .now import what_keeps
from .reasons import find_fitting

NEAREST: Final = 32
"""Nodes that are looked at for a kind: those that lack least, whose leases must be read."""

MOST: Final = NEAREST
"""Nodes that are booked at a time, at most."""

SHARE: Final = 4
"""At most one in so many of the open nodes is booked, rounded up."""

CLOCKS_MS: Final = 1000
"""The clocks of two servers differ by so much at most."""

PATIENCE: Final = 0.5
"""A node is booked for a task that has waited longer than this part of the time until the node has
room for it.
"""

LEAST_MS: Final = 500
"""A task waits so long at least."""

STAYS: Final = 0.5
"""A task keeps its node, unless another has room for it within less than this part of the time."""


@dataclass(frozen=True, slots=True)
class Waits:
    """A task that waits for room. waited_ms: for how long, as the leader has seen."""

    kind: str
    needs: Resources
    task: str
    waited_ms: float


def nearest(
    needs: Resources, nodes: Sequence[NodeFacts], booked: Collection[str] = ()
) -> list[NodeFacts]:
    """Return the open nodes that could hold a task of these needs: the booked ones, then those that
    lack least.
    """
    able = [node for node in find_fitting(needs, nodes) if node.open]

    def lack(node: NodeFacts) -> tuple[bool, float, str]:
        return (
            node.name not in booked,
            sum(obstacle.short for obstacle in what_keeps(needs, node)),
            node.name,
        )

    return sorted(able, key=lack)[:NEAREST]


def most_bookings(open_nodes: int) -> int:
    """Return how many nodes may be booked of so many that are open."""
    return min(MOST, max(1, ceil(open_nodes / SHARE)))


def unused(
    bookings: Sequence[Booking],
    held: Mapping[str, Sequence[Held]],
    kinds: Mapping[str, str],
) -> list[Booking]:
    """Return the bookings that no task of their kind has used up: none has got the node since it
    was booked.

    held: by node, its tasks. kinds: of these tasks, by id. A task of the kind that was there just
    before uses the booking up too: on several servers the two times are of two clocks. The task
    that waits is then booked for anew.
    """

    def is_used(booking: Booking) -> bool:
        holders = (one.holder for one in held.get(booking.node, ()))
        new = [one.task for one in holders if one.since_ms + CLOCKS_MS >= booking.at_ms]
        return any(kinds.get(task) == booking.kind for task in new)

    return [booking for booking in bookings if not is_used(booking)]


def choose(
    waiting: Sequence[Waits],
    nodes: Mapping[str, Sequence[NodeFacts]],
    held: Mapping[str, Sequence[Held]],
    before: Sequence[Booking],
    open_nodes: int,
    now_ms: int,
) -> list[Booking]:
    """Return the nodes to book, one for each task that has waited long; the tasks in their order.

    nodes: by kind, those that could hold it. held: by node, its tasks. before: the bookings that
    are not used up; their tasks have waited long, and keep their nodes unless another can start
    them earlier. The node of a task that waits no more goes to another task of its kind.
    open_nodes: how many there are.
    """
    found: dict[str, Booking] = {}
    kept = _Kept(before, {one.task for one in waiting})
    starts: dict[str, dict[str, int]] = {}
    for one in waiting:
        if len(found) >= most_bookings(open_nodes):
            break
        if one.kind not in starts:
            starts[one.kind] = _starts(one.needs, nodes[one.kind], held, now_ms)
        free = {name: start_ms for name, start_ms in starts[one.kind].items() if name not in found}
        if not free:
            continue
        mine = kept.of(one, free)
        first = min(free, key=lambda name: (free[name], name != mine, name))
        stays = mine and free[first] - now_ms > STAYS * (free[mine] - now_ms)
        name = mine if stays else first
        long = one.waited_ms >= max(LEAST_MS, PATIENCE * (free[name] - now_ms))
        if mine or long:
            at_ms = kept.at_ms(name, one.kind, now_ms)
            found[name] = Booking(name, one.kind, one.task, free[name], at_ms)
    return list(found.values())


def _starts(
    needs: Resources, nodes: Sequence[NodeFacts], held: Mapping[str, Sequence[Held]], now_ms: int
) -> dict[str, int]:
    """Return when each node is expected to have room (server time), as far as that is known."""
    starts: dict[str, int] = {}
    for node in nodes:
        holding = held.get(node.name, ())
        start_ms = expected_start_ms(needs, [node], holding, now_ms)
        if start_ms is not None:
            starts[node.name] = start_ms
    return starts


class _Kept:
    """The bookings until now: by task, and by kind those whose tasks wait no more."""

    def __init__(self, before: Sequence[Booking], waiting: Collection[str]) -> None:
        self._booked = {booking.node: booking for booking in before}
        self._by_task = {booking.task: booking.node for booking in before}
        self._spare: dict[str, set[str]] = {}
        for booking in before:
            if booking.task not in waiting:
                self._spare.setdefault(booking.kind, set()).add(booking.node)

    def of(self, one: Waits, free: Mapping[str, int]) -> str:
        """Return the node that is kept for a task, '' if none is.

        free: when each node that it may get has room.
        """
        own = self._by_task.get(one.task, "")
        if own in free:
            return own
        spare = self._spare.get(one.kind, set())
        node = min(spare & free.keys(), key=lambda name: (free[name], name), default="")
        spare.discard(node)
        return node

    def at_ms(self, node: str, kind: str, now_ms: int) -> int:
        """Return since when a node is booked for a kind."""
        booking = self._booked.get(node)
        return booking.at_ms if booking and booking.kind == kind else now_ms
