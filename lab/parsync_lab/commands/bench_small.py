"""The commands of `parsync bench` that measure one cost, and `report`, which runs all benches."""

import json
from pathlib import Path
from typing import Annotated

import typer

from parsync_redis.cli.common import Json, print_table

from .measuring import Agents, BenchGap, BenchPartitions, BenchSchedulers, Seconds, measuring


def read(
    slots: Annotated[
        int, typer.Option(min=100, max=100_000, help="Slots of the partition, all held.")
    ] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="Rounds; medians are told.")] = 50,
    as_json: Json = False,
) -> None:
    """Compare a snapshot of a fully held partition with HGETALL of its leases."""
    from ..bench.micro import run_read

    with measuring() as (stop, line):
        figures = run_read(slots, rounds, stop, line)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    rows = [
        (name, figures[name]["server_us"], figures[name]["client_us"])
        for name in ("snapshot", "hgetall")
    ]
    rows.append(("ratio", figures["server_ratio"], figures["client_ratio"]))
    print_table((f"{slots:,} HELD SLOTS", "SERVER US", "CLIENT US"), rows, "")


def submit(
    tasks: Annotated[int, typer.Option(min=100, max=1_000_000, help="Tasks of a round.")] = 3000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds by turns.")] = 5,
    as_json: Json = False,
) -> None:
    """Compare submit_many with Celery's apply_async: messages a second from one process."""
    from ..bench.micro import run_submit

    with measuring() as (stop, line):
        figures = run_submit(tasks, rounds, stop, line)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    rows = [("messages/s", figures["apply_async"], figures["submit_many"], figures["ratio"])]
    print_table(("", "APPLY_ASYNC", "SUBMIT_MANY", "RATIO"), rows, "")


def memory(
    tasks: Annotated[int, typer.Option(min=500, max=1_000_000, help="Tasks at once.")] = 100_000,
    as_json: Json = False,
) -> None:
    """Measure the server's memory for a task that waits, runs, or has ended."""
    from ..bench.memory import run_memory

    with measuring() as (stop, line):
        figures = run_memory(tasks, stop, line)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    rows = [
        (case, state, f"{figure['bytes']:,}", f"{figure['mb']:,}")
        for case, states in figures["memory"].items()
        for state, figure in states.items()
    ]
    print(f"server      {figures['facts']['server']}, allocator {figures['facts']['allocator']}")
    print(f"tasks       {tasks:,} of each case, messages of {figures['message_bytes']} bytes\n")
    print_table(("CASE", "STATE", "BYTES A TASK", "MB OF ALL"), rows, "")


def idle(
    schedulers: BenchSchedulers = 20,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes, of 100 slots each.")] = 1000,
    partitions: BenchPartitions = 20,
    gap: BenchGap = 0.5,
    seconds: Seconds = 15.0,
    agents: Agents = 2,
    as_json: Json = False,
) -> None:
    """Measure the requests and the CPU time of a cluster without tasks."""
    from ..bench.micro import run_idle
    from ..bench.parameters import BenchParameters

    parameters = BenchParameters(
        schedulers, 100 * nodes, partitions, gap, rate=1, seconds=seconds, agents=agents
    )
    parameters.check()
    with measuring() as (stop, line):
        figures = run_idle(parameters, stop, line)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    per_gap = figures["partitions_per_gap"]
    requests = figures["requests_per_scheduler_and_s"]
    print(f"requests/s of a scheduler     {requests} ({per_gap:g} partitions a second are due)")
    print(f"commands/s, also in scripts   {figures['commands_per_scheduler_and_s']}")
    print(
        "cores                         "
        + ", ".join(f"{k} {v:.3f}" for k, v in figures["cpu_share"].items())
    )


def serve(
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes of 4 slots each.")] = 1000,
    tasks: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="Tasks that wait, of 100 kinds.")
    ] = 100_000,
    viewers: Annotated[int, typer.Option(min=3, max=90, help="Viewers that follow pages.")] = 50,
    seconds: Seconds = 15.0,
    as_json: Json = False,
) -> None:
    """Measure the cores of `parsync serve` and its server, and how soon a page shows a change."""
    from ..bench.serve import run_serve

    with measuring() as (stop, line):
        figures = run_serve(nodes, tasks, viewers, seconds, stop, line)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    print(
        f"{nodes:,} nodes, {tasks:,} tasks of {figures['kinds']} kinds; a survey takes "
        f"{figures['read_s']:.3f} s\n"
    )
    phases = (
        (0, "stands still", "idle"),
        (viewers, "stands still", "viewed"),
        (viewers, "changes", "changing"),
    )
    rows = [
        (
            count,
            state,
            figures[phase]["messages_per_s"],
            figures[phase]["serve"],
            figures[phase]["server"],
        )
        for count, state, phase in phases
    ]
    print_table(
        ("VIEWERS", "STATE", "MESSAGES/S", "CORES OF SERVE", "CORES OF THE SERVER"), rows, ""
    )
    print(f"\n{figures['fresh']['changes']} changes, until viewers had them:")
    late = [(name, *map(round, figures["fresh"][name].values())) for name in ("pages", "events")]
    print_table(("VIEWERS OF", "P50 MS", "P99 MS", "MAX MS"), late, "")


def decide(
    slots: Annotated[
        int, typer.Option(min=10_000, max=1_000_000, help="Slots, ten on each node.")
    ] = 100_000,
    batch: Annotated[int, typer.Option(min=50, max=1000, help="Tasks of a batch.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds; medians are told.")] = 20,
    as_json: Json = False,
) -> None:
    """Measure the CPU time of a scheduler's decision, without a server."""
    from ..bench.decide import run_decide

    with measuring() as (stop, line):
        figures = run_decide(slots, batch, rounds, stop, line)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    rules = ", ".join(figures["rules"])
    print(
        f"{slots:,} slots, {figures['nodes']:,} nodes, {figures['partitions']} partitions; rules: "
        f"{rules}; wishes: {figures['wishes']}\n"
    )
    print_table(
        ("CASE", "CPU MS A TASK"), [(case, f"{ms:.3f}") for case, ms in figures["ms"].items()], ""
    )


def report(
    out: Annotated[
        Path, typer.Option(help="The document; plots go into a folder `performance` beside it.")
    ] = Path("docs/performance.md"),
    again: Annotated[bool, typer.Option(help="Measure anew also what was measured before.")] = True,
    keep: Annotated[Path, typer.Option(help="Where the figures of each run are kept.")] = Path(
        "build/bench"
    ),
    rate: Annotated[float, typer.Option(help="The highest rate that the ladder tries.")] = 38_000,
) -> None:
    """Run every bench and write the document with its tables and plots, as `make bench` does."""
    from ..bench.report import measure_all, write_report

    with measuring() as (stop, line):
        measure_all(keep, again, rate, stop, line)
    write_report(keep, out)
    print(f"wrote {out}")
