"""Helpers for the sections of docs/performance.md: Markdown tables, and runs by name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

BenchRuns = Mapping[str, Mapping[str, Any]]
"""{name of a run: {"command": its words, "found": its figures}}."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Render a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(
        [*lines, *("| " + " | ".join(cell_of(cell) for cell in row) + " |" for row in rows), ""]
    )


def cell_of(value: object) -> str:
    """Render a value as the text of a cell."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)


def named(runs: BenchRuns, prefix: str) -> list[Mapping[str, Any]]:
    """Return the runs whose names begin with `prefix`."""
    return [run for name, run in runs.items() if name.startswith(prefix)]


def rungs_of(runs: BenchRuns) -> list[Mapping[str, Any]]:
    """Return the runs of the ladder, lowest rate first."""
    return sorted(named(runs, "ladder-"), key=lambda run: float(run["found"]["rate"]))


def command_of(run: Mapping[str, Any]) -> str:
    """Render the command of a run as code."""
    return f"`parsync bench {' '.join(run['command'])}`"


def audit_of(figures: Mapping[str, Any]) -> int:
    """Count the faults that the audit of a run found."""
    return sum(value for value in figures["audit"].values() if isinstance(value, int))
