"""Find out whether records, counters and notes of a partition's nodes are lines that scripts write, and agree.

The reads are not atomic, so an inconsistency is a suspicion; `repair_partition` checks again atomically.
"""

from collections.abc import Mapping
from typing import Final

from ...model.node import MAX_RECORD
from ...model.text import NODE, TERMS

MOST_GAP: Final = 1_000_000
"""Bits below those of a node that belong to no node, as many as lua/lib/repair/damage.lua lets pass."""


def are_consistent(
    records: Mapping[bytes, bytes], counters: Mapping[bytes, bytes], notes: Mapping[bytes, bytes]
) -> bool:
    """Return True if records, counters and notes of a partition's nodes are consistent."""
    spans = []
    for name, record in records.items():
        if len(record) > MAX_RECORD or not (match := NODE.match(record)):
            return False
        state, inc, drain, first, span = match.group("state", "inc", "drain", "first", "span")
        note = notes.get(name, b"")
        if (drain != b"0") != (TERMS.match(note) is not None) or (state == b"suspect" and (drain != b"0" or not note)):
            return False
        counter = counters.get(name, b"").split(b" ")
        if counter[0] != b"inc=" + inc or (counter[-1] == b"down") != (state == b"down"):
            return False
        spans.append((int(first), int(span)))
    end = 0
    for first_bit, bits in sorted(spans):
        if first_bit < end or first_bit > end + MOST_GAP:
            return False
        end = first_bit + bits
    return records.keys() >= counters.keys() | notes.keys()
