"""Calls of the leader's work that go on when a part meets damage, or a primary that is away."""

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


def run_apart(store: Store, calls: Sequence[Call[Any]]) -> list[Any]:
    """Run calls in one round trip; with several servers an error stands in for its answer.

    So a server that is away fails only its own calls.
    """
    return store.run_each(calls) if store.several else store.run_all(calls)


def is_away(store: Store, answer: Any) -> bool:
    """Return whether an answer is the error of one of several servers that is away.

    Raises any other error.
    """
    if not isinstance(answer, Exception):
        return False
    if store.several and isinstance(answer, AWAY):
        return True
    raise answer


T = TypeVar("T")


def guarded(store: Store, duty: str, do: Callable[..., object], *args: Any) -> None:
    """Call `do` with `args`; put damage that `do` meets into quarantine.

    An error of a server that is away is ignored if there are several servers. duty: names the part
    of the leader's work in the quarantine.
    """
    try:
        with unless_away(store):
            do(*args)
    except (BrokenContract, ResponseError, ValueError) as error:
        if isinstance(error, ResponseError) and not is_damage(error):
            raise
        quarantine(store, f"a leader's {duty}", str(error), b"")


def run_guarded(store: Store, duty: str, calls: Sequence[Call[Any]]) -> list[Any]:
    """Run calls in one round trip.

    Return None in the place of errors that `guarded` does not raise. Damage goes to quarantine.
    duty: names the part of the leader's work there.
    """
    answers = store.run_each(calls)
    for index, answer in enumerate(answers):
        if isinstance(answer, Exception):
            guarded(store, duty, _raise, answer)
            answers[index] = None
    return answers


def run_parts(
    store: Store, duty: str, parts: Sequence[Sequence[T]], make: Callable[[Sequence[T]], Call[Any]]
) -> list[T]:
    """Run the call of each part, all in one round trip; return the rows that were accepted.

    If a part is refused, each of its rows is sent again in a call by itself, so that a damaged row
    holds up no other row. make: makes the call of some rows.
    """
    answers = store.run_each([make(part) for part in parts])
    singles: list[Sequence[T]] = []
    done: list[T] = []
    for part, answer in zip(parts, answers, strict=True):
        if not isinstance(answer, Exception):
            done += part
        elif isinstance(answer, AWAY):
            guarded(store, duty, _raise, answer)
        else:
            singles += ([row] for row in part)
    for single, answer in zip(
        singles, run_guarded(store, duty, [make(single) for single in singles]), strict=True
    ):
        done += single if answer is not None else ()
    return done


def batches(items: Sequence[T]) -> list[Sequence[T]]:
    """Return the items in batches of at most MAX_BATCH."""
    return [items[start : start + MAX_BATCH] for start in range(0, len(items), MAX_BATCH)]


def _raise(error: Exception) -> None:
    """Raise this error."""
    raise error


@contextmanager
def unless_away(store: Store) -> Iterator[None]:
    """Go on without what is on a primary that is away or takes no writes.

    With one server the error is raised, because there is nothing else.
    """
    try:
        yield
    except AWAY:
        if not store.several:
            raise
