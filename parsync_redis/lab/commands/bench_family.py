"""`parsync bench placement` and its family: what placing costs, at which rate, next to rivals."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from ...cli.common import Json, print_table
from ...cli.run import stop_by_signal
from ...errors import InvalidInput, ParsyncError

Say = Callable[[str], None]
Schedulers = Annotated[int, typer.Option(help="Scheduler processes.")]
Slots = Annotated[int, typer.Option(help="Slots of all nodes together.")]
Partitions = Annotated[int, typer.Option(help="Partitions, at least as many as schedulers.")]
Gap = Annotated[float, typer.Option(help="Synchronisation gap, seconds.")]
Seconds = Annotated[float, typer.Option(help="How long the load lasts.")]
Strategy = Annotated[str, typer.Option(help="latency, quality or adaptive.")]
NodeSlots = Annotated[int, typer.Option(help="Slots of each node.")]
Agents = Annotated[int, typer.Option(help="Processes that stand in for the nodes' agents.")]
Generators = Annotated[int, typer.Option(help="Processes that submit.")]


class Line:
    """Says how it goes on stderr: over and over on one line of a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self._said_s = float("-inf")
        self._terminal = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Says it."""
        now_s = time.monotonic()
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        elif now_s - self._said_s >= 5.0:
            self._said_s = now_s
            sys.stderr.write(text + "\n")

    def done(self) -> None:
        """Leaves an empty line behind."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")


@contextmanager
def measuring() -> Iterator[tuple[Event, Line]]:
    """What every bench runs in: Ctrl-C ends it in order; what goes wrong is one line."""
    from ...demo.driver import Stopped

    line = Line()
    with stop_by_signal() as (stop, came):
        try:
            yield stop, line
        except Stopped:
            raise typer.Exit(130 if 2 in came else 143) from None
        except TimeoutError as error:
            raise ParsyncError(str(error)) from None
        finally:
            line.done()


def placement(
    schedulers: Schedulers = 20,
    slots: Slots = 200_000,
    partitions: Partitions = 20,
    gap: Gap = 0.5,
    rate: Annotated[float, typer.Option(help="Tasks offered a second, open loop.")] = 38_000,
    duration: Annotated[float, typer.Option(help="How long each task is held, seconds.")] = 5.0,
    seconds: Seconds = 30.0,
    strategy: Strategy = "latency",
    system: Annotated[str, typer.Option(help="parsync, or a rival: state, central, queues.")] = "parsync",
    node_slots: NodeSlots = 100,
    agents: Agents = 2,
    generators: Generators = 1,
    lease: Annotated[float, typer.Option(help="Lease of nodes and schedulers, seconds.")] = 10.0,
    kinds: Annotated[int, typer.Option(help="Kinds of task: 1, or 50 (labels, amounts).")] = 1,
    aof: Annotated[bool, typer.Option(help="The server keeps its append-only file (fsync every second).")] = False,
    as_json: Json = False,
) -> None:
    """Schedulers under open-loop load on a server of its own: rates, delays, conflicts, costs; audited at the end."""
    from ..bench.parameters import Parameters
    from ..bench.placement import run_placement

    asked = Parameters(
        schedulers,
        slots,
        partitions,
        gap,
        rate,
        duration,
        seconds,
        strategy,
        system,
        node_slots,
        agents,
        generators,
        lease,
        kinds,
        aof,
    )
    asked.check()
    with measuring() as (stop, line):
        found = run_placement(asked, stop, line)
    print(json.dumps(found, indent=2)) if as_json else print_placement(found)
    if any(found["audit"][name] for name in ("lost", "ran_twice", "leaked_slots", "bitmap_mismatches", "facts")):
        raise typer.Exit(1)


def print_placement(found: dict[str, Any]) -> None:
    """The figures of a run as lines."""
    facts, delay, audit = found["facts"], found["delay_ms"], found["audit"]
    print(f"machine     {facts['machine']}, load at the start {facts['load_average']}, {facts['server']}")
    print(
        f"asked       {found['system']}: {found['schedulers']} schedulers, {found['slots']:,} slots, "
        f"{found['partitions']} partitions, {found['rate']:,.0f} tasks/s of {found['duration_s']:g} s: "
        f"load {found['load']:.2f}, for {found['seconds']:g} s"
    )
    names = ("offered", "submitted", "placed", "started", "finished")
    print(
        "per second  "
        + ", ".join(f"{name} {found[f'{name}_per_s'] or 0:,.0f}" for name in names)
        + (": sustained" if found["sustained"] else ": NOT sustained")
    )
    print(
        "delay ms    "
        + ", ".join(f"{name} {value:.1f}" for name, value in delay.items())
        + (", growing" if found["delay_grows"] else "")
    )
    print(
        f"conflicts   {found['conflicts_per_claim']:.4%} of claims; views on average "
        f"{found['staleness_ms'].get('mean', 0):.0f} ms old"
    )
    share = found["placed_per_s"] / found["baseline_claims_per_s"]
    bare, of_cpu = found["baseline_claims_per_s"], found["baseline_claims_per_cpu_s"]
    print(f"baseline   {bare:,.0f} bare claims/s, {of_cpu:,.0f} a second of CPU; placed {share:.3f} of the first")
    print(
        f"server      {found['redis_us_per_placement']:.0f} us a placement, "
        f"{found['redis_cpu_share']:.0%} of a core, "
        f"{found['commands_per_placement']:.1f} commands, {found['bytes_per_placement']:.0f} bytes, "
        f"{found['memory_mb']:.0f} MiB"
    )
    print("cores       " + ", ".join(f"{kind} {value:.2f}" for kind, value in found["cpu_share"].items()))
    print("audit       " + ", ".join(f"{name} {value}" for name, value in audit.items() if name != "first_facts"))
    for fact in audit["first_facts"]:
        print(f"            {fact}")


