"""Find tasks by the beginning of an id, or by name, node, age and resources; order them.

Each read is bounded. An answer that is only a part says why.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Final

from ...errors import InvalidInput
from ...model.account import TENANT_MARK
from ...model.devices import kind_of
from ...model.ids import readable, shown
from ...model.kind import split_kind
from ...model.limits import MAX_BATCH
from ...model.needs import read_amounts
from ...model.place import Place
from ...model.record import TaskLine, read_run
from ...model.task import FINAL, TaskState
from ..store import Store
from .cancel import server_ms
from .tasks import (
    ANY,
    GENERATIONS,
    HOLDING,
    FoundTasks,
    later_ids,
    latest_dead,
    list_bounded,
    waiting_ids,
)

MAX_SCAN_STEPS: Final = 400
"""Maximum number of pages of a key: with IDS_PER_SCAN, 2 million entries of each shard's key."""

IDS_PER_SCAN: Final = 5000
MAX_PREFIX_MATCHES: Final = 10
"""Maximum number of ids that find_prefixed returns: two ids already make a beginning ambiguous."""


def find_prefixed(store: Store, beginning: str) -> list[str]:
    """Return up to MAX_PREFIX_MATCHES encoded ids that begin with `beginning`.

    Ids of tasks that have not ended come first. beginning: encoded as `encode_id` does. The server
    compares, so only matches come back. Takes a round trip for each 5,000 tasks of the fullest
    shard. Raises AccessDenied for a login that may not list tasks, and ServerUnreachable.
    """
    ids: dict[str, None] = {}
    for kind in ("tasks", *GENERATIONS):
        cursors = dict.fromkeys(store.keys.queues(kind), 0)
        for _ in range(MAX_SCAN_STEPS):
            replies = store.pipe(
                [
                    ("hscan", key, cursor, f"{beginning}*", IDS_PER_SCAN)
                    for key, cursor in cursors.items()
                ]
            )
            ids |= dict.fromkeys(readable(id) for _, page in replies for id in page)
            if len(ids) >= MAX_PREFIX_MATCHES:
                return list(ids)[:MAX_PREFIX_MATCHES]
            next_cursors = [int(cursor) for cursor, _ in replies]
            cursors = dict(zip(cursors, next_cursors, strict=True))
            cursors = {key: cursor for key, cursor in cursors.items() if cursor}
            if not cursors:
                break
    return list(ids)


MAX_LOOKED: Final = 200_000
"""Maximum number of entries of keys that are read for one answer."""

MAX_WAITING_LOOKED: Final = 10_000
"""Maximum number of waiting tasks that are read, in queue order, and of tasks not due yet."""

SORTS: Final = ("age", "run", "ended", "name", "node")
_ENTRIES_PER_SCAN: Final = 1000
_id_of: Final = attrgetter("id")


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Criteria for tasks: states, name, node, resource, age, accounts; and the order of the answer.

    name: a pattern.
    holds: a resource or a kind of devices; only placed and running tasks hold any.
    tenant: a tenant; tasks of the tenants below it count too.
    under: a limit.
    older_than_s: seconds since the task was submitted, or has ended.
    sort: `age` (the oldest first), `run` (the longest run first), `ended` (the latest end first),
        `name` or `node`; '' is the order of `list_tasks`.
    """

    states: frozenset[TaskState] = ANY
    name: str = "*"
    node: str = ""
    holds: str = ""
    older_than_s: float = 0.0
    sort: str = ""
    limit: int = 50
    tenant: str = ""
    under: str = ""

    def __post_init__(self) -> None:
        if self.sort not in ("", *SORTS):
            raise InvalidInput(
                f"sort={shown(self.sort)} is not known: known are {', '.join(SORTS)}"
            )

    @property
    def plain(self) -> bool:
        """True if the states are the only criterion."""
        criteria = (self.node, self.holds, self.older_than_s, self.tenant, self.under, self.sort)
        return self.name == "*" and not any(criteria)

    @property
    def accounts(self) -> frozenset[str]:
        """The accounts that a task must count to."""
        tenant = TENANT_MARK + self.tenant if self.tenant else ""
        return frozenset(account for account in (tenant, self.under) if account)

    @property
    def asks_lines(self) -> bool:
        """True if the lines of tasks must be read to judge or order the tasks."""
        has_account = bool(self.tenant or self.under)
        is_by_line = self.name != "*" or self.older_than_s > 0 or has_account
        return is_by_line or self.sort in ("age", "name")


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task as an entry of one key tells of it. id: encoded."""

    id: str
    line: TaskLine | None = None
    place: Place | None = None
    started_ms: int | None = None
    ended_ms: int | None = None

    @property
    def name(self) -> str:
        """The task's name, '' if unknown."""
        return self.line.kind.partition(" ")[0] if self.line else ""

    @property
    def accounts(self) -> frozenset[str]:
        """The accounts that the task counts to; none if unknown."""
        kind = split_kind(self.line.kind) if self.line else None
        return frozenset(account.name for account in kind.accounts) if kind else frozenset()

    @property
    def since_ms(self) -> int:
        """When the task ended, or was submitted if it has not ended; 0 if unknown."""
        return self.ended_ms or (self.line.submitted_ms if self.line else 0)


