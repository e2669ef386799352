"""The clock of the loop: periodic duties, and a scheduler's own ticks.

A scheduler ticks by its own clock while it hears no tick of the leader.
"""

from collections.abc import Callable
from typing import Final


class PeriodicDuty:
    """An action that is due at once, and again whenever more than `seconds` have passed.

    The action is given the time (monotonic).
    """

    def __init__(self, seconds: float, action: Callable[[float], None]) -> None:
        self.seconds = seconds
        self._action = action
        self.last_s = float("-inf")

    def run_if_due(self, now_s: float) -> None:
        """Run the action if it is due; after an exception it is due again in `seconds`."""
        if now_s - self.last_s > self.seconds:
            self.last_s = now_s
            self._action(now_s)


SILENT_INTERVALS: Final = 3
"""Number of intervals without a tick after which a scheduler goes on by its own clock."""

DEAF_S: Final = 1.0
"""Seconds without a tick after which a scheduler subscribes anew.

The wait is at least SILENT_INTERVALS intervals. If a server stands still for a moment, all
schedulers go on by their own clocks. If all of them subscribed anew, the server would stand still
for longer.
"""


class TickClock:
    """Counts ticks. All times are seconds of one monotonic clock.

    An interval is the gap divided by the number of members.
    """

    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s
        self._sequence = 0
        self._next_own_s = float("inf")
        self._was_deaf = False

    @property
    def is_own(self) -> bool:
        """True while the scheduler ticks by its own clock."""
        return self._next_own_s < float("inf")

    def on_tick(self, sequence: int, now_s: float) -> None:
        """Follow the leader's clock, whose tick was heard."""
        self._sequence = sequence
        self.heard_s = now_s
        self._next_own_s = float("inf")
        self._was_deaf = False

    def on_lost(self) -> None:
        """Tick by the own clock at once, because the subscription was lost."""
        self.heard_s = float("-inf")

    def due_s(self, interval_s: float) -> float:
        """Return when the next own tick is due, if no tick is heard until then."""
        return self._next_own_s if self.is_own else self.heard_s + SILENT_INTERVALS * interval_s

    def start_own(self, now_s: float, interval_s: float) -> None:
        """Start the own clock if no tick was heard for SILENT_INTERVALS intervals."""
        if not self.is_own and now_s - self.heard_s >= SILENT_INTERVALS * interval_s:
            self._next_own_s = now_s

    def becomes_deaf(self, now_s: float, interval_s: float) -> bool:
        """Return True once in a silence so long that the subscription may be dead.

        The next tick ends the silence.
        """
        if self._was_deaf or now_s - self.heard_s < max(SILENT_INTERVALS * interval_s, DEAF_S):
            return False
        self._was_deaf = True
        return True

    def own_ticks(self, now_s: float, interval_s: float) -> list[int]:
        """Return the numbers of the own ticks that are due.

        Missed ticks of more than one interval are left out.
        """
        numbers = []
        while self._next_own_s <= now_s:
            self._sequence += 1
            numbers.append(self._sequence)
            self._next_own_s = max(self._next_own_s + interval_s, now_s - interval_s)
        return numbers
