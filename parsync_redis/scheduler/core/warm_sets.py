"""How many nodes the warm set of each key has, by what the tasks of the key hold.

The number follows Little's law: the mean number of tasks at a time, or the present number and one
more if that is higher. The set grows at once, and shrinks by a node in SHRINK_MS.
"""

from dataclasses import dataclass
from math import exp
from typing import Final

from ...placement.preferences.ring import NodeRing

MEAN_MS: Final = 60_000.0
"""The time over which the mean number of tasks is taken: older numbers count e-fold less."""
SHRINK_MS: Final = 30_000.0
"""A warm set gives a node back at most once in this time, because the node may soon be needed."""


@dataclass(slots=True)
class WarmSet:
    """The demand of a key.

    tasks: number of its tasks that are taken, placed or running.
    mean: of `tasks` over the last minute.
    since_ms: when `tasks` changed last (server time).
    size: number of nodes.
    shrunk_ms: when the set lost a node last, or was as large as it had to be.
    """

    tasks: int = 0
    mean: float = 0.0
    since_ms: float = 0.0
    size: int = 0
    shrunk_ms: float = 0.0

    def on_tasks(self, tasks: int, now_ms: float) -> None:
        """Note how many tasks of the key are held from now on (server time)."""
        self.mean = self._mean(now_ms)
        self.since_ms = max(now_ms, self.since_ms)
        self.tasks = tasks

    def _mean(self, now_ms: float) -> float:
        """Return the mean number of held tasks until now."""
        weight = exp(-max(0.0, now_ms - self.since_ms) / MEAN_MS)
        return weight * self.mean + (1 - weight) * self.tasks

    def nodes(self, ring: NodeRing, now_ms: float) -> int:
        """Return the number of nodes of the set now."""
        needed = ring.size_for(max(self.tasks + 1.0, self._mean(now_ms)))
        if needed >= self.size:
            self.size = needed
            self.shrunk_ms = now_ms
        elif now_ms - self.shrunk_ms >= SHRINK_MS:
            self.size -= 1
            self.shrunk_ms = now_ms
        return self.size
