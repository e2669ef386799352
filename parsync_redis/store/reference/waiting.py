"""The queue of the store in memory: tasks by kind, and versions of the kinds' lines."""

import heapq
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ...model.kind import KindLine
from .records import World

KEPT_ENDED_KINDS: Final = 10_000
KINDS_PER_SWEEP: Final = 1000


@dataclass(slots=True)
class KindQueue:
    """The waiting tasks of a kind.

    orders: id -> order. last: an upper bound of the orders. began: no task of the kind waited
    before.
    """

    orders: dict[str, int] = field(default_factory=dict)
    last: int = 0
    why: str = ""
    began: bool = True
    # Every (order, id) of `orders`, and some that have left it.
    _heap: list[tuple[int, str]] = field(default_factory=list)

    def add(self, id: str, order: int) -> None:
        """Add a waiting task."""
        self.orders[id] = order
        self.last = max(self.last, order)
        heapq.heappush(self._heap, (order, id))

    def first(self) -> tuple[int, str]:
        """Return the order and the id of the first task."""
        while self.orders.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0]

    def pop(self) -> str:
        """Remove the first task and return its id."""
        _, id = self.first()
        heapq.heappop(self._heap)
        del self.orders[id]
        return id

    def line(self) -> str:
        """Return the kind's line."""
        return str(KindLine(len(self.orders), self.first()[0], self.last, self.why))


class Waiting:
    """The kinds of which tasks wait."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kinds: dict[str, KindQueue] = {}
        # kind -> the version of its last change, sorted by version
        self.changed: dict[str, int] = {}
        self.version = self.floor = 0
        self._touched: dict[str, None] = {}

    @property
    def pending(self) -> int:
        """The number of waiting tasks."""
        return sum(len(queue.orders) for queue in self.kinds.values())

    def enter(self, kind: str, id: str, order: int) -> None:
        """Add a waiting task to its kind's queue."""
        self._touched[kind] = None
        self.kinds.setdefault(kind, KindQueue()).add(id, order)

    def leave(self, kind: str, id: str) -> None:
        """Remove a task from its kind's queue, if it waits there."""
        queue = self.kinds.get(kind)
        if queue and queue.orders.pop(id, None) is not None:
            self._touched[kind] = None

    def pop(self, kind: str, limit: int) -> list[str]:
        """Remove the first tasks of a kind, `limit` at most, and return their ids."""
        queue = self.kinds.get(kind)
        if queue is None or not queue.orders or not limit:
            return []
        self._touched[kind] = None
        return [queue.pop() for _ in range(min(limit, len(queue.orders)))]

    def write_kinds(self) -> bool:
        """Write a new version of each changed kind; return whether tasks of a new kind wait."""
        began = False
        for kind in self._touched:
            self.version = max(self.version + 1, self.world.now_ms * 100)
            self.changed.pop(kind, None)
            self.changed[kind] = self.version
            queue = self.kinds[kind]
            if queue.orders:
                began = began or queue.began
                queue.began = False
                queue.last = max(queue.last, queue.first()[0])
            else:
                del self.kinds[kind]
        self._touched.clear()
        return began

    def sweep(self) -> None:
        """Forget ended kinds, the oldest first."""
        if len(self.changed) <= 2 * len(self.kinds) + KEPT_ENDED_KINDS:
            return
        newer = (pair for pair in self.changed.items() if pair[1] > self.floor)
        for kind, version in list(islice(newer, KINDS_PER_SWEEP)):
            self.floor = version
            if kind not in self.kinds:
                del self.changed[kind]

    def changes_since(self, since: str, most: int) -> tuple[str, bool, bool, list[tuple[str, str]]]:
        """Return what brings a copy of the lines up to date: (version, anew, more, changes).

        since: the version of the copy. anew: the copy must be made anew. more: further changes
        remain. changes: (kind, line), '' for a kind without waiting tasks; `most` at most.
        """
        first, _, begun_text = since.partition("/")
        seen_version = int(first)
        begun = int(begun_text or first)
        anew = seen_version == 0 or seen_version > self.version or begun < self.floor
        if anew:
            seen_version = 0
            begun = self.version
        names: list[str] = []
        for kind, version in reversed(self.changed.items()):
            if version <= seen_version:
                break
            names.append(kind)
        page = names[::-1][:most]
        changes = [(kind, self.kinds[kind].line() if kind in self.kinds else "") for kind in page]
        last = self.changed[page[-1]] if page else self.version
        if len(page) == len(names):
            return str(self.version), anew, False, changes
        return (f"{last}/{begun}" if begun > last else str(last)), anew, True, changes
