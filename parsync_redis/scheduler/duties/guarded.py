"""Do a part of a leader's work so that damage which it meets keeps no other part from being done."""

from collections.abc import Callable
from typing import Any

from redis.exceptions import ResponseError

from ...errors import BrokenContract
from ...store.quarantine import quarantine
from ...store.server_errors import is_damage
from ...store.store import Store


def guarded(store: Store, what: str, do: Callable[..., object], *args: Any) -> None:
    """Call `do` with `args`; put damage that it meets into quarantine. what: names this part of the work there."""
    try:
        do(*args)
    except (BrokenContract, ResponseError, ValueError) as error:
        if isinstance(error, ResponseError) and not is_damage(error):
            raise
        quarantine(store, f"a leader's {what}", str(error), b"")
