"""`parsync bench cost`: what each verb of a task's life costs the server."""

import json
from typing import Annotated, Any

import typer

from parsync_redis.cli.common import Json, print_table
from parsync_redis.errors import InvalidInput

from .measuring import BenchPrimaries, BenchShards, measuring


def cost(
    tasks: Annotated[int, typer.Option(help="The most tasks of a round.")] = 200,
    calls: Annotated[int, typer.Option(help="The most calls of a verb in a round.")] = 50,
    held: Annotated[
        int, typer.Option(help="Tasks that run meanwhile, so that hashes have as many entries.")
    ] = 600,
    rounds: Annotated[int, typer.Option(help="Rounds; 0: 5 by callgrind, 20 by commandstats.")] = 0,
    sizes: Annotated[str, typer.Option(help="How many tasks a call has.")] = "100,10,1",
    by: Annotated[
        str,
        typer.Option(
            help=(
                "callgrind: count instructions; commandstats: microseconds. Default: as valgrind "
                "is there."
            )
        ),
    ] = "",
    server: Annotated[
        str, typer.Option(help="The server's program; by default the usual one.", metavar="PATH")
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the server; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    primaries: BenchPrimaries = 1,
    shards: BenchShards = 0,
    mixed: Annotated[
        bool,
        typer.Option(
            "--mixed",
            help="Calls of tasks of any shards, as with Celery's ids; else of one shard each.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure what each verb costs the server for one task, by the number of tasks in a call."""
    from ..bench.cost import CostParameters, run_cost

    choices = _sizes(sizes), by, server, _options(option or [])
    parameters = CostParameters(tasks, calls, held, rounds, *choices, primaries, shards, mixed)
    parameters.check()
    with measuring() as (stop, line):
        figures = run_cost(parameters, stop, line)
    print(json.dumps(figures, indent=2)) if as_json else _print(figures)


def _sizes(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise InvalidInput(
            f"--sizes {text!r} is not valid: it must be whole numbers with commas between them"
        )
    return tuple(map(int, words))


def _options(words: list[str]) -> dict[str, object]:
    pairs = [word.partition("=") for word in words]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InvalidInput(
                f"--option {name + equals + value!r} is not valid: it must be NAME=VALUE"
            )
    return {name: value for name, _, value in pairs}


def _print(figures: dict[str, Any]) -> None:
    facts = figures["facts"]
    print(f"machine     {facts['machine']}, load at the start {facts['load_average']}")
    print(f"server      {facts['server']}, allocator {facts['allocator']}")
    if figures["primaries"] > 1 or figures["shards"] > 1:
        mixed = "of any shards" if figures["mixed"] else "of one shard each"
        print(
            f"cluster     {figures['primaries']} primaries, whose sum is told; {figures['shards']} "
            f"shards; calls {mixed}"
        )
    if figures["by"] == "callgrind":
        print(
            "unit        thousand instructions of the server for one task, by callgrind: median of "
            "the rounds"
        )
    else:
        print(
            "unit        microseconds of the server's scripts for one task, by commandstats: least "
            "/ median"
        )
    print(
        "life        the sum of the verbs above it; confirm is for tasks that their worker does "
        "not start at once\n"
    )
    columns = [(case, size) for case, sizes in figures["cost"].items() for size in sizes]
    verbs = list(figures["cost"][columns[0][0]][columns[0][1]])
    rows = [
        (verb, *(_cell(figures, figures["cost"][case][size][verb]) for case, size in columns))
        for verb in verbs
    ]
    print_table(("VERB", *(f"{case.upper()}, {size} A CALL" for case, size in columns)), rows, "")


def _cell(figures: dict[str, Any], figure: dict[str, float]) -> str:
    if figures["by"] == "callgrind":
        return f"{figure['median'] / 1000:.1f}"
    return f"{figure['least']:.1f} / {figure['median']:.1f}"
