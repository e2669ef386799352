"""Record every call of some scripts and its reply: layer 4 checks these.

A line of JSON a call and one a reply, in a file for each process:

    ["call", NUMBER, SECONDS, VERB, [{argument: text}, ...]]    an item for each task or lease that it is about
    ["reply", NUMBER, SECONDS, [word, ...]]                     a word an item

The slots that a worker gives to a run, which may be others than those of its place, are recorded as
the verb `give`.

A call without a reply is unknown: it may have happened, or not. Seconds are monotonic, those of one
machine. The names of arguments are those of the script's header; the text of a place is told by its
parts.
"""

import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from parsync_redis.model.place import Place
from parsync_redis.model.replies import Judged
from parsync_redis.store.scripts.calls import Call
from parsync_redis.store.store import Store
from parsync_redis.worker.node.runs import Run, Runs

VERBS: Final = ("submit", "cancel", "commit", "start", "finish", "requeue", "release")
FOLDER: Final = "CHAOS_FOLDER"
_LEFT_OUT: Final = ("message", "rows", "text", "seats", "bits")


def items_of(call: Call[Any]) -> list[dict[str, str]]:
    """Return what a call is about: an item of arguments for each task or lease."""
    args = [
        word.decode(errors="replace") if isinstance(word, bytes) else str(word)
        for word in call.args
    ]
    named = call.script.header.named(args)
    rows = [row._asdict() for row in named.rows] if call.script.header.each else [vars(named)]
    return [
        {**_parts(row), **{name: word for name, word in row.items() if name not in _LEFT_OUT}}
        for row in rows
    ]


def _parts(row: dict[str, str]) -> dict[str, str]:
    """Return the parts of the place that a row of commit or release names."""
    if "text" not in row:
        return {}
    place = Place.of(row["text"] if " since=" in row["text"] else f"{row['text']} since=0")
    return _where(place, place.slots)


def _where(place: Place, slots: Iterable[int]) -> dict[str, str]:
    where = {"node": place.node, "slots": ",".join(map(str, slots)), "inc": str(place.inc)}
    return {
        "task": place.task,
        "attempt": place.attempt,
        **where,
        "partition": str(place.partition),
    }


def words_of(reply: Any) -> list[str]:
    """Return a word an item."""
    if isinstance(reply, Judged):
        return [str(verdict.word) for verdict in reply.verdicts]
    if isinstance(reply, tuple):
        return [reply[0]]
    return [re.sub(r"\W.*", "", word[0] if isinstance(word, tuple) else word) for word in reply]


class Recorder:
    """Appends lines to the file of this process, also after a fork."""

    def __init__(self, folder: Path, who: str) -> None:
        self._folder = folder
        self._who = who
        self._pid = 0
        self._fd = -1
        self._numbers = itertools.count(1)

    def _write(self, line: list[Any]) -> None:
        if (pid := os.getpid()) != self._pid:
            path = self._folder / f"calls-{self._who}-{pid}.log"
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._pid = pid  # last: another thread that sees it writes at once
        os.write(self._fd, json.dumps(line).encode() + b"\n")

    def watch(self) -> Callable[[], None]:
        """Record every call of this process, until the returned function is called.

        On several servers a call is recorded in its parts, one for each shard.
        """
        send = Store._replies
        give = Runs.give

        def recorded(store: Store, calls: Sequence[Call[Any]], **patience: Any) -> list[Any]:
            numbers = {
                i: next(self._numbers) for i, call in enumerate(calls) if call.script.verb in VERBS
            }
            for i, number in numbers.items():
                call = calls[i]
                self._write(["call", number, time.monotonic(), call.script.verb, items_of(call)])
            replies = send(store, calls, **patience)
            now_s = time.monotonic()
            for i, number in numbers.items():
                # an error does not tell whether the call was executed
                if not isinstance(replies[i], Exception):
                    self._write(["reply", number, now_s, words_of(calls[i].read(replies[i]))])
            return replies

        def given(runs: Runs, pairs: Iterable[tuple[Run, tuple[int, ...]]]) -> None:
            """Record the slots before anything can run there."""
            pairs = list(pairs)
            items = [
                {"slot": str(run.place.slot), **_where(run.place, slots)} for run, slots in pairs
            ]
            number = next(self._numbers)
            self._write(["call", number, time.monotonic(), "give", items])
            self._write(["reply", number, time.monotonic(), ["given"] * len(items)])
            give(runs, pairs)

        def end() -> None:
            Store._replies = send  # type: ignore[method-assign]
            Runs.give = give  # type: ignore[method-assign]

        Store._replies = recorded  # type: ignore[method-assign, assignment]
        Runs.give = given  # type: ignore[method-assign, assignment]
        return end


def watch_this_process(who: str) -> None:
    """Record if the environment names a folder."""
    if folder := os.environ.get(FOLDER):
        Recorder(Path(folder), who).watch()
