"""Read which nodes are booked, and which names they hold back, for schedulers and for people."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..model.booking import Booking, read_bookings
from ..model.ids import readable
from ..model.streak import Streak
from ..model.views import NodeView, PartitionView
from .store import Store
from .views import read_views


def read_booked(store: Store) -> tuple[Booking, ...]:
    """Return the bookings of nodes. Raises ServerUnreachable."""
    return read_bookings(store.read("hgetall", store.keys.shared("bookings")))


def read_streaks(store: Store) -> dict[str, list[Streak]]:
    """Return the streaks of nodes by the name of their tasks. Raises ServerUnreachable."""
    fields: dict[bytes, bytes] = store.read("hgetall", store.keys.shared("streaks"))
    return {readable(name): Streak.read(readable(name), readable(text)) for name, text in fields.items()}


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
