"""The report of a demo, from the driver's facts. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from parsync_redis.model.status import TaskStatus
from parsync_redis.model.task import TaskState

from .driver import Gathered, is_lost, sum_of
from .measure import Measure
from .nodes import DemoNode


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex function and where it is."""

    complexity: int
    module: str
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all modules that were measured."""

    modules: int
    lines: int
    functions: int
    classes: int
    branches: int
    unparsed: int


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile by nearest rank: the smallest value that `percent` do not exceed.

    0 without values.
    """
    if not values:
        return 0.0
    return sorted(values)[max(0, ceil(percent / 100 * len(values)) - 1)]


def delays_ms(statuses: Sequence[TaskStatus]) -> list[float]:
    """Return the scheduling delay of each placed task: from ready to committed claim."""
    delays = []
    for status in statuses:
        ready = status.times.get("ready")
        placed = status.times.get("placed")
        if ready is not None and placed is not None:
            delays.append(float(max(0, placed - ready)))
    return delays


def summarize(
    gathered: Gathered, nodes: Sequence[DemoNode], server: str, schedulers: int
) -> dict[str, Any]:
    """Return the contents of demo.json.

    wall_s: from the first submit to the last result, without start and stop.
    """
    states = Counter(status.state for status in gathered.statuses)
    ran_on = Counter(status.node for status in gathered.statuses if status.state.final)
    delays = delays_ms(gathered.statuses)
    lost = sum(is_lost(status) for status in gathered.statuses)
    succeeded = sum(
        s.state is TaskState.SUCCEEDED and s.id in gathered.results for s in gathered.statuses
    )
    return {
        "submitted": len(gathered.modules),
        "succeeded": succeeded,
        "failed": sum(states.values()) - succeeded - lost,
        "lost": lost,
        "ran_twice": sum(count > 1 for count in gathered.runs.values()),
        "conflicts": sum_of(gathered.schedulers, "conflicts"),
        "delay_ms": {"p50": percentile(delays, 50), "p99": percentile(delays, 99)},
        "by_node": {
            node.name: {
                "slots": node.slots,
                "score": node.score,
                "tasks": ran_on[node.name],
                "labels": dict(node.labels),
            }
            for node in nodes
        },
        "wall_s": round(gathered.wall_s, 3),
        "server": server,
        "schedulers": schedulers,
        "nodes": len(nodes),
    }


def is_clean(summary: dict[str, Any]) -> bool:
    """Return True if every task ran once and succeeded."""
    return not (summary["lost"] or summary["failed"] or summary["ran_twice"])


def total(results: Sequence[Measure]) -> Totals:
    """Add up the modules; one that does not parse counts with its lines only."""
    return Totals(
        len(results),
        sum(r["lines"] for r in results),
        sum(r["functions"] for r in results),
        sum(r["classes"] for r in results),
        sum(r["branches"] for r in results),
        sum(bool(r["error"]) for r in results),
    )


def most_complex(results: Sequence[Measure], count: int = 5) -> list[Complex]:
    """Return the most complex functions, at most one of each module, most complex first."""
    functions = [
        Complex(f["complexity"], r["module"], f["name"], f["line"])
        for r in results
        if (f := r["most_complex"])
    ]
    return sorted(functions, key=lambda function: (-function.complexity, function.module))[:count]


def mean_scores(summary: dict[str, Any]) -> tuple[float, float]:
    """Return the mean score of all slots, and of the slots that tasks ran on."""
    rows = summary["by_node"].values()
    tasks = sum(row["tasks"] for row in rows)
    slots = sum(row["slots"] for row in rows)
    by_slots = sum(row["score"] * row["slots"] for row in rows) / slots if slots else 0.0
    by_tasks = sum(row["score"] * row["tasks"] for row in rows) / tasks if tasks else 0.0
    return by_slots, by_tasks
