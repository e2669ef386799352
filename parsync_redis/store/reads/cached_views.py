"""Read the views of nodes and partitions again and again, and parse only what has changed."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...model.node import Node
from ...model.views import NodeView, PartitionView
from ..store import Store
from .live_nodes import live_nodes
from .views import complete, fetch, view_of


class ViewReader:
    """Reads the views again and again.

    It makes that of a node anew only if something about the node has changed.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes], _Known] = {}

    def read(self, store: Store) -> Iterator[tuple[PartitionView, list[NodeView]]]:
        """Yield what `read_views` yields. Raises ServerUnreachable."""
        before = self._known
        self._known = {}
        for number, (meta, free, left, records, notes, counters) in fetch(store):
            raws = {}
            for raw, record in records.items():
                counter = counters.get(raw, b"")
                raws[raw] = (
                    record,
                    left.get(raw),
                    notes.get(raw),
                    counter if b"since" in counter else b"",
                )
                known = before.get((number, raw))
                if known and known.raws == raws[raw] and known.bits == _bits(free, known.node):
                    self._known[number, raw] = known
            new = {
                raw: record for raw, record in records.items() if (number, raw) not in self._known
            }
            for state in live_nodes(number, free, left, new, notes, counters):
                node = state.node
                raw = state.node.name.encode()
                self._known[number, raw] = _Known(
                    raws[raw], _bits(free, node), node, view_of(state)
                )
            found = [
                self._known[number, raw] for raw in sorted(records) if (number, raw) in self._known
            ]
            yield complete(store, number, meta, [(known.node, known.view) for known in found])


@dataclass(frozen=True, slots=True)
class _Known:
    """A node as it was read: from these texts and bits, and its view without what its
    leases tell.
    """

    raws: tuple[bytes | None, ...]
    bits: bytes
    node: Node
    view: NodeView


def _bits(free: bytes | None, node: Node) -> bytes:
    """Return the bytes of the bitmap that have the bits of a node, and perhaps some of its
    neighbours.
    """
    return (free or b"")[node.first // 8 : (node.first + node.span + 7) // 8]
