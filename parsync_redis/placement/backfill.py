"""Bookings: nodes that are kept for tasks that have waited long (EASY backfill). Pure functions.

Freed slots go to the tasks that fit at that moment. So a task of eight slots beside a stream of
one-slot tasks may wait for ever: its node never has eight slots free at once. A booked node takes
only tasks that end before its large task can start. The leader books the node that can start the
large task first, by the run times of the tasks there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from types import MappingProxyType
from typing import Final

from ..model.apart import undeclared
from ..model.booking import Booking
from ..model.needs import Resources
from .facts import Holder, NodeFacts
from .forecast import ExpectedEnd, expected_start_ms
from .now import what_keeps
from .reasons import find_fitting

NEAREST: Final = 32
"""Number of nodes considered for a kind, those that lack least: their leases must be read."""

MOST_LOOKS: Final = 8
"""Maximum number of reads of NEAREST nodes for a kind of a tenant."""

MAX_BOOKINGS: Final = NEAREST
"""Maximum number of booked nodes."""

OPEN_NODES_PER_BOOKING: Final = 4
"""Number of open nodes for which one node may be booked, rounded up."""

CLOCKS_MS: Final = 1000
"""Maximum difference of the clocks of two servers."""

PATIENCE: Final = 0.5
"""Part of the time until a node has room that a task must have waited to get a booking."""

LEAST_MS: Final = 500
"""Least time that a task has waited before it gets a booking."""

STAYS: Final = 0.5
"""Factor by which another node must have room earlier for a booked task to change its node."""


@dataclass(frozen=True, slots=True)
class LargeTask:
    """A task of a large kind that waits for room.

    waited_ms: for how long the leader has seen the task wait.
    """

    kind: str
    needs: Resources
    task: str
    waited_ms: float


def by_lack(
    needs: Resources, nodes: Sequence[NodeFacts], booked: Collection[str] = ()
) -> list[NodeFacts]:
    """Return the open nodes that could hold a task of these needs, those that lack least first.

    Nodes that are booked for the task's kind go before all other nodes.
    """
    able = [node for node in find_fitting(needs, nodes) if node.open and not node.leaves]

    def lack(node: NodeFacts) -> tuple[bool, float, str]:
        return (
            node.name not in booked,
            sum(obstacle.short for obstacle in what_keeps(needs, node)),
            node.name,
        )

    return sorted(able, key=lack)


def makes_room(holder: Holder, needs: Resources) -> bool:
    """Return whether a task holds at least what a task of these needs asks for.

    If both are of one tenant, its turn gives the room to the other task when the first one ends. So
    a booking there is of no use.
    """
    return holder.slots >= needs.slots and all(
        sum(size for key, size in holder.resources.items() if key.partition("@")[0] == name)
        >= amount
        for name, amount in needs.amounts
        if not undeclared(name)
    )


def most_bookings(open_nodes: int) -> int:
    """Return how many nodes may be booked."""
    return min(MAX_BOOKINGS, max(1, ceil(open_nodes / OPEN_NODES_PER_BOOKING)))


def unused(
    bookings: Sequence[Booking],
    ends_by_node: Mapping[str, Sequence[ExpectedEnd]],
    kinds: Mapping[str, str],
) -> list[Booking]:
    """Return the bookings whose node no task of their kind has got since it was booked.

    ends_by_node: the tasks on each node.
    kinds: by task id, for these tasks. A task of the kind that got the node just before uses the
        booking up too, because on several servers the two times come from two clocks. The task that
        still waits is then booked for anew.
    """

    def is_used(booking: Booking) -> bool:
        holders = (holder.holder for holder in ends_by_node.get(booking.node, ()))
        new = [holder.task for holder in holders if holder.since_ms + CLOCKS_MS >= booking.at_ms]
        return any(kinds.get(task) == booking.kind for task in new)

    return [booking for booking in bookings if not is_used(booking)]


def choose(
    waiting: Sequence[LargeTask],
    nodes: Mapping[str, Sequence[NodeFacts]],
    ends_by_node: Mapping[str, Sequence[ExpectedEnd]],
    before: Sequence[Booking],
    open_nodes: int,
    now_ms: int,
    latest_ms: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> list[Booking]:
    """Return the nodes to book, at most one for each task that has waited long.

    waiting: the tasks in their order.
    nodes: by kind, those that could hold its tasks.
    ends_by_node: the tasks on each node.
    before: the bookings that are not used up. Their tasks have waited long, and keep their nodes
        unless another node can start them earlier. The node of a task that no longer waits goes to
        another task of its kind.
    open_nodes: how many nodes are open.
    latest_ms: by kind and node with a notice, when a task must start to end before the node leaves
        (server time).
    """
    bookings: dict[str, Booking] = {}
    previous = _PreviousBookings(before, {task.task for task in waiting})
    starts: dict[str, dict[str, int]] = {}
    for task in waiting:
        if len(bookings) >= most_bookings(open_nodes):
            break
        if task.kind not in starts:
            starts[task.kind] = {
                name: start_ms
                for name, start_ms in _starts(
                    task.needs, nodes[task.kind], ends_by_node, now_ms
                ).items()
                if start_ms <= latest_ms.get((task.kind, name), inf)
            }
        free = {
            name: start_ms for name, start_ms in starts[task.kind].items() if name not in bookings
        }
        if not free:
            continue
        kept_node = previous.of(task, free)
        first = min(free, key=lambda name: (free[name], name != kept_node, name))
        stays = kept_node and free[first] - now_ms > STAYS * (free[kept_node] - now_ms)
        name = kept_node if stays else first
        long = task.waited_ms >= max(LEAST_MS, PATIENCE * (free[name] - now_ms))
        if kept_node or long:
            at_ms = previous.at_ms(name, task.kind, now_ms)
            bookings[name] = Booking(name, task.kind, task.task, free[name], at_ms)
    return list(bookings.values())


def _starts(
    needs: Resources,
    nodes: Sequence[NodeFacts],
    ends_by_node: Mapping[str, Sequence[ExpectedEnd]],
    now_ms: int,
) -> dict[str, int]:
    """Return by node when it is expected to have room (server time), as far as that is known."""
    starts: dict[str, int] = {}
    for node in nodes:
        holding = ends_by_node.get(node.name, ())
        start_ms = expected_start_ms(needs, [node], holding, now_ms)
        if start_ms is not None:
            starts[node.name] = start_ms
    return starts


class _PreviousBookings:
    """The bookings until now, by task; and by kind the nodes whose tasks no longer wait."""

    def __init__(self, before: Sequence[Booking], waiting: Collection[str]) -> None:
        self._booked = {booking.node: booking for booking in before}
        self._by_task = {booking.task: booking.node for booking in before}
        self._spare: dict[str, set[str]] = {}
        for booking in before:
            if booking.task not in waiting:
                self._spare.setdefault(booking.kind, set()).add(booking.node)

    def of(self, task: LargeTask, free: Mapping[str, int]) -> str:
        """Return the node that is kept for a task; '' if none is.

        free: by node that the task may get, when it has room (server time).
        """
        own_node = self._by_task.get(task.task, "")
        if own_node in free:
            return own_node
        spare = self._spare.get(task.kind, set())
        node = min(spare & free.keys(), key=lambda name: (free[name], name), default="")
        spare.discard(node)
        return node

    def at_ms(self, node: str, kind: str, now_ms: int) -> int:
        """Return since when a node is booked for a kind (server time); `now_ms` if it is not."""
        booking = self._booked.get(node)
        return booking.at_ms if booking and booking.kind == kind else now_ms