def _numbers(flag: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise InvalidInput(f"{flag} {text!r} is not valid: it must be whole numbers with commas between them")
    return [int(word) for word in words]


def read(
    slots: Annotated[int, typer.Option(min=100, max=100_000, help="Slots of the partition, all held.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="Rounds; medians are told.")] = 50,
    as_json: Json = False,
) -> None:
    """What a scheduler reads of a partition whose slots are all held, and HGETALL of its leases."""
    from ..bench.micro import run_read

    with measuring() as (stop, line):
        found = run_read(slots, rounds, stop, line)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [(way, found[way]["server_us"], found[way]["client_us"]) for way in ("snapshot", "hgetall")]
    rows.append(("ratio", found["server_ratio"], found["client_ratio"]))
    print_table((f"{slots:,} HELD SLOTS", "SERVER US", "CLIENT US"), rows, "")


def submit(
    tasks: Annotated[int, typer.Option(min=100, max=1_000_000, help="Tasks of a round.")] = 3000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds by turns.")] = 5,
    as_json: Json = False,
) -> None:
    """Messages a second of submit_many and of Celery's apply_async, from one process."""
    from ..bench.micro import run_submit

    with measuring() as (stop, line):
        found = run_submit(tasks, rounds, stop, line)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [("messages/s", found["apply_async"], found["submit_many"], found["ratio"])]
    print_table(("", "APPLY_ASYNC", "SUBMIT_MANY", "RATIO"), rows, "")


def idle(
    schedulers: Schedulers = 20,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes, of 100 slots each.")] = 1000,
    partitions: Partitions = 20,
    gap: Gap = 0.5,
    seconds: Seconds = 15.0,
    agents: Agents = 2,
    as_json: Json = False,
) -> None:
    """What a cluster asks of its server, and takes of the CPU, while there are no tasks."""
    from ..bench.micro import run_idle
    from ..bench.parameters import Parameters

    asked = Parameters(schedulers, 100 * nodes, partitions, gap, rate=1, seconds=seconds, agents=agents)
    asked.check()
    with measuring() as (stop, line):
        found = run_idle(asked, stop, line)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    per_gap = found["partitions_per_gap"]
    requests = found["requests_per_scheduler_and_s"]
    print(f"requests/s of a scheduler     {requests} ({per_gap:g} partitions a second are due)")
    print(f"commands/s, also in scripts   {found['commands_per_scheduler_and_s']}")
    print("cores                         " + ", ".join(f"{k} {v:.3f}" for k, v in found["cpu_share"].items()))


def scale(
    slots: Annotated[str, typer.Option(help="Numbers of slots.")] = "2000,20000,200000,1000000",
    schedulers: Annotated[str, typer.Option(help="Numbers of schedulers.")] = "1,2,5,10,20",
    rate: Annotated[float, typer.Option(help="Tasks offered a second.")] = 1000,
    duration: Annotated[float, typer.Option(help="How long each task is held, seconds.")] = 1.0,
    seconds: Seconds = 10.0,
    partitions: Partitions = 20,
    as_json: Json = False,
) -> None:
    """What a placement costs the server and a scheduler, by the number of slots and by the number of schedulers."""
    from ..bench.parameters import Parameters
    from ..bench.scale import run_scale

    asked = Parameters(10, 20_000, partitions, rate=rate, duration_s=duration, seconds=seconds, node_slots=100)
    many, crowds = _numbers("--slots", slots), _numbers("--schedulers", schedulers)
    asked.check()
    with measuring() as (stop, line):
        found = run_scale(asked, many, crowds, stop, line)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    rows = [
        (
            row["slots"],
            row["schedulers"],
            row["placed_per_s"],
            row["redis_us_per_placement"],
            row["us_per_placement"]["schedulers"],
            row["delay_ms"]["p99"],
            row["memory_mb"],
        )
        for row in (*found["by_slots"], *found["by_schedulers"])
    ]
    print_table(("SLOTS", "SCHEDULERS", "PLACED/S", "REDIS US", "SCHEDULER US", "DELAY P99 MS", "MIB"), rows, "")


def report(
    out: Annotated[Path, typer.Option(help="The document; plots go into a folder `performance` beside it.")] = Path(
        "docs/performance.md"
    ),
    again: Annotated[bool, typer.Option(help="Measure anew also what was measured before.")] = True,
    keep: Annotated[Path, typer.Option(help="Where the figures of each run are kept.")] = Path("build/bench"),
    rate: Annotated[float, typer.Option(help="The highest rate that the ladder tries.")] = 38_000,
) -> None:
    """Runs every bench and writes the document with its tables and plots: what `make bench` does."""
    from ..bench.report import measure_all, write_report

    with measuring() as (stop, line):
        measure_all(keep, again, rate, stop, line)
    write_report(keep, out)
    print(f"wrote {out}")


def register(app: typer.Typer) -> None:
    """Adds these commands to the group."""
    for command in (placement, read, submit, idle, scale, report):
        app.command()(command)
