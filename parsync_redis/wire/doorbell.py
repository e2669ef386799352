"""A doorbell: the entry of a node's inbox that tells its worker to look at a lease.

The entry is the text of the lease's place.
"""

import json
from typing import Any

from ..model.ids import readable
from ..model.limits import MAX_MESSAGE
from ..model.place import Place


def read_doorbell(data: bytes) -> Place:
    """Return the place whose lease a worker is to look at.

    Raises ValueError, which says what the entry is instead.
    """
    try:
        return Place.of(readable(data))
    except ValueError:
        raise ValueError(_what_else(data)) from None


def _what_else(data: bytes) -> str:
    """Return, for people, what an entry is that is no doorbell; raises nothing."""
    try:
        payload: Any = json.loads(data) if len(data) <= MAX_MESSAGE else None
    except (ValueError, RecursionError):
        return f"not a doorbell: {data[:60]!r}"
    if isinstance(payload, dict) and isinstance(payload.get("headers"), dict):
        return (
            f"not a doorbell: a message of task {payload['headers'].get('task')!r:.80}, which "
            "nobody may send here"
        )
    return f"not a doorbell: {type(payload).__name__} {payload!r:.60}"
