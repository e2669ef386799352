"""`parsync bench placement` and its family: what placing costs, at which rate, next to rivals."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ParsyncError
from .common import Json
from .run import stop_by_signal

if TYPE_CHECKING:
    pass

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
    from ..demo.driver import Stopped

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
        schedulers, slots, partitions, gap, rate, duration, seconds, strategy, system, node_slots, agents, generators,
        lease, kinds, aof,
    )  # fmt: skip
    asked.check()
    with measuring() as (stop, line):
        found = run_placement(asked, stop, line)
    print(json.dumps(found, indent=2)) if as_json else print_placement(found)
    if any(found["audit"][name] for name in ("lost", "ran_twice", "leaked_slots", "bitmap_mismatches", "facts")):
        raise typer.Exit(1)


def print_placement(found: dict[str, Any]) -> None:
    """The figures of a run as lines."""
    facts, delay, audit = found["facts"], found["delay_ms"], found["audit"]
    print(f"machine     {facts['machine']}, load at the start {facts['load_at_start']}, {facts['server']}")
    print(f"asked       {found['system']}: {found['schedulers']} schedulers, {found['slots']:,} slots, "
          f"{found['partitions']} partitions, {found['rate']:,.0f} tasks/s of {found['duration_s']:g} s: "
          f"load {found['load']:.2f}, for {found['seconds']:g} s")  # fmt: skip
    names = ("offered", "submitted", "placed", "started", "finished")
    print("per second  " + ", ".join(f"{name} {found[f'{name}_per_s'] or 0:,.0f}" for name in names)
          + (": sustained" if found["sustained"] else ": NOT sustained"))  # fmt: skip
    print("delay ms    " + ", ".join(f"{name} {value:.1f}" for name, value in delay.items())
          + (", growing" if found["delay_grows"] else ""))  # fmt: skip
    print(f"conflicts   {found['conflicts_per_claim']:.4%} of claims; views on average "
          f"{found['staleness_ms'].get('mean', 0):.0f} ms old")  # fmt: skip
    share = found["placed_per_s"] / found["yardstick_claims_per_s"]
    print(f"yardstick   {found['yardstick_claims_per_s']:,.0f} bare claims/s; placed {share:.3f} of it")
    print(f"server      {found['redis_us_per_placement']:.0f} us a placement, "
          f"{found['redis_cpu_share']:.0%} of a core, "
          f"{found['commands_per_placement']:.1f} commands, {found['bytes_per_placement']:.0f} bytes, "
          f"{found['memory_mb']:.0f} MiB")  # fmt: skip
    print("cores       " + ", ".join(f"{kind} {value:.2f}" for kind, value in found["cpu_share"].items()))
    print("audit       " + ", ".join(f"{name} {value}" for name, value in audit.items() if name != "first_facts"))
    for fact in audit["first_facts"]:
        print(f"            {fact}")


def register(app: typer.Typer) -> None:
    """Adds these commands to the group."""
    for command in (placement,):
        app.command()(command)
