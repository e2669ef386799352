"""Read the views of nodes and partitions again and again; parse only nodes that have changed."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...model.node import Node
from ...model.views import NodeView, PartitionView
from ..store import Store
from .live_nodes import live_nodes
from .views import complete, fetch, view_of


class ViewReader:
    """A reader of the views that keeps the view of each node until the node changes."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[int, bytes], _ParsedNode] = {}

    def read(self, store: Store) -> Iterator[tuple[PartitionView, list[NodeView]]]:
        """Yield what `read_views` yields. Raises ServerUnreachable."""
        before = self._parsed
        self._parsed = {}
        for number, (meta, free, amounts_left, records, notes, counters) in fetch(store):
            raws = {}
            for raw, record in records.items():
                counter = counters.get(raw, b"")
                raws[raw] = (
                    record,
                    amounts_left.get(raw),
                    notes.get(raw),
                    counter if b"since" in counter else b"",
                )
                parsed = before.get((number, raw))
                if parsed and parsed.raws == raws[raw] and parsed.bits == _bits(free, parsed.node):
                    self._parsed[number, raw] = parsed
            changed = {
                raw: record for raw, record in records.items() if (number, raw) not in self._parsed
            }
            for state in live_nodes(number, free, amounts_left, changed, notes, counters):
                node = state.node
                raw = state.node.name.encode()
                self._parsed[number, raw] = _ParsedNode(
                    raws[raw], _bits(free, node), node, view_of(state)
                )
            readable_names = [raw for raw in sorted(records) if (number, raw) in self._parsed]
            parsed_nodes = [self._parsed[number, raw] for raw in readable_names]
            nodes_and_views = [(parsed.node, parsed.view) for parsed in parsed_nodes]
            yield complete(store, number, meta, nodes_and_views)


@dataclass(frozen=True, slots=True)
class _ParsedNode:
    """A parsed node.

    raws: the texts from which the node was parsed.
    bits: the node's part of the bitmap.
    view: the node's view, without the fields that only its leases tell.
    """

    raws: tuple[bytes | None, ...]
    bits: bytes
    node: Node
    view: NodeView


def _bits(free: bytes | None, node: Node) -> bytes:
    """Return the bytes of the bitmap that have the bits of a node.

    The first and the last byte may also have bits of the node's neighbours.
    """
    return (free or b"")[node.first // 8 : (node.first + node.span + 7) // 8]
