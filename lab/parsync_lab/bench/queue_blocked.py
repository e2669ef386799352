"""Tasks without a seat: the delay of tasks behind them, their CPU time, and their reasons."""

import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from parsync_redis.model.needs import Resources
from parsync_redis.model.task import TaskState
from parsync_redis.store.reads.demand import read_kinds

from .figures import ratio
from .placement import Say
from .queue_parameters import QueueParameters
from .queue_rig import FOR_EVER_S, Home, Rig, TaskFields, running

SAMPLE_EVERY_S: Final = 0.3
"""The time between two probes."""

NOT_PLACED_AFTER_S: Final = 60.0
"""The wait after which a task counts as not placed."""

SETTLE_S: Final = 3.0
"""The time between the submits and the measurement of the cores."""

SMALL = 1_000
LARGE = 10_000_000
"""The memory of the idle node, and of the busy one."""

HOLDER: Final[TaskFields] = {"resources": {"gpu": 1, "mem": LARGE}}
NAMED_KINDS: Final = 50

HOMES: Final = (
    Home("busy", Resources.of(1, {"gpu": 1, "mem": LARGE}), FOR_EVER_S),
    Home("idle", Resources.of(8, {"mem": SMALL}), 0.05),
)


def measure_blocked(
    parameters: QueueParameters, tasks: Sequence[TaskFields], stop: threading.Event, say: Say
) -> dict[str, Any]:
    """Measure tasks without needs behind these blocked tasks: delays, and cores used.

    tasks: the blocked tasks, which wait for the busy node.
    """
    with running(HOMES, parameters.schedulers, stop) as rig:
        rig.occupy(HOLDER)
        say("the same while nothing waits")
        bare = _probe(rig, parameters.probes)
        cores_before = rig.cores(parameters.quiet_s)
        say(f"submits {len(tasks):,} tasks that find no seat")
        waiting = rig.submit(tasks)
        say("submits tasks that find one")
        delays = _probe(rig, parameters.probes)
        say("the cores while tasks wait")
        rig.processes.pause(min(SETTLE_S, parameters.quiet_s))
        cores = rig.cores(parameters.quiet_s)
        kinds = read_kinds(rig.store)
        say("audit")
        facts = rig.end()
        return {
            "waiting": sum(line.count for line in kinds.values()),
            "kinds": len(kinds),
            "submitted": len(waiting),
            "probes": len(delays),
            "not_placed": delays.count(None),
            "delay_ms": _summary(delays),
            "delay_before_ms": _summary(bare),
            "cores": cores,
            "cores_before": cores_before,
            "audit": len(facts),
            "first_facts": facts[:5],
            "facts": rig.facts(),
        }


def _probe(rig: Rig, count: int) -> list[float | None]:
    """Submit single tasks without needs; return the times from submit to commit, in ms."""
    numbers: list[int] = []
    for _ in range(count):
        numbers += rig.submit([{}])
        rig.processes.pause(SAMPLE_EVERY_S)
    rig.until(numbers, TaskState.SUCCEEDED, NOT_PLACED_AFTER_S)
    submitted, placed, _, _ = rig.times(numbers)
    return [None if np.isnan(delay) else float(delay) for delay in placed - submitted]


def _summary(delays: Sequence[float | None]) -> dict[str, float | None]:
    placed = [delay for delay in delays if delay is not None]
    return {
        "median": float(np.median(placed)) if placed else None,
        "worst": max(placed, default=None),
    }


def one_kind(count: int) -> list[TaskFields]:
    """Return tasks of one kind, which need the busy node's GPU."""
    return [{"resources": {"gpu": 1}}] * count


def many_kinds(count: int) -> list[TaskFields]:
    """Return tasks of different kinds, which need more memory than is free."""
    return [{"resources": {"mem": SMALL + 1 + number}} for number in range(count)]


def named_kinds() -> dict[str, TaskFields]:
    """Return {true reason to wait: options} for fifty kinds of task."""
    short = [SMALL + 1 + number for number in range(NAMED_KINDS // 2)]
    needs_by_reason: dict[str, TaskFields] = {
        f"only node busy fits: it is short of mem: the task needs {mem}": {
            "resources": {"mem": mem}
        }
        for mem in short
    }
    for number in range(NAMED_KINDS - len(short)):
        label = {"require": {"zone": f"z{number}"}, "wait_for_capacity": True}
        needs_by_reason[f"no node fits: no node has label zone:z{number}; there are no labels"] = (
            label
        )
    return needs_by_reason


def measure_reasons(parameters: QueueParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Submit tasks of fifty kinds without a seat; count their true reasons a second later."""
    reasons = named_kinds()
    kinds = list(reasons.values())
    homes = (Home("busy", Resources.of(2, {"gpu": 1, "mem": LARGE}), FOR_EVER_S), HOMES[1])
    with running(homes, parameters.schedulers, stop) as rig:
        rig.occupy(HOLDER)
        say(f"submits {parameters.unseated:,} tasks of {len(kinds)} kinds")
        rig.submit([kinds[number % len(kinds)] for number in range(parameters.unseated)])
        rig.processes.pause(1.0)
        lines = read_kinds(rig.store)
        say("audit")
        facts = rig.end()
        waiting = sum(line.count for line in lines.values())
        with_reason = sum(line.count for line in lines.values() if line.why)
        with_true_reason = sum(line.count for line in lines.values() if line.why in reasons)
        return {
            "waiting": waiting,
            "kinds": len(lines),
            "with_reason": ratio(with_reason, waiting),
            "with_true_reason": ratio(with_true_reason, waiting),
            "different_reasons": len({line.why for line in lines.values() if line.why}),
            "untrue": sorted({line.why for line in lines.values() if line.why} - set(reasons))[:5],
            "audit": len(facts),
            "first_facts": facts[:5],
            "facts": rig.facts(),
        }
