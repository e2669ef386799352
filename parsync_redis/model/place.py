"""A place: where an attempt of a task holds its lease."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Place:
    """The node, slot and incarnation of an attempt's lease; `since_ms` is when it was committed (server time)."""

    task: str
    attempt: str
    partition: int
    node: str
    slot: int
    inc: int
    since_ms: int


Loss = Literal["", "unstarted", "recalled"]
"""How an attempt was lost: with its lease (""), before it started, or because its run was ended on purpose."""
