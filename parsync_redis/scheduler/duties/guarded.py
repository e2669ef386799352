"""Do a part of a leader's work so that damage, or a primary that is away, keeps no other part from being done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ResponseError

from ...errors import BrokenContract
from ...store.quarantine import quarantine
from ...store.server_errors import AWAY, is_damage
from ...store.store import Store


def guarded(store: Store, what: str, do: Callable[..., object], *args: Any) -> None:
    """Call `do` with `args`; put damage that it meets into quarantine. what: names this part of the work there."""
    try:
        with unless_away(store):
            do(*args)
    except (BrokenContract, ResponseError, ValueError) as error:
        if isinstance(error, ResponseError) and not is_damage(error):
            raise
        quarantine(store, f"a leader's {what}", str(error), b"")


@contextmanager
def unless_away(store: Store) -> Iterator[None]:
    """Go on without what is on a primary that is away or takes no writes; with one server there is nothing else."""
    try:
        yield
    except AWAY:
        if not store.several:
            raise
