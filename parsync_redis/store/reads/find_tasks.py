"""Find tasks by name, node, age and what they hold, and order them: bounded reads that say if the
answer is a part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Final

from ...errors import InvalidInput
from ...model.devices import kind_of
from ...model.ids import readable, shown
from ...model.limits import MAX_BATCH
from ...model.needs import read_amounts
from ...model.place import Place
from ...model.record import TaskLine, read_run
from ...model.task import FINAL, TaskState
from ..store import Store
from .purge import server_ms
from .tasks import (
    ANY,
    GENERATIONS,
    HOLDING,
    FoundTasks,
    later_ids,
    latest_dead,
    list_some,
    waiting_ids,
)

# Find tasks by the beginning of their ids: the server compares, so only matches come back.

MOST_STEPS: Final = 400
"""Pages of a key that are asked for, of 5,000 entries each: so 2 million entries of each shard's
key.
"""

PAGE: Final = 5000
MOST: Final = 10
"""So many matches are enough to say that a beginning is ambiguous."""


def find_prefixed(store: Store, beginning: str) -> list[str]:
    """Return up to `MOST` encoded ids that begin so: of tasks that have not ended, then of those
    that have.

    beginning: encoded as `encode_id` does. It takes a round trip for each 5,000 tasks of the
    fullest shard. Raises AccessDenied for a login that may not list tasks, and ServerUnreachable.
    """
    found: dict[str, None] = {}
    for kind in ("tasks", *GENERATIONS):
        cursors = dict.fromkeys(store.keys.queues(kind), 0)
        for _ in range(MOST_STEPS):
            replies = store.pipe(
                [("hscan", key, cursor, f"{beginning}*", PAGE) for key, cursor in cursors.items()]
            )
            found |= dict.fromkeys(readable(id) for _, page in replies for id in page)
            if len(found) >= MOST:
                return list(found)[:MOST]
            cursors = {
                key: int(cursor)
                for key, (cursor, _) in zip(cursors, replies, strict=True)
                if int(cursor)
            }
            if not cursors:
                break
    return list(found)


MOST_LOOKED: Final = 200_000
"""Entries of keys that are looked at for one answer."""

MOST_WAITING: Final = 10_000
"""Waiting tasks that are looked at, the first in the order of the queue, and as many that are not
due yet.
"""

SORTS: Final = ("age", "run", "ended", "name", "node")
_PAGE: Final = 1000
_ID: Final = attrgetter("id")


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Tasks in some states, of names that match a pattern, on a node, that hold some of a resource,
    of some age.

    older_than_s: since they were submitted, or have ended. holds: a resource or a kind of devices;
    only tasks that are placed or run hold anything. sort: `age` (the oldest first), `run` (the
    longest run first), `ended` (the latest end first), `name` or `node`; '' is the order of
    `list_tasks`.
    """

    states: frozenset[TaskState] = ANY
    name: str = "*"
    node: str = ""
    holds: str = ""
    older_than_s: float = 0.0
    sort: str = ""
    limit: int = 50

    def __post_init__(self) -> None:
        if self.sort not in ("", *SORTS):
            raise InvalidInput(
                f"sort={shown(self.sort)} is not known: known are {', '.join(SORTS)}"
            )

    @property
    def plain(self) -> bool:
        """True if the states alone decide."""
        return (self.name, self.node, self.holds, self.older_than_s, self.sort) == (
            "*",
            "",
            "",
            0.0,
            "",
        )

    @property
    def asks_lines(self) -> bool:
        """True if the lines of tasks must be read to judge or order them."""
        return self.name != "*" or self.older_than_s > 0 or self.sort in ("age", "name")


@dataclass(frozen=True, slots=True)
class SeenTask:
    """A task as the keys of its state tell it, by its encoded id."""

    id: str
    line: TaskLine | None = None
    place: Place | None = None
    started_ms: int | None = None
    ended_ms: int | None = None

    @property
    def name(self) -> str:
        """Return its name, '' if it is not known."""
        return self.line.kind.partition(" ")[0] if self.line else ""

    @property
    def since_ms(self) -> int:
        """Return when it was submitted, or has ended."""
        return self.ended_ms or (self.line.submitted_ms if self.line else 0)


def find_tasks(store: Store, query: TaskQuery) -> FoundTasks:
    """Return the tasks of a query.

    Raises ServerUnreachable, and AccessDenied for a login that may not list tasks.
    """
    if query.plain:
        return list_some(store, query.states, query.limit, MOST_LOOKED)
    now_ms = server_ms(store)
    looked = 0
    part = ""
    found: list[SeenTask] = []
    for page in _pages(store, query):
        looked += len(page)
        some = _with_lines(store, page) if query.asks_lines else page
        found += [seen for seen in some if matches(seen, query, now_ms)]
        if not query.sort and len(found) >= query.limit:
            break
        if looked >= MOST_LOOKED:
            part = f"{looked:,} tasks were looked at"
            break
        if len(page) >= MOST_WAITING:
            part = f"of the tasks that wait, the first {len(page):,} were looked at"
    found = list({seen.id: seen for seen in found}.values())
    chosen = (
        nsmallest(query.limit, found, key=lambda seen: order_of(seen, query.sort, now_ms))
        if query.sort
        else found
    )
    ids = [seen.id for seen in chosen[: query.limit]]
    tasks = [
        task
        for at in range(0, len(ids), MAX_BATCH)
        for task in store.statuses(ids[at : at + MAX_BATCH])
    ]
    return FoundTasks([task for task in tasks if task.state in query.states], part)