def find_tasks(store: Store, query: TaskQuery, most_looked: int | None = None) -> FoundTasks:
    """Return the tasks of a query, after about `most_looked` tasks at most, else MAX_LOOKED.

    Raises ServerUnreachable, and AccessDenied for a login that may not list tasks.
    """
    most_looked = most_looked or MAX_LOOKED
    if query.plain:
        return list_bounded(store, query.states, query.limit, most_looked)
    now_ms = server_ms(store)
    looked = 0
    part = ""
    selected: list[TaskEntry] = []
    for page in _pages(store, query):
        looked += len(page)
        entries = _with_lines(store, page) if query.asks_lines else page
        selected += [entry for entry in entries if matches(entry, query, now_ms)]
        if not query.sort and len(selected) >= query.limit:
            break
        if looked >= most_looked:
            part = f"{looked:,} tasks were looked at"
            break
        if len(page) >= MAX_WAITING_LOOKED:
            part = f"of the tasks that wait, the first {len(page):,} were looked at"
    selected = list({entry.id: entry for entry in selected}.values())
    chosen = (
        nsmallest(query.limit, selected, key=lambda entry: order_of(entry, query.sort, now_ms))
        if query.sort
        else selected
    )
    ids = [entry.id for entry in chosen[: query.limit]]
    tasks = [
        task
        for start in range(0, len(ids), MAX_BATCH)
        for task in store.statuses(ids[start : start + MAX_BATCH])
    ]
    return FoundTasks([task for task in tasks if task.state in query.states], part)


def matches(entry: TaskEntry, query: TaskQuery, now_ms: int) -> bool:
    """Return whether a task meets the criteria of a query. Pure."""
    place = entry.place
    if query.node and not (place and place.node == query.node):
        return False
    if query.holds and not (place and holds(place, query.holds)):
        return False
    if query.name != "*" and not fnmatchcase(entry.name, query.name):
        return False
    if query.accounts and not entry.accounts >= query.accounts:
        return False
    return not query.older_than_s or 0 < entry.since_ms <= now_ms - query.older_than_s * 1000


def holds(place: Place, resource: str) -> bool:
    """Return whether a place has some of a resource, or some devices of a kind.

    The place 'gpu@1=0.5 gpu.mem@1=4' holds gpu@1, gpu and gpu.mem.
    """
    names = [name for name, amount in read_amounts(place.asked).items() if amount]
    return any(resource in (name, name.partition("@")[0], kind_of(name)) for name in names)


