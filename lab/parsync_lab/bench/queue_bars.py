"""The figures of `bench queue`, each beside its bar and its goal."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from .markdown import BenchRuns, command_of, table
from .placement import Say
from .queue_blocked import many_kinds, measure_blocked, measure_reasons, one_kind
from .queue_order import measure_order, measure_priority
from .queue_parameters import QueueParameters

Measure = Callable[[QueueParameters, threading.Event, Say], dict[str, Any]]


def _blocked_kind(parameters: QueueParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    return measure_blocked(parameters, one_kind(parameters.waiting), stop, say)


def _blocked_kinds(parameters: QueueParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    return measure_blocked(parameters, many_kinds(parameters.kinds), stop, say)


QUEUE_PARTS: Final[dict[str, Measure]] = {
    "blocked-kind": _blocked_kind,
    "blocked-kinds": _blocked_kinds,
    "priority": measure_priority,
    "order": measure_order,
    "reasons": measure_reasons,
}
"""{part of the bench: its measurement}; each part has a server of its own."""


def run_queue(
    parameters: QueueParameters,
    stop: threading.Event,
    say: Say,
    only: Collection[str] = tuple(QUEUE_PARTS),
) -> dict[str, Any]:
    """Measure each part; return its figures, and the rows of the table."""
    parameters.check()
    parts = {
        name: measure(parameters, stop, partial(_say, say, name))
        for name, measure in QUEUE_PARTS.items()
        if name in only
    }
    facts = [part.pop("facts") for part in parts.values()][-1]
    rows = [asdict(row) | {"reached": row.reached} for row in bars_of(parts, parameters.schedulers)]
    return {
        "asked": asdict(parameters),
        **parts,
        "rows": rows,
        "audit": sum(part["audit"] for part in parts.values()),
        "facts": facts,
    }


def _say(say: Say, part: str, text: str) -> None:
    say(f"{part}: {text}")


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with its bar and its goal; a measured None means never.

    at_least: whether larger is better.
    without: the same figure of a cluster where nothing else waits.
    """

    what: str
    measured: float | None
    bar: float
    goal: float
    unit: str = ""
    at_least: bool = False
    without: float | None = None

    @property
    def reached(self) -> str:
        """Return 'goal', 'bar' or 'no'."""
        for word, value in (("goal", self.goal), ("bar", self.bar)):
            if self.measured is not None and (
                self.measured >= value if self.at_least else self.measured <= value
            ):
                return word
        return "no"


def bars_of(parts: Mapping[str, Mapping[str, Any]], schedulers: int) -> list[Target]:
    """Return the figures of these parts."""
    rows: list[Target] = []
    for name, bar, goal in (("blocked-kind", 100, 20), ("blocked-kinds", 1000, 200)):
        if figures := parts.get(name):
            count = f"{figures['kinds']:,} blocked kind{'s' * (figures['kinds'] != 1)}"
            behind = f"delay of a task that fits, behind {figures['waiting']:,} tasks of {count}"
            delay_ms = figures["delay_ms"]
            before = figures["delay_before_ms"]
            cores = round(sum(figures["cores"].values()), 4)
            worst = None if figures["not_placed"] else delay_ms["worst"]
            without = round(sum(figures["cores_before"].values()), 4)
            rows += [
                Target(
                    f"{behind}: median",
                    delay_ms["median"],
                    bar,
                    goal,
                    "ms",
                    without=before["median"],
                ),
                Target("the same: worst", worst, bar, goal, "ms", without=before["worst"]),
                Target(
                    "cores of schedulers and server while those wait",
                    cores,
                    0.05,
                    0.02,
                    without=without,
                ),
            ]
    if figures := parts.get("priority"):
        for urgent, counts in figures["started_before"].items():
            text = (
                f"started before one of priority 9, of {figures['waiting']:,} on 2 slots, "
                f"{urgent}: most"
            )
            rows.append(
                Target(text, None if None in counts else max(counts), schedulers + 1, 1, "tasks")
            )
    if figures := parts.get("order"):
        equal = f"{figures['tasks']} equal tasks, 1 slot, {figures['schedulers']} schedulers"
        pairs, late = (max(row[name] for row in figures["rounds"]) for name in ("pairs", "late"))
        rows += [
            Target(f"{equal}: pairs out of order of {figures['of_pairs']:,}, most", pairs, 30, 0),
            Target("the same: places that one is late, most", late, 3, 0),
        ]
    if figures := parts.get("reasons"):
        text = f"true reason after 1 s, {figures['waiting']:,} tasks of {figures['kinds']} kinds"
        rows.append(Target(text, 100 * figures["with_true_reason"], 100, 100, "%", at_least=True))
    return rows


QUEUE_COLUMNS: Final = ("WHAT", "MEASURED", "WITHOUT", "BAR", "GOAL", "REACHED")


def cells(row: Mapping[str, Any]) -> Sequence[object]:
    """Return the cells of a row of the table."""

    def shown(value: float | None, none: str = "") -> str:
        return none if value is None else f"{_plain(value)} {row['unit']}".strip()

    measured = shown(row["measured"], "never")
    without = shown(row["without"], "-")
    return row["what"], measured, without, shown(row["bar"]), shown(row["goal"]), row["reached"]


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def queue(runs: BenchRuns) -> list[str]:
    """Render the section of docs/performance.md."""
    if "queue" not in runs:
        return []
    figures = runs["queue"]["found"]
    command = command_of(runs["queue"])
    return [
        "## Tasks without a seat\n",
        "The delay and the CPU that tasks without a seat cost the others, by the server's clock; "
        "*without*: the same "
        "figure while nothing waits. "
        f"{command}, audit {figures['audit']}.\n",
        table([name.lower() for name in QUEUE_COLUMNS], map(cells, figures["rows"])),
    ]
