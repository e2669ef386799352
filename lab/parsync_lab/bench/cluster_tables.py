"""The section of docs/performance.md on several servers: the costs of shards and primaries."""

from collections.abc import Mapping, Sequence
from typing import Any

from .figures import ratio
from .markdown import BenchRuns, audit_of, cell_of, command_of, named, table


def cluster(runs: BenchRuns) -> list[str]:
    """Render the cost of a life on several primaries, and the busiest one's per placement."""
    parts = [*_costs(runs), *_primaries(runs)]
    return ["## Several servers\n", *parts] if parts else []


def _costs(runs: BenchRuns) -> list[str]:
    of_one = runs.get("cost")
    cluster_runs = [runs[name] for name in ("cluster-cost", "cluster-mixed") if name in runs]
    if not (of_one and cluster_runs):
        return []
    base = of_one["found"]["cost"]
    columns = [(case, size) for case, sizes in base.items() for size in sizes]
    rows: list[Sequence[object]] = []
    for run in cluster_runs:
        figures = run["found"]
        calls = "of any shards" if figures["mixed"] else "of one shard each"
        ratios = [
            figures["cost"][case][size]["life"]["median"] / base[case][size]["life"]["median"]
            for case, size in columns
        ]
        setting = f"{figures['primaries']} primaries, {figures['shards']} shards, calls {calls}"
        rows.append((setting, *(f"{ratio:.2f}" for ratio in ratios), command_of(run)))
    return [
        "The cost of a life, as the sum of all primaries, divided by that of one server (*Cost of "
        "each verb*)."
        " A client makes ids so that a batch is of one shard; calls of any shards are for batches "
        "with ids of another "
        "origin, such as Celery's.\n",
        table(("", *(f"{case}, {size} a call" for case, size in columns), "command"), rows),
    ]


def _primaries(runs: BenchRuns) -> list[str]:
    rows = named(runs, "primaries-")
    if not rows:
        return []
    fewest = min((run["found"] for run in rows), key=lambda figures: int(figures["primaries"]))
    return [
        "Microseconds of the servers for a placement at an equal rate. *room*: those of one server "
        "divided by those of "
        "the busiest primary, which is how many times as much can be placed before one is full, "
        "if each has a core.\n",
        table(
            (
                "primaries",
                "placed/s",
                "all of them us",
                "the busiest us",
                "room",
                "delay p99 ms",
                "audit",
                "command",
            ),
            [_primary_row(run, _busiest(fewest)) for run in rows],
        ),
    ]


def _primary_row(run: Mapping[str, Any], one_us: float) -> Sequence[object]:
    figures = run["found"]
    return (
        figures["primaries"],
        figures["placed_per_s"],
        figures["redis_us_per_placement"],
        _busiest(figures),
        cell_of(ratio(one_us, _busiest(figures))),
        figures["delay_ms"]["p99"],
        audit_of(figures),
        command_of(run),
    )


def _busiest(figures: Mapping[str, Any]) -> float:
    return float(max(figures["primaries_us_per_placement"]))
