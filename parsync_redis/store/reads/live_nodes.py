"""Nodes as they are now, from the records of a partition."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...model.ids import readable
from ...model.needs import read_amounts
from ...model.node import Node, read_nodes
from ...model.text import COUNTER


def note_of(node: Node, note: str) -> str:
    """Return a node's note, '' if the node is neither drained nor suspect any more."""
    return note if node.draining or node.state == "suspect" else ""


def _down_ms(counter: bytes) -> int | None:
    """Return when a node was marked down (ms), None if it is up or the line is damaged.

    counter: the line of the node's counter.
    """
    since = (COUNTER.read(readable(counter)) or {}).get("since")
    return int(since) if since else None


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node as it is now.

    free: the number of free slots.
    free_ahead: the number of free waiting seats.
    amounts_left: thousandths by name.
    note: why the node is drained or suspect.
    down_ms: when the node was marked down, None if it is up.
    """

    partition: int
    node: Node
    free: int
    free_ahead: int
    amounts_left: Mapping[str, int]
    note: str
    down_ms: int | None


def count_bits(bitmap: bytes, first: int, count: int) -> int:
    """Return how many of `count` bits from bit `first` on are 1.

    Does without numpy, whose import takes longer than the count.
    """
    part = bitmap[first // 8 : (first + count + 7) // 8]
    width = max(0, 8 * len(part) - first % 8)
    return ((int.from_bytes(part, "big") & ((1 << width) - 1)) >> max(0, width - count)).bit_count()


def live_nodes(
    number: int,
    free: bytes | None,
    amounts_left: dict[bytes, bytes],
    records: dict[bytes, bytes],
    notes: dict[bytes, bytes],
    counters: dict[bytes, bytes],
) -> list[LiveNode]:
    """Return the nodes of a partition by name, from the replies to the commands of `reads_of`.

    number: the partition.
    free: the bitmap.
    amounts_left, records, notes, counters: the hashes `left`, `nodes`, `notes` and `alive` of the
        partition.
    """
    nodes = []
    for name, node in sorted(read_nodes(records)[0].items()):
        nodes.append(
            LiveNode(
                number,
                node,
                count_bits(free or b"", node.first, node.offer.slots),
                count_bits(free or b"", node.first + node.offer.slots, node.waiting_seats),
                read_amounts(readable(amounts_left.get(name.encode(), b""))),
                note_of(node, readable(notes.get(name.encode(), b""))),
                _down_ms(counters.get(name.encode(), b"")),
            )
        )
    return nodes
