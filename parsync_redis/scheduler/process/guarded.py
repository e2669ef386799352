"""Do a part of a leader's work so that damage, or a primary that is away, keeps no other part from
being done.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from ...errors import BrokenContract
from ...model.limits import MAX_BATCH
from ...store.repair.quarantine import quarantine
from ...store.scripts.calls import Call
from ...store.server.server_errors import AWAY, is_damage
from ...store.store import Store

# Keep servers apart: with several servers, one that is away fails its own calls only.


def run_apart(store: Store, calls: Sequence[Call[Any]]) -> list[Any]:
    """Run calls in one round trip. With several servers an error takes the place of an answer."""
    return store.run_each(calls) if store.several else store.run_all(calls)


def is_away(store: Store, answer: Any) -> bool:
    """Return whether an answer is the error of a server that is away while others answer; raise any
    other error.
    """
    if not isinstance(answer, Exception):
        return False
    if store.several and isinstance(answer, AWAY):
        return True
    raise answer


T = TypeVar("T")


def guarded(store: Store, what: str, do: Callable[..., object], *args: Any) -> None:
    """Call `do` with `args`; put damage that it meets into quarantine.

    what: names this part of the work there.
    """
    try:
        with unless_away(store):
            do(*args)
    except (BrokenContract, ResponseError, ValueError) as error:
        if isinstance(error, ResponseError) and not is_damage(error):
            raise
        quarantine(store, f"a leader's {what}", str(error), b"")


def run_guarded(store: Store, what: str, calls: Sequence[Call[Any]]) -> list[Any]:
    """Run calls in one round trip; return None in the place of each answer that `guarded` would go
    on without.
    """
    answers = store.run_each(calls)
    for at, answer in enumerate(answers):
        if isinstance(answer, Exception):
            guarded(store, what, _raise, answer)
            answers[at] = None
    return answers


def run_parts(
    store: Store, what: str, parts: Sequence[Sequence[T]], make: Callable[[Sequence[T]], Call[Any]]
) -> list[T]:
    """Run the call that `make` makes for each part, all in one round trip; return the rows of those
    that are accepted.

    Of a part that is refused each row is a call by itself, so that one that is damaged holds up no
    other.
    """
    answers = store.run_each([make(part) for part in parts])
    singles: list[Sequence[T]] = []
    done: list[T] = []
    for part, answer in zip(parts, answers, strict=True):
        if not isinstance(answer, Exception):
            done += part
        elif isinstance(answer, AWAY):
            guarded(store, what, _raise, answer)
        else:
            singles += ([row] for row in part)
    for single, answer in zip(
        singles, run_guarded(store, what, [make(single) for single in singles]), strict=True
    ):
        done += single if answer is not None else ()
    return done


def batches(items: Sequence[T]) -> list[Sequence[T]]:
    """Return the items in batches of at most MAX_BATCH."""
    return [items[at : at + MAX_BATCH] for at in range(0, len(items), MAX_BATCH)]


def _raise(error: Exception) -> None:
    raise error


@contextmanager
def unless_away(store: Store) -> Iterator[None]:
    """Go on without what is on a primary that is away or takes no writes; with one server there is
    nothing else.
    """
    try:
        yield
    except AWAY:
        if not store.several:
            raise
