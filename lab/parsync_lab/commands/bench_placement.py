"""`parsync bench placement` and `scale`: what a placement costs, at which rate, next to rivals and
by size.
"""

import json
from typing import Annotated, Any

import typer

from parsync_redis.cli.common import Json, print_table
from parsync_redis.errors import InvalidInput

from .measuring import (
    Agents,
    Gap,
    Generators,
    NodeSlots,
    Partitions,
    Primaries,
    Schedulers,
    Seconds,
    Shards,
    Slots,
    Strategy,
    measuring,
)


def placement(
    schedulers: Schedulers = 20,
    slots: Slots = 200_000,
    partitions: Partitions = 20,
    gap: Gap = 0.5,
    rate: Annotated[float, typer.Option(help="Tasks offered a second, open loop.")] = 38_000,
    duration: Annotated[float, typer.Option(help="How long each task is held, seconds.")] = 5.0,
    seconds: Seconds = 30.0,
    strategy: Strategy = "latency",
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
    primaries: Primaries = 1,
    shards: Shards = 0,
    as_json: Json = False,
) -> None:
    """Put schedulers under open-loop load: rates, delays, conflicts, costs.

    An audit ends the run.
    """
    from ..bench.parameters import BenchParameters
    from ..bench.placement import run_placement

    asked = BenchParameters(
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
    )
    asked.check()
    with measuring() as (stop, line):
        found = run_placement(asked, stop, line)
    print(json.dumps(found, indent=2)) if as_json else print_placement(found)
    if any(
        found["audit"][name]
        for name in ("lost", "ran_twice", "leaked_slots", "bitmap_mismatches", "facts")
    ):
        raise typer.Exit(1)


def print_placement(found: dict[str, Any]) -> None:
    """Print the figures of a run."""
    facts = found["facts"]
    delay = found["delay_ms"]
    audit = found["audit"]
    print(f"machine     {facts['machine']}, load at the start {facts['load_average']}")
    print(f"server      {facts['server']}, allocator {facts['allocator']}")
    print(
        f"asked       {found['system']}: {found['schedulers']} schedulers, {found['slots']:,} "
        "slots, "
        f"{found['partitions']} partitions, {found['rate']:,.0f} tasks/s of "
        f"{found['duration_s']:g} s: "
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
    bare = found["baseline_claims_per_s"]
    of_cpu = found["baseline_claims_per_cpu_s"]
    print(
        f"baseline    {bare:,.0f} bare claims/s, {of_cpu:,.0f} a second of CPU; placed {share:.3f} "
        "of the first"
    )
    print(
        f"its cost    {found['redis_us_per_placement']:.0f} us a placement, "
        f"{found['redis_cpu_share']:.0%} of a core, "
        f"{found['commands_per_placement']:.1f} commands, {found['bytes_per_placement']:.0f} "
        "bytes, "
        f"{found['memory_mb']:.0f} MiB"
    )
    if found["primaries"] > 1:
        each = found["primaries_us_per_placement"]
        rest = ", ".join(f"{us:.0f}" for us in each)
        print(
            f"primaries   {rest} us a placement, {max(each):.0f} on the busiest; each has its part "
            "of the cost above"
        )
    print(
        "cores       "
        + ", ".join(f"{kind} {value:.2f}" for kind, value in found["cpu_share"].items())
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
    partitions: Partitions = 20,
    as_json: Json = False,
) -> None:
    """Measure the cost of a placement by the number of slots and by the number of schedulers."""
    from ..bench.parameters import BenchParameters
    from ..bench.scale import run_scale

    asked = BenchParameters(
        10, 20_000, partitions, rate=rate, duration_s=duration, seconds=seconds, node_slots=100
    )
    many = _numbers("--slots", slots)
    crowds = _numbers("--schedulers", schedulers)
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
    print_table(
        ("SLOTS", "SCHEDULERS", "PLACED/S", "REDIS US", "SCHEDULER US", "DELAY P99 MS", "MIB"),
        rows,
        "",
    )
