"""A call: a script with its keys and arguments. What the calls of all families share."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ...wire.keys import Keys
from ..header import Once, Word
from ..scripts import Script

T = TypeVar("T")
Reply = Any  # what a script answers: bytes, integers, lists of them


class Call(NamedTuple, Generic[T]):
    """A script with its keys and arguments, and the reader of its reply; `unsent` are keys that it spells itself."""

    script: Script
    keys: Sequence[str]
    args: Sequence[Word]
    read: Callable[[Reply], T]
    unsent: Sequence[str] = ()


class Calls:
    """The calls of one cluster; a family of keys has a subclass each."""

    def __init__(self, keys: Keys, retention_s: int = 86_400, max_starts: int = 3) -> None:
        self.keys, self.retention_s, self.max_starts = keys, retention_s, max_starts
        self._fixed: dict[tuple[str, int], list[str]] = {}
        self._queue_keys: dict[str, tuple[list[str], list[str]]] = {}

    def _queue(
        self,
        script: Script,
        read: Callable[[Reply], T],
        once: Once,
        names: tuple[str, ...] = (),
        values: Sequence[Word] = (),
    ) -> Call[T]:
        """Return a call on the queue, see Header.arguments."""
        sent, unsent = self._queue_keys.get(script.verb) or self._spell(script)
        return Call(script, sent, script.arguments(once, names, values), read, unsent)

    def _spell(self, script: Script) -> tuple[list[str], list[str]]:
        prefixes = {"extra:": self.keys.extra_prefix, "pending:": self.keys.pending_prefix}
        sent, unsent = (
            [prefixes.get(kind) or self.keys.queue(kind) for kind in kinds] for kinds in (script.keys, script.also)
        )
        self._queue_keys[script.verb] = sent, unsent
        return sent, unsent

    def _partition(
        self,
        p: int,
        script: Script,
        read: Callable[[Reply], T],
        once: Once,
        inboxes: Iterable[str] = (),
        names: tuple[str, ...] = (),
        values: Sequence[Word] = (),
    ) -> Call[T]:
        """Return a call on partition `p`, see Header.arguments; `inboxes` are the nodes whose inboxes it takes."""
        keys = self._fixed.get((script.verb, p))
        if keys is None:
            keys = [self.keys.partition(p, kind) for kind in script.keys if not kind.startswith("inbox")]
            self._fixed[script.verb, p] = keys
        more = [self.keys.inbox(p, node) for node in inboxes]
        return Call(script, keys + more, script.arguments(once, names, values), read)


def text(value: bytes | str | int | None) -> str:
    """Return a reply as text, with escapes for damaged bytes; '' for None."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return "" if value is None else str(value)


def words(reply: Reply) -> list[str]:
    """Return a reply's values as text."""
    try:
        return [word.decode() for word in reply]  # the usual case
    except (AttributeError, UnicodeDecodeError):
        return [text(word) for word in reply]


def pairs(values: Sequence[Reply]) -> Iterable[tuple[Reply, Reply]]:
    """Return a reply's values, two at a time."""
    return zip(values[::2], values[1::2], strict=True)


def optional(value: int | None) -> int | str:
    """Return the argument for a value that may be missing: '' for None."""
    return "" if value is None else value
