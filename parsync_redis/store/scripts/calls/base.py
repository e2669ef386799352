"""A call: a script with its keys and arguments. What the calls of all families share."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ....model.ids import shards_of
from ....wire.keys import Keys
from ..header import Once, Word
from ..scripts import Script

T = TypeVar("T")
Item = TypeVar("Item")
Reply = Any  # what a script answers: bytes, integers, lists of them


class Call(NamedTuple, Generic[T]):
    """A script with its keys and arguments, and the reader of its reply.

    unsent: keys that the script spells itself.
    parts: the parts of a call on several shards, a call for each shard. The parts are sent instead
        of the call: its keys and args are empty, and `read` joins the answers of the parts.
    """

    script: Script
    keys: Sequence[str]
    args: Sequence[Word]
    read: Callable[[Reply], T]
    unsent: Sequence[str] = ()
    parts: Sequence["Call[Any]"] = ()


def parts_of(calls: Sequence[Call[Any]]) -> Sequence[Call[Any]]:
    """Return the calls that are sent for these calls: the parts of a call, or the call itself."""
    return [part for call in calls for part in call.parts or (call,)]


def join_parts(calls: Sequence[Call[Any]], answers: Iterable[Any]) -> list[Any]:
    """Return the answers of calls, by the answers of their `parts_of`.

    The error of a part is the error of its call.
    """
    part_answers = iter(answers)
    return [
        _join(call, [next(part_answers) for _ in call.parts]) if call.parts else next(part_answers)
        for call in calls
    ]


def _join(call: Call[Any], answers: Sequence[Any]) -> Any:
    for answer in answers:
        if isinstance(answer, Exception):
            return answer
    return call.read(answers)


class Calls:
    """The calls of one cluster. Each family of scripts has a subclass."""

    def __init__(self, keys: Keys, retention_s: int = 86_400, max_starts: int = 3) -> None:
        self.keys = keys
        self.retention_s = retention_s
        self.max_starts = max_starts
        self._fixed: dict[tuple[str, int], list[str]] = {}
        self._queue_keys: dict[tuple[str, int], tuple[list[str], list[str]]] = {}

    def _queue(
        self,
        script: Script,
        read: Callable[[Reply], T],
        once: Once,
        names: tuple[str, ...] = (),
        values: Sequence[Word] = (),
        shard: int = 0,
    ) -> Call[T]:
        """Return a call on a shard of the queue, see Header.arguments."""
        sent, unsent = self._queue_keys.get((script.verb, shard)) or self._spell(script, shard)
        return Call(script, sent, script.arguments(once, names, values), read, unsent)

    def _spell(self, script: Script, shard: int) -> tuple[list[str], list[str]]:
        sent = [self.keys.prefix(kind, shard) for kind in script.keys]
        unsent = [self.keys.prefix(kind, shard) for kind in script.also]
        self._queue_keys[script.verb, shard] = sent, unsent
        return sent, unsent

    def _spread(
        self,
        items: Sequence[Item],
        id_of: Callable[[Item], str],
        make: Callable[[int, Sequence[Item]], Call[list[T]]],
        count: int = 0,
    ) -> Call[list[T]]:
        """Return a call on items, with a part for each shard and an answer for each item.

        make: makes the call on some items, for a shard.
        count: the number of shards, if `make` uses that number too, because another thread may
            learn another number meanwhile.
        """
        count = count or self.keys.shards
        if count == 1 or not items:
            return make(0, items)
        shards = shards_of(map(id_of, items), count)
        if len({*shards}) == 1:
            return make(shards[0], items)
        rows: dict[int, list[int]] = {}
        for row, shard in enumerate(shards):
            rows.setdefault(shard, []).append(row)

        def read(answers: Sequence[Sequence[T]]) -> list[T]:
            answer_by_row: dict[int, T] = {}
            for rows_of_shard, words in zip(rows.values(), answers, strict=True):
                answer_by_row |= zip(rows_of_shard, words, strict=True)
            return [answer_by_row[row] for row in range(len(items))]

        parts = [
            make(shard, [items[row] for row in rows_of_shard])
            for shard, rows_of_shard in rows.items()
        ]
        return Call(parts[0].script, (), (), read, (), parts)

    def _everywhere(
        self, make: Callable[[int], Call[T]], join: Callable[[Sequence[T]], T]
    ) -> Call[T]:
        """Return a call on every shard, with a part for each shard.

        make: makes the call for a shard.
        join: joins the answers.
        """
        if self.keys.shards == 1:
            return make(0)
        parts = [make(shard) for shard in range(self.keys.shards)]
        return Call(parts[0].script, (), (), join, (), parts)

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
        """Return a call on partition `p`, see Header.arguments.

        inboxes: the nodes whose inboxes the call takes.
        """
        keys = self._fixed.get((script.verb, p))
        if keys is None:
            keys = [
                self.keys.partition(p, kind) for kind in script.keys if not kind.startswith("inbox")
            ]
            self._fixed[script.verb, p] = keys
        inbox_keys = [self.keys.inbox(p, node) for node in inboxes]
        return Call(script, keys + inbox_keys, script.arguments(once, names, values), read)


def text(value: bytes | str | int | None) -> str:
    """Return a reply as text, '' for None; damaged bytes are escaped."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return "" if value is None else str(value)


def words(reply: Reply) -> list[str]:
    """Return the values of a reply as text."""
    try:
        return [word.decode() for word in reply]  # the usual reply, and faster
    except (AttributeError, UnicodeDecodeError):
        return [text(word) for word in reply]


def pairs(values: Sequence[Reply]) -> Iterable[tuple[Reply, Reply]]:
    """Return the values of a reply, two at a time."""
    return zip(values[::2], values[1::2], strict=True)


def itself(id: str) -> str:
    """Return the id itself: `id_of` for items that are ids."""
    return id


def optional(value: int | None) -> int | str:
    """Return the argument of a script for a value that may be missing: '' for None."""
    return "" if value is None else value
