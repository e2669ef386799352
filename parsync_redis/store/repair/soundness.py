"""Look whether a partition is sound, piece by piece: a call that looks at 10,000 leases holds up
the whole server.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final, cast

from ...model.limits import MAX_BATCH
from ...model.node import Node, read_nodes
from ..server.server_errors import AWAY
from ..store import Store

PIECE: Final = 100
"""Slots and leases of one call, about: it takes some milliseconds. A node is in one piece."""

LONGEST_NAME: Final = 128


def is_sound(store: Store, p: int, rest: Callable[[], None] = lambda: None) -> bool:
    """Return False if something in partition p contradicts the rest, as far as pieces of it tell.

    The caller judges the whole partition then. rest: called after each piece. Raises what
    `Runner.run` raises.
    """
    records = store.pipe_each([("hgetall", store.keys.partition(p, "nodes"))])[0]
    if isinstance(records, AWAY):
        raise records
    nodes, damaged = (
        read_nodes(cast(dict[bytes, bytes], records)) if isinstance(records, dict) else ({}, True)
    )
    if damaged or any(len(name) > LONGEST_NAME for name in nodes):
        return False
    pieces = _pieces(nodes.values())
    cursor = 0
    most = PIECE
    while True:
        piece = next(pieces, [])
        if cursor and not most and not piece:
            return True
        sound, cursor = store.run(store.commands.look_at_nodes(p, piece, cursor, most))
        if not sound:
            return False
        rest()
        if not cursor:
            # all leases were looked at; nodes may be left
            cursor = 1
            most = 0


def _pieces(nodes: Collection[Node]) -> Iterator[list[str]]:
    """Return the names of the nodes in lists of PIECE slots, about."""
    some = list[str]()
    size = 0
    for node in nodes:
        if some and (size + node.span > PIECE or len(some) == MAX_BATCH):
            yield some
            some = []
            size = 0
        some.append(node.name)
        size += node.span
    if some:
        yield some
