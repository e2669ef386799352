"""The order of starts: of urgent tasks behind many others, and of equal tasks for one slot."""

import threading
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

from parsync_redis.model.needs import Resources
from parsync_redis.model.task import TaskState

from .placement import Say
from .queue_parameters import QueueParameters
from .queue_rig import Home, TaskFields, running

URGENT_LIMIT_S: Final = 120.0
HOLD_S: Final = 0.5
URGENT: Final[dict[str, TaskFields]] = {
    "same kind": {"priority": 9},
    "another kind": {"priority": 9, "resources": {"mem": 1}},
}
"""The urgent tasks: of the kind of the tasks before them, or of a kind that shares their slots."""

EQUAL: Final = 60
ORDERERS: Final = 3
"""The number of schedulers that compete for the slot of the equal tasks."""


def measure_priority(
    parameters: QueueParameters, stop: threading.Event, say: Say
) -> dict[str, Any]:
    """Submit many half-second tasks, then urgent ones; count the starts before each."""
    home = Home("one", Resources.of(2, {"mem": 1000}), HOLD_S)
    with running([home], parameters.schedulers, stop) as rig:
        say(f"submits {parameters.tasks:,} tasks of {HOLD_S:g} s")
        background = rig.submit([{}] * parameters.tasks)
        urgent: list[tuple[str, int]] = []
        for round in range(parameters.rounds):
            say(f"tasks of priority 9: round {round + 1} of {parameters.rounds}")
            for urgency, options in URGENT.items():
                # so that urgent tasks come at all moments of a run
                rig.processes.pause(HOLD_S * (round + 0.5) / parameters.rounds)
                numbers = rig.submit([options])
                urgent += [(urgency, number) for number in numbers]
                rig.until(numbers, TaskState.SUCCEEDED, URGENT_LIMIT_S)
        say("audit")
        submitted_ms, _, started_ms, _ = rig.times([number for _, number in urgent])
        background_ms = rig.times(background)[2]
        facts = rig.end()
        before: dict[str, list[int | None]] = {urgency: [] for urgency in URGENT}
        for (urgency, _), asked_ms, began_ms in zip(urgent, submitted_ms, started_ms, strict=True):
            count = int(np.count_nonzero((background_ms >= asked_ms) & (background_ms < began_ms)))
            before[urgency].append(None if np.isnan(began_ms) else count)
        delays = started_ms - submitted_ms
        return {
            "waiting": len(background),
            "started_before": before,
            "delay_ms": [None if np.isnan(delay) else float(delay) for delay in delays],
            "audit": len(facts),
            "first_facts": facts[:5],
            "facts": rig.facts(),
        }


def measure_order(parameters: QueueParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Submit equal tasks for one slot; return how far their starts are out of order."""
    with running([Home("one", Resources.of(1), 0.0)], ORDERERS, stop) as rig:
        rounds = []
        for round in range(parameters.rounds):
            say(f"equal tasks: round {round + 1} of {parameters.rounds}")
            numbers = rig.submit([{}] * EQUAL)
            if not rig.until(numbers, TaskState.SUCCEEDED, URGENT_LIMIT_S):
                raise TimeoutError(
                    f"{EQUAL} tasks for one slot did not end within {URGENT_LIMIT_S:g} s"
                )
            pairs, late = disorder(rig.times(numbers)[2].tolist())
            rounds.append({"pairs": pairs, "late": late})
        say("audit")
        facts = rig.end()
        return {
            "tasks": EQUAL,
            "schedulers": ORDERERS,
            "of_pairs": EQUAL * (EQUAL - 1) // 2,
            "rounds": rounds,
            "audit": len(facts),
            "first_facts": facts[:5],
            "facts": rig.facts(),
        }


def disorder(starts: Sequence[float]) -> tuple[int, int]:
    """Return the number of pairs in the wrong order, and the most places by which a task was late.

    starts: when each task started, in the order of the submits.
    """
    pairs = sum(later < earlier for earlier, later in combinations(starts, 2))
    ranks = np.argsort(np.argsort(np.array(starts), kind="stable"), kind="stable")
    late = (ranks - np.arange(len(starts))).max(initial=0)
    return pairs, int(late)
