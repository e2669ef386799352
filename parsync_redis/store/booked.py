"""Read which nodes are booked, and which names they hold back, for schedulers and for people."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..model.booking import Booking, read_bookings
from ..model.ids import readable
from ..model.streak import Streak
from ..model.views import NodeView, PartitionView
from .places import now_ms
from .store import Store
from .views import read_views


def read_booked(store: Store) -> tuple[Booking, ...]:
    """Return the bookings of nodes. Raises ServerUnreachable."""
    return read_bookings(store.read("hgetall", store.keys.shared("bookings")))


def read_holds(store: Store) -> dict[str, frozenset[tuple[str, int]]]:
    """Return by name the nodes that hold it back now, each with its incarnation. Raises ServerUnreachable.

    There may be 100,000 lines, and schedulers read them often: only those of holds are parsed.
    """
    fields: dict[bytes, bytes] = store.read("hgetall", store.keys.shared("streaks"))
    holds: list[Streak] = []
    for name, text in fields.items():
        if b" held=" in text:
            lines = [line for line in text.split(b"\n") if b" held=" in line]
            holds += Streak.read(readable(name), readable(b"\n".join(lines)))
    now = now_ms(store) if holds else 0
    nodes: dict[str, set[tuple[str, int]]] = {}
    for hold in holds:
        if hold.held_ms > now:
            nodes.setdefault(hold.name, set()).add((hold.node, hold.inc))
    return {name: frozenset(some) for name, some in nodes.items()}


def read_node_views(store: Store) -> list[NodeView]:
    """Return every node, by name, and for whom each is reserved. Raises ServerUnreachable."""
    return read_all_views(store)[1]


def read_all_views(
    store: Store, read: Callable[[Store], Iterable[tuple[PartitionView, list[NodeView]]]] = read_views
) -> tuple[list[PartitionView], list[NodeView]]:
    """Return every partition by number, and what `read_node_views` returns. Raises ServerUnreachable.

    read: how they are read, that of a ViewReader if it is done often.
    """
    found = list(read(store))
    views = sorted((node for _, nodes in found for node in nodes), key=lambda node: node.name)
    whom = {booking.node: booking.whom for booking in read_booked(store)} if views else {}
    views = [replace(view, reserved=whom[view.name]) if view.name in whom else view for view in views]
    return [partition for partition, _ in found], views
