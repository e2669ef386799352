"""Keep servers apart: with several servers, one that is away fails its own calls only."""

from collections.abc import Sequence
from typing import Any

from ..store.calls import Call
from ..store.server_errors import AWAY
from ..store.store import Store


def run_apart(store: Store, calls: Sequence[Call[Any]]) -> list[Any]:
    """Run calls in one round trip. With several servers an error takes the place of an answer."""
    return store.run_each(calls) if store.several else store.run_all(calls)


def is_away(store: Store, answer: Any) -> bool:
    """Return whether an answer is the error of a server that is away while others answer; raise any other error."""
    if not isinstance(answer, Exception):
        return False
    if store.several and isinstance(answer, AWAY):
        return True
    raise answer
