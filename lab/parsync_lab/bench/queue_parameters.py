"""The sizes of the queue bench."""

from dataclasses import dataclass, fields
from typing import Final

from ..flags import check_flag


@dataclass(frozen=True, slots=True)
class QueueParameters:
    """The parameters of `bench queue`; check() raises InvalidInput.

    waiting: tasks of the blocked kind.
    kinds: blocked kinds, with a task each.
    probes: single tasks behind them.
    tasks: the waiting tasks when an urgent task comes.
    unseated: tasks that must get a reason.
    rounds: measurements of priority and order.
    quiet_s: the time for which the cores are measured.
    """

    waiting: int = 200_000
    kinds: int = 10_000
    probes: int = 30
    tasks: int = 300_000
    unseated: int = 100_000
    rounds: int = 5
    quiet_s: float = 10.0
    schedulers: int = 2

    def check(self) -> None:
        """Check the values; raise InvalidInput with the wrong value and what would be right."""
        for field in fields(self):
            check_flag(
                "--" + field.name.removesuffix("_s"), getattr(self, field.name), *LIMITS[field.name]
            )


LIMITS: Final[dict[str, tuple[float, float]]] = {
    "waiting": (1, 10_000_000),
    "kinds": (1, 1_000_000),
    "probes": (1, 10_000),
    "tasks": (10, 10_000_000),
    "unseated": (50, 10_000_000),
    "rounds": (1, 1000),
    "quiet_s": (0.1, 3600),
    "schedulers": (1, 8),
}

SHORT: Final = QueueParameters(
    waiting=2000, kinds=200, probes=3, tasks=1000, unseated=1000, rounds=1, quiet_s=0.5
)
"""Parameters for a run of some seconds, whose cores and delays mean little."""
