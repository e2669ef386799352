"""Read which nodes are booked, for schedulers and for people."""

from dataclasses import replace

from ..model.booking import Booking, read_bookings
from ..model.views import NodeView
from .store import Store
from .views import read_views


def read_booked(store: Store) -> tuple[Booking, ...]:
    """Return the bookings of nodes. Raises ServerUnreachable."""
    return read_bookings(store.read("hgetall", store.keys.shared("bookings")))


def read_node_views(store: Store) -> list[NodeView]:
    """Return every node, by name, and for whom each is reserved. Raises ServerUnreachable."""
    views = sorted((node for _, nodes in read_views(store) for node in nodes), key=lambda node: node.name)
    whom = {booking.node: booking.whom for booking in read_booked(store)} if views else {}
    return [replace(view, reserved=whom[view.name]) if view.name in whom else view for view in views]
