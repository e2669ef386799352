"""Check whether a partition is sound, piece by piece.

A call that checked 10,000 leases would hold up the whole server.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final, cast

from ...model.limits import MAX_BATCH
from ...model.node import Node, read_nodes
from ..server.server_errors import AWAY
from ..store import Store

SLOTS_PER_LOOK: Final = 100
"""Approximate number of slots and leases in one call, which takes some milliseconds.

A node is never split between calls.
"""

MAX_NAME_LENGTH: Final = 128


def is_sound(store: Store, p: int, pause: Callable[[], None] = lambda: None) -> bool:
    """Return False if partition p has a contradiction that a check of its pieces finds.

    The caller repairs the whole partition then. pause: is called after each piece. Raises what
    `Runner.run` raises.
    """
    records = store.pipe_each([("hgetall", store.keys.partition(p, "nodes"))])[0]
    if isinstance(records, AWAY):
        raise records
    nodes, damaged = (
        read_nodes(cast(dict[bytes, bytes], records)) if isinstance(records, dict) else ({}, True)
    )
    if damaged or any(len(name) > MAX_NAME_LENGTH for name in nodes):
        return False
    pieces = _pieces(nodes.values())
    cursor = 0
    most = SLOTS_PER_LOOK
    while True:
        piece = next(pieces, [])
        if cursor and not most and not piece:
            return True
        sound, cursor = store.run(store.commands.look_at_nodes(p, piece, cursor, most))
        if not sound:
            return False
        pause()
        if not cursor:
            # All leases were looked at. Some nodes may remain.
            cursor = 1
            most = 0


def _pieces(nodes: Collection[Node]) -> Iterator[list[str]]:
    """Yield the names of the nodes in lists of about SLOTS_PER_LOOK slots."""
    names = list[str]()
    size = 0
    for node in nodes:
        if names and (size + node.span > SLOTS_PER_LOOK or len(names) == MAX_BATCH):
            yield names
            names = []
            size = 0
        names.append(node.name)
        size += node.span
    if names:
        yield names
