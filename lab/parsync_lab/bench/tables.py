"""docs/performance.md as text, from the outputs of the benches.

Pure, except for the files of the plots.
"""

from pathlib import Path

from .bars import target_lines
from .cluster_tables import cluster
from .markdown import BenchRuns
from .placement_tables import kinds, ladder, rivals, scale
from .plots import draw_plots
from .queue_bars import queue
from .small_tables import celery, cost, small

PERFORMANCE_PAGE_HEAD = """\
# Performance

Written by `make bench` from the output of the commands below; nothing here is written by hand. All processes of a run,
including the server, share the cores of the machine named here.

- **open loop**: a task is due at its time, whether the tasks before it are placed or not. A late submit adds delay.
- **delay**: from when a task was due until its claim was committed, by the server's clock, including waits for a slot.
- **sustained**: at least 0.98 of the offered rate was placed, and the delay does not grow over the run.
- **load**: the share of the slots that the offered tasks hold.
- **agents** are stand-ins: each process represents many nodes, and starts, holds, finishes and releases every task
  through the calls of a real agent; it runs no function. `parsync bench celery` measures real workers.
- **baseline**: claims/s of a bare Lua loop of HSETNX, by one client in batches of 100, on the same server just before.
- Every run ends with an audit: each submitted task succeeded once, every slot is free, bitmaps and counters agree.
  *audit* is the number of violations.
"""


def render(runs: BenchRuns, out: Path) -> str:
    """Render the document, and write the plots beside it."""
    parts = [PERFORMANCE_PAGE_HEAD, _machine(runs)]
    for section in (
        target_lines,
        ladder,
        rivals,
        kinds,
        queue,
        scale,
        cost,
        cluster,
        small,
        celery,
    ):
        parts += section(runs)
    plots = draw_plots(runs, out.parent / "performance")
    return "\n".join([*parts, *(f"![{name}](performance/{name}.svg)" for name in plots), ""])


def _machine(runs: BenchRuns) -> str:
    facts = [
        run["found"]["facts"]
        for run in runs.values()
        if "load_average" in run["found"].get("facts", {})
    ]
    if not facts:
        return ""
    machine = facts[0]
    loads = [row["load_average"] for row in facts]
    allocator = f", allocator {machine['allocator']}" if "allocator" in machine else ""
    names = ("python", "celery", "redis", "hiredis", "numpy")
    return (
        f"Machine: {machine['machine']}; {machine['server']}{allocator}; "
        + ", ".join(f"{n} {machine[n]}" for n in names if n in machine)
        + f".\\\nLoad average when the runs began: {min(loads):g} to {max(loads):g}"
        + (
            ": the previous run had just ended, or **other work was running**; then rates are too "
            "low and delays "
            "too long.\n"
            if max(loads) > 3
            else ".\n"
        )
    )
