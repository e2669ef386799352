"""The commands `parsync bench placement` and `scale`: the cost of a placement, by rate and size."""

import json
from typing import Annotated, Any

import typer

from parsync_redis.cli.common import Json, print_table
from parsync_redis.errors import InvalidInput

from .measuring import (
    Agents,
    BenchGap,
    BenchPartitions,
    BenchPrimaries,
    BenchSchedulers,
    BenchShards,
    BenchSlots,
    BenchStrategy,
    Generators,
    NodeSlots,
    Seconds,
    measuring,
)


def placement(
    schedulers: BenchSchedulers = 20,
    slots: BenchSlots = 200_000,
    partitions: BenchPartitions = 20,
    gap: BenchGap = 0.5,
    rate: Annotated[float, typer.Option(help="Tasks offered a second, open loop.")] = 38_000,
    duration: Annotated[float, typer.Option(help="How long each task is held, seconds.")] = 5.0,
    seconds: Seconds = 30.0,
    strategy: BenchStrategy = "latency",
    system: Annotated[
        str, typer.Option(help="parsync, or a rival: state, central, queues.")
    ] = "parsync",
    node_slots: NodeSlots = 100,
    agents: Agents = 2,
    generators: Generators = 1,
    lease: Annotated[float, typer.Option(help="Lease of nodes and schedulers, seconds.")] = 10.0,
    kinds: Annotated[int, typer.Option(help="Kinds of task: 1, or 50 (labels, amounts).")] = 1,
    aof: Annotated[
        bool, typer.Option(help="The server keeps its append-only file (fsync every second).")
    ] = False,
    primaries: BenchPrimaries = 1,
    shards: BenchShards = 0,
    prefer: Annotated[
        list[str] | None,
        typer.Option(help="A wish of each task, as `pack`; may be repeated.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put schedulers under open-loop load: rates, delays, conflicts, costs.

    An audit ends the run.
    """
    from ..bench.parameters import BenchParameters
    from ..bench.placement import run_placement

    parameters = BenchParameters(
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
        primaries,
        shards,
        tuple(prefer or ()),
    )
    parameters.check()
    with measuring() as (stop, line):
        figures = run_placement(parameters, stop, line)
    print(json.dumps(figures, indent=2)) if as_json else print_placement(figures)
    if any(
        figures["audit"][name]
        for name in ("lost", "ran_twice", "leaked_slots", "bitmap_mismatches", "facts")
    ):
        raise typer.Exit(1)


def print_placement(figures: dict[str, Any]) -> None:
    """Print the figures of a run."""
    facts = figures["facts"]
    delay = figures["delay_ms"]
    audit = figures["audit"]
    print(f"machine     {facts['machine']}, load at the start {facts['load_average']}")
    print(f"server      {facts['server']}, allocator {facts['allocator']}")
    print(
        f"asked       {figures['system']}: {figures['schedulers']} schedulers, "
        f"{figures['slots']:,} slots, {figures['partitions']} partitions, "
        f"{figures['rate']:,.0f} tasks/s of {figures['duration_s']:g} s: "
        f"load {figures['load']:.2f}, for {figures['seconds']:g} s"
        + (f"; tasks prefer {', '.join(figures['prefer'])}" if figures["prefer"] else "")
    )
    names = ("offered", "submitted", "placed", "started", "finished")
    print(
        "per second  "
        + ", ".join(f"{name} {figures[f'{name}_per_s'] or 0:,.0f}" for name in names)
        + (": sustained" if figures["sustained"] else ": NOT sustained")
    )
    print(
        "delay ms    "
        + ", ".join(f"{name} {value:.1f}" for name, value in delay.items())
        + (", growing" if figures["delay_grows"] else "")
    )
    print(
        f"conflicts   {figures['conflicts_per_claim']:.4%} of claims; views on average "
        f"{figures['staleness_ms'].get('mean', 0):.0f} ms old"
    )
    share = figures["placed_per_s"] / figures["baseline_claims_per_s"]
    bare = figures["baseline_claims_per_s"]
    of_cpu = figures["baseline_claims_per_cpu_s"]
    print(
        f"baseline    {bare:,.0f} bare claims/s, {of_cpu:,.0f} a second of CPU; placed {share:.3f} "
        "of the first"
    )
    print(
        f"its cost    {figures['redis_us_per_placement']:.0f} us a placement, "
        f"{figures['redis_cpu_share']:.0%} of a core, "
        f"{figures['commands_per_placement']:.1f} commands, {figures['bytes_per_placement']:.0f} "
        "bytes, "
        f"{figures['memory_mb']:.0f} MiB"
    )
    if figures["primaries"] > 1:
        us_of_primaries = figures["primaries_us_per_placement"]
        listed = ", ".join(f"{us:.0f}" for us in us_of_primaries)
        print(
            f"primaries   {listed} us a placement, {max(us_of_primaries):.0f} on the busiest; "
            "each has its part of the cost above"
        )
    print(
        "cores       "
        + ", ".join(f"{kind} {value:.2f}" for kind, value in figures["cpu_share"].items())
    )
    print(
        "audit       "
        + ", ".join(f"{name} {value}" for name, value in audit.items() if name != "first_facts")
    )
    for fact in audit["first_facts"]:
        print(f"            {fact}")


def _numbers(flag: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise InvalidInput(
            f"{flag} {text!r} is not valid: it must be whole numbers with commas between them"
        )
    return [int(word) for word in words]


def scale(
    slots: Annotated[str, typer.Option(help="Numbers of slots.")] = "2000,20000,200000,1000000",
    schedulers: Annotated[str, typer.Option(help="Numbers of schedulers.")] = "1,2,5,10,20",
    rate: Annotated[float, typer.Option(help="Tasks offered a second.")] = 1000,
    duration: Annotated[float, typer.Option(help="How long each task is held, seconds.")] = 1.0,
    seconds: Seconds = 10.0,
    partitions: BenchPartitions = 20,
    as_json: Json = False,
) -> None:
    """Measure the cost of a placement by the number of slots and by the number of schedulers."""
    from ..bench.parameters import BenchParameters
    from ..bench.scale import run_scale

    parameters = BenchParameters(
        10, 20_000, partitions, rate=rate, duration_s=duration, seconds=seconds, node_slots=100
    )
    slot_counts = _numbers("--slots", slots)
    crowds = _numbers("--schedulers", schedulers)
    parameters.check()
    with measuring() as (stop, line):
        figures = run_scale(parameters, slot_counts, crowds, stop, line)
    if as_json:
        print(json.dumps(figures, indent=2))
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
        for row in (*figures["by_slots"], *figures["by_schedulers"])
    ]
    print_table(
        ("SLOTS", "SCHEDULERS", "PLACED/S", "REDIS US", "SCHEDULER US", "DELAY P99 MS", "MIB"),
        rows,
        "",
    )