def matches(seen: SeenTask, query: TaskQuery, now_ms: int) -> bool:
    """Return whether a task is one of those that are asked for. Pure."""
    place = seen.place
    if query.node and not (place and place.node == query.node):
        return False
    if query.holds and not (place and holds(place, query.holds)):
        return False
    if query.name != "*" and not fnmatchcase(seen.name, query.name):
        return False
    return not query.older_than_s or 0 < seen.since_ms <= now_ms - query.older_than_s * 1000


def holds(place: Place, what: str) -> bool:
    """Return whether a place has some of a resource, or of devices of a kind: 'gpu' of 'gpu@1=0.5',
    'gpu.mem' too.
    """
    names = [name for name, amount in read_amounts(place.asked).items() if amount]
    return any(what in (name, name.partition("@")[0], kind_of(name)) for name in names)


def order_of(seen: SeenTask, sort: str, now_ms: int) -> tuple[Any, ...]:
    """Return what a task is ordered by; tasks that have none of it come last. Pure."""
    if sort == "run":
        run_ms = None if seen.started_ms is None else (seen.ended_ms or now_ms) - seen.started_ms
        return (run_ms is None, -(run_ms or 0), seen.id)
    if sort == "ended":
        return (seen.ended_ms is None, -(seen.ended_ms or 0), seen.id)
    if sort == "node":
        place = seen.place
        return (place is None, place.node if place else "", place.slot if place else 0, seen.id)
    return (seen.name if sort == "name" else "", seen.since_ms, seen.id)


def _pages(store: Store, query: TaskQuery) -> Iterator[list[SeenTask]]:
    """Yield what the keys of these states tell, in pages."""
    states = query.states
    queues = store.keys.queues
    if HOLDING & states:
        for rows in _scan(store, queues("running")):
            yield [seen for seen in (_placed(*row) for row in rows) if _state(seen) in states]
    if query.holds:
        return
    if not query.node:
        yield from _unplaced(store, query)
    if FINAL & states:
        for generation in GENERATIONS:
            for rows in _scan(store, queues(generation)):
                yield [_ended(id, text) for id, text in rows if text.partition(" ")[0] in states]


def _unplaced(store: Store, query: TaskQuery) -> Iterator[list[SeenTask]]:
    states = query.states
    if TaskState.WAITING in states:
        for rows in _scan(store, store.keys.queues("taken")):
            yield [SeenTask(id) for id, _ in rows]
        yield [SeenTask(id) for id in waiting_ids(store, MOST_WAITING, query.name)]
        yield [SeenTask(id) for id in later_ids(store, MOST_WAITING)]
    if TaskState.DEAD in states:
        yield [
            SeenTask(id, ended_ms=int(died_ms))
            for died_ms, id in latest_dead(store, MOST_WAITING - 1)
        ]


def _scan(store: Store, keys: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield the entries of some hashes in pages."""
    for key in keys:
        cursor = 0
        while True:
            at, fields = store.pipe([("hscan", key, cursor, None, _PAGE)])[0]
            yield [(readable(field), readable(value)) for field, value in fields.items()]
            if not (cursor := int(at)):
                break


def _placed(id: str, run: str) -> SeenTask:
    place, started_ms = read_run(run)
    return SeenTask(id, None, place, started_ms)


def _state(seen: SeenTask) -> TaskState:
    return TaskState.PLACED if seen.started_ms is None else TaskState.RUNNING


def _ended(id: str, text: str) -> SeenTask:
    """Read the record of a task that has ended; what is damaged in it is missing."""
    end, line, run, *_ = [*text.split("\n"), "", ""]
    place, started_ms = read_run(run)
    ended = end.partition(" ")[2]
    return SeenTask(
        id,
        _line(line),
        place,
        started_ms,
        int(ended) if ended.isdecimal() and len(ended) < 16 else None,
    )


def _line(text: str) -> TaskLine | None:
    try:
        return TaskLine.of(text)
    except ValueError:
        return None


def _with_lines(store: Store, page: Sequence[SeenTask]) -> list[SeenTask]:
    """Return the same, with the lines of the tasks that have none; a round trip for each 1,000 of a
    shard.
    """
    without = [seen for seen in page if seen.line is None]
    reads: list[tuple[str, str, list[str]]] = []
    for shard, some in store.keys.by_shard(without, _ID):
        ids = [seen.id for seen in some]
        key = store.keys.queue("tasks", shard)
        reads += [("hmget", key, ids[at : at + _PAGE]) for at in range(0, len(ids), _PAGE)]
    replies = store.pipe(reads) if reads else []
    texts = {
        id: text
        for (*_, ids), row in zip(reads, replies, strict=True)
        for id, text in zip(ids, row, strict=True)
    }
    return [
        replace(seen, line=_line(readable(texts[seen.id]))) if texts.get(seen.id) else seen
        for seen in page
    ]
