"""Look-ahead: how many waiting seats a node wants open, by the run times of its latest tasks.

A task may wait at its worker while a short task runs (decision 0028). A node that runs long
tasks shuts its waiting seats: it switches its look-ahead off.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Final

from ...model.times import RunTimes

MAX_SEATS_OF_SLOT: Final = 3
"""Maximum number of waiting seats behind one slot."""
MAX_SLOTS_AHEAD: Final = 16
"""A node with more slots has no waiting seats, because its slots need not follow so closely."""
SHORT_TASK_S: Final = 0.05
"""Tasks of a name whose 95th percentile is below this are short."""
LATE_BEGIN_S: Final = 0.05
"""A task that has not begun this long after it should have is handed back."""
RECENT_RUNS: Final = 16
"""The latest runs that decide: one long run among them shuts the waiting seats."""
FIRST_SHORT_RUNS: Final = 4
"""A node that has just started opens its waiting seats after so many short runs."""


def room_of(slots: int, concurrency: int) -> int:
    """Return the number of waiting seats behind the slots of a node.

    concurrency: the number of tasks that the pool runs at a time.
    """
    return MAX_SEATS_OF_SLOT * slots if slots <= min(concurrency, MAX_SLOTS_AHEAD) else 0


class LookAhead:
    """The run times that a node has learnt, and the waiting seats that follow from them.

    All threads share it.
    """

    def __init__(self, slots: int, room: int) -> None:
        self.slots = slots
        self.room = room
        self.times: dict[str, RunTimes] = {}
        self._news: dict[str, RunTimes] = {}
        self._lately: deque[float] = deque(maxlen=RECENT_RUNS)
        self._lock = threading.Lock()

    def ran(self, name: str, seconds: float) -> None:
        """Learn how long a task of that name ran."""
        with self._lock:
            times = self.times.setdefault(name, RunTimes())
            times.add(seconds * 1000)
            self._news.setdefault(name, RunTimes()).add(seconds * 1000)
            if self.room:
                self._lately.append(max(seconds, times.p95_ms / 1000))

    def recall(self, before: Mapping[str, RunTimes]) -> None:
        """Adopt the run times that nodes had learnt before this node started."""
        with self._lock:
            for name, times in before.items():
                self.times.setdefault(name, times)

    def late(self) -> None:
        """Note that a task had to wait too long, which shuts the seats."""
        with self._lock:
            self._lately.append(float("inf"))

    def mean_s(self, name: str) -> float:
        """Return the mean run time of tasks of that name in seconds, 0 if it is not known."""
        with self._lock:
            return self.times[name].mean_ms / 1000 if name in self.times else 0.0

    @property
    def wanted(self) -> int:
        """The number of waiting seats that should be open.

        With that number a waiting task is expected to begin within SHORT_TASK_S.
        """
        with self._lock:
            longest = (
                max(self._lately, default=float("inf"))
                if len(self._lately) >= FIRST_SHORT_RUNS
                else float("inf")
            )
        return self.slots * min(MAX_SEATS_OF_SLOT, int(SHORT_TASK_S / longest)) if self.room else 0

    def due_s(self, before: int) -> float:
        """Return the seconds after which a waiting task is handed back.

        before: the number of tasks that wait before this task.
        """
        with self._lock:
            longest = max(self._lately, default=0.0)
        return LATE_BEGIN_S + min(SHORT_TASK_S / 2, longest * (before + 1) / self.slots)

    def is_late(self, began_s: float, now_s: float) -> bool:
        """Return whether a run takes longer than a run may that has tasks waiting behind it.

        began_s: 0 if the run has not begun.
        """
        return 0 < began_s < now_s - LATE_BEGIN_S

    def take_new_times(self) -> dict[str, RunTimes]:
        """Return the run times learnt since the last call."""
        with self._lock:
            times = self._news
            self._news = {}
        return times

    def put_back(self, new_times: dict[str, RunTimes]) -> None:
        """Take back the run times that could not be written."""
        with self._lock:
            for name, times in new_times.items():
                unwritten = self._news.setdefault(name, RunTimes())
                unwritten.count += times.count
                unwritten.total_ms += times.total_ms
                unwritten.bins.update(times.bins)
                unwritten.octaves = [
                    count + added
                    for count, added in zip(unwritten.octaves, times.octaves, strict=True)
                ]
