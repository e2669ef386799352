"""Choose the nodes that are kept for kinds which have waited long (EASY backfill). Pure: facts in, bookings out.

Freed slots go to the tasks that fit at that moment. So a task of eight slots beside a stream of one-slot tasks may wait
for ever: its node never has eight slots free at once. A booked node takes only tasks that end before its large task can
start. The leader books the node that can start it first, by the run times of the tasks there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..model.booking import Booking
from ..model.needs import Resources
from .facts import NodeFacts
from .forecast import Held, expected_start_ms
from .now import what_keeps
from .reasons import find_fitting

MOST: Final = 8
"""Nodes that are booked at a time, at most."""

SHARE: Final = 4
"""At most one in so many of the open nodes is booked, but at least one."""

NEAREST: Final = 32
"""Nodes that are looked at for a kind: those that lack least, whose leases must be read."""

PATIENCE: Final = 0.5
"""A node is booked for a kind that has waited longer than this part of the time until the node has room for it."""

LEAST_MS: Final = 500
"""A kind waits so long at least."""


STAYS: Final = 0.5
"""A kind keeps its node, unless another has room for it within less than this part of the time."""


@dataclass(frozen=True, slots=True)
class Waits:
    """A kind that waits for room. task: its first. waited_ms: for how long, as the leader has seen."""

    kind: str
    needs: Resources
    task: str
    waited_ms: float


def nearest(needs: Resources, nodes: Sequence[NodeFacts], booked: Collection[str] = ()) -> list[NodeFacts]:
    """Return the open nodes that could hold a task of these needs: the booked ones, then those that lack least."""
    able = [node for node in find_fitting(needs, nodes) if node.open]

    def lack(node: NodeFacts) -> tuple[bool, float, str]:
        return node.name not in booked, sum(obstacle.short for obstacle in what_keeps(needs, node)), node.name

    return sorted(able, key=lack)[:NEAREST]


def choose(
    waiting: Sequence[Waits],
    nodes: Mapping[str, Sequence[NodeFacts]],
    held: Mapping[str, Sequence[Held]],
    before: Sequence[Booking],
    open_nodes: int,
    now_ms: int,
) -> list[Booking]:
    """Return the nodes to book, one for each kind that has waited long; the kinds in the order of their tasks.

    nodes: by kind, those that could hold it. held: by node, its tasks. before: the bookings until now; their kinds
    have waited long, and keep their nodes unless another can start them earlier. open_nodes: how many there are.
    """
    found: dict[str, Booking] = {}
    had = {booking.kind: booking.node for booking in before}
    for one in waiting:
        if len(found) >= min(MOST, max(1, open_nodes // SHARE)):
            break
        starts = [
            (start_ms, node.name != had.get(one.kind), node.name)
            for node in nodes[one.kind]
            if node.name not in found
            if (start_ms := expected_start_ms(one.needs, [node], held.get(node.name, ()), 0, None, now_ms)) is not None
        ]
        if not starts:
            continue
        first = min(starts)
        kept = next((start for start in starts if not start[1]), first)
        start_ms, _, name = first if first[0] - now_ms <= STAYS * (kept[0] - now_ms) else kept
        long = one.waited_ms >= max(LEAST_MS, PATIENCE * (start_ms - now_ms))
        if long or one.kind in had:
            found[name] = Booking(name, one.kind, one.task, start_ms)
    return list(found.values())
