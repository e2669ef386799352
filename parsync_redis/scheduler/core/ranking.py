"""A ranking: items by their keys, of which the least is found without a look at the others.

A heap whose outdated entries stay until they come up. So a change of a key costs little, however
many items are ranked.
"""

import heapq
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

SPARE_ENTRIES: Final = 64
"""Number of outdated entries that a heap may have besides as many as it has items."""


class Ranking(Generic[T]):
    """Items by their keys. The keys of one ranking can be compared with each other."""

    __slots__ = ("_heap", "_keys", "_number")

    def __init__(self) -> None:
        self._keys: dict[T, Any] = {}
        # (key, a number that breaks ties, item)
        self._heap: list[tuple[Any, int, T]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, item: object) -> bool:
        return item in self._keys

    def __iter__(self) -> Iterator[T]:
        return iter(self._keys)

    def key(self, item: T, default: Any = None) -> Any:
        """Return the key of an item, `default` if it is not here."""
        return self._keys.get(item, default)

    def set(self, item: T, key: Any) -> bool:
        """Add an item, or change its key; return whether anything has changed."""
        keys = self._keys
        if keys.get(item) == key:
            return False
        keys[item] = key
        self._number += 1
        if len(self._heap) > 2 * len(keys) + SPARE_ENTRIES:
            self._heap = [(key, i, item) for i, (item, key) in enumerate(keys.items())]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (key, self._number, item))
        return True

    def discard(self, item: T) -> None:
        """Remove a item, if it is here."""
        self._keys.pop(item, None)
        if not self._keys:
            self._heap.clear()

    def top(self) -> tuple[Any, T] | None:
        """Return the least key and its item; None if no item is here."""
        heap = self._heap
        keys = self._keys
        while heap:
            key, _, item = heap[0]
            if keys.get(item) == key:
                return key, item
            heapq.heappop(heap)
        return None
