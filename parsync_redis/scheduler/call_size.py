"""How many tasks a scheduler takes and claims in one round trip: fewer where its claims are lost.

A large call costs the server less a task. But the seats are chosen before the call, so the larger it is, the more other
schedulers have taken some of them meanwhile. At the highest rates, calls of 100 instead of 500 cost 7 % more and cut
lost claims from 1 to 0.1 % (docs/performance.md).
"""

from typing import Final

from ..model.limits import MAX_BATCH

LEAST: Final = 100
MANY: Final = 0.005
"""Lost claims, as a share of all, above which calls become smaller; below half of it they grow again."""

WINDOW: Final = 1000
"""Claims over which that share is smoothed."""


class CallSize:
    """The number of tasks in a call, by the verdicts of the latest claims."""

    def __init__(self) -> None:
        self.tasks = MAX_BATCH
        self._lost = 0.0

    def on_judged(self, claims: int, lost: int) -> None:
        """Take in the verdicts on so many claims."""
        if not claims:
            return
        self._lost += min(1.0, claims / WINDOW) * (lost / claims - self._lost)
        if self._lost > MANY:
            self.tasks = max(LEAST, self.tasks // 2)
        elif self._lost < MANY / 2:
            self.tasks = min(MAX_BATCH, self.tasks * 2)