def order_of(entry: TaskEntry, sort: str, now_ms: int) -> tuple[Any, ...]:
    """Return the sort key of a task; a task without the sorted value comes last. Pure."""
    if sort == "run":
        run_ms = None if entry.started_ms is None else (entry.ended_ms or now_ms) - entry.started_ms
        return (run_ms is None, -(run_ms or 0), entry.id)
    if sort == "ended":
        return (entry.ended_ms is None, -(entry.ended_ms or 0), entry.id)
    if sort == "node":
        place = entry.place
        return (place is None, place.node if place else "", place.slot if place else 0, entry.id)
    return (entry.name if sort == "name" else "", entry.since_ms, entry.id)


def _pages(store: Store, query: TaskQuery) -> Iterator[list[TaskEntry]]:
    """Yield the entries of the keys of these states, in pages."""
    states = query.states
    queues = store.keys.queues
    if HOLDING & states:
        for rows in _scan(store, queues("running")):
            yield [entry for entry in (_placed(*row) for row in rows) if _state(entry) in states]
    if query.holds:
        return
    if not query.node:
        yield from _unplaced(store, query)
    if FINAL & states:
        for generation in GENERATIONS:
            for rows in _scan(store, queues(generation)):
                yield [_ended(id, text) for id, text in rows if text.partition(" ")[0] in states]


def _unplaced(store: Store, query: TaskQuery) -> Iterator[list[TaskEntry]]:
    states = query.states
    if TaskState.WAITING in states:
        for rows in _scan(store, store.keys.queues("taken")):
            yield [TaskEntry(id) for id, _ in rows]
        waiting = (store, MAX_WAITING_LOOKED, query.name, query.accounts)
        yield [TaskEntry(id) for id in waiting_ids(*waiting)]
        yield [TaskEntry(id) for id in later_ids(store, MAX_WAITING_LOOKED)]
    if TaskState.DEAD in states:
        yield [
            TaskEntry(id, ended_ms=int(died_ms))
            for died_ms, id in latest_dead(store, MAX_WAITING_LOOKED - 1)
        ]


def _scan(store: Store, keys: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield the entries of some hashes, in pages."""
    for key in keys:
        cursor = 0
        while True:
            next_cursor, fields = store.pipe([("hscan", key, cursor, None, _ENTRIES_PER_SCAN)])[0]
            yield [(readable(field), readable(value)) for field, value in fields.items()]
            if not (cursor := int(next_cursor)):
                break


def _placed(id: str, run: str) -> TaskEntry:
    place, started_ms = read_run(run)
    return TaskEntry(id, None, place, started_ms)


def _state(entry: TaskEntry) -> TaskState:
    return TaskState.PLACED if entry.started_ms is None else TaskState.RUNNING


def _ended(id: str, text: str) -> TaskEntry:
    """Return the entry of an ended task from its record; damaged values are None."""
    end, line, run, *_ = [*text.split("\n"), "", ""]
    place, started_ms = read_run(run)
    ended_text = end.partition(" ")[2]
    is_time = ended_text.isdecimal() and len(ended_text) < 16
    return TaskEntry(id, _line(line), place, started_ms, int(ended_text) if is_time else None)


def _line(text: str) -> TaskLine | None:
    try:
        return TaskLine.of(text)
    except ValueError:
        return None


def _with_lines(store: Store, page: Sequence[TaskEntry]) -> list[TaskEntry]:
    """Return the entries, with the lines of tasks added where they are missing.

    Takes a round trip for each 1,000 tasks of a shard.
    """
    without = [entry for entry in page if entry.line is None]
    reads: list[tuple[str, str, list[str]]] = []
    for shard, shard_entries in store.keys.by_shard(without, _id_of):
        ids = [entry.id for entry in shard_entries]
        key = store.keys.queue("tasks", shard)
        reads += [
            ("hmget", key, ids[start : start + _ENTRIES_PER_SCAN])
            for start in range(0, len(ids), _ENTRIES_PER_SCAN)
        ]
    replies = store.pipe(reads) if reads else []
    texts = {
        id: text
        for (*_, ids), row in zip(reads, replies, strict=True)
        for id, text in zip(ids, row, strict=True)
    }
    return [
        replace(entry, line=_line(readable(texts[entry.id]))) if texts.get(entry.id) else entry
        for entry in page
    ]
