"""`parsync replay serving`: requests to models, placed where their models are loaded."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from parsync_lab import Stopped
from parsync_redis.cli.common import Json, print_table
from parsync_redis.errors import InvalidInput
from parsync_redis.model.ids import shown

from .measuring import measuring

if TYPE_CHECKING:
    from ..replay.serving import ServingFigures

SERVING_SLOTS: Final = 8
MEDIAN_LOAD_S: Final = 22.7
"""The median of the measured times to load a model, in Alibaba's trace of 2026."""


def serving(
    trace: Annotated[
        Path, typer.Option(help="The requests: lora_request_trace.csv or .gz.", metavar="FILE")
    ],
    loads: Annotated[
        Path | None,
        typer.Option(
            help="Times to load a model: basemodel_update_latency_anon.csv, .gz or .tar.gz; "
            f"else each load takes {MEDIAN_LOAD_S:g} s.",
            metavar="FILE",
        ),
    ] = None,
    speed: Annotated[
        list[float] | None,
        typer.Option(
            help="Requests come so many times faster than in the trace; repeat it (10 and 30; 60 "
            "with --harvest).",
            show_default=False,
            metavar="X",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="none, least-loaded, hash or warm; repeat it (all).",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Only so many requests, the first.", show_default=False),
    ] = None,
    nodes: Annotated[int, typer.Option(help="Nodes.")] = 10,
    slots: Annotated[
        int | None,
        typer.Option(
            help=f"Slots of each node ({SERVING_SLOTS}; with --harvest the most CPUs of its "
            "machine).",
            show_default=False,
        ),
    ] = None,
    models: Annotated[int, typer.Option(help="Models that a node keeps loaded.")] = 3,
    schedulers: Annotated[int, typer.Option(help="Schedulers, each with a view of its own.")] = 2,
    partitions: Annotated[
        int, typer.Option(help="Partitions, at least as many as schedulers.")
    ] = 4,
    gap_s: Annotated[float, typer.Option("--gap", help="Synchronisation gap, seconds.")] = 0.5,
    seed: Annotated[int, typer.Option(help="The same seed gives the same figures.")] = 1,
    harvest: Annotated[
        Path | None,
        typer.Option(
            help="CPUs of machines over time: the capacity of the nodes follows them.",
            show_default=False,
            metavar="FILE",
        ),
    ] = None,
    regime: Annotated[
        str, typer.Option(help="Of --harvest: a part of the name of the machines to take.")
    ] = "active",
    as_json: Json = False,
) -> None:
    """Replay requests to models: cold starts and latencies, by what the requests prefer."""
    from ..replay.serving import METHODS, Serving, ServingParameters
    from ..replay.serving_trace import read_harvest, read_loads, read_requests

    for name in method or ():
        if name not in METHODS:
            raise InvalidInput(
                f"--method {shown(name)} is not valid: it must be one of {', '.join(METHODS)}"
            )
    if harvest and slots:
        raise InvalidInput("--slots with --harvest is not valid: a node has a slot for each CPU")
    all_parameters = [
        ServingParameters(
            factor,
            nodes,
            *(slots or SERVING_SLOTS, models, schedulers, partitions, gap_s, seed),
        )
        for factor in speed or ((60.0,) if harvest else (10.0, 30.0))
    ]
    machines = read_harvest(harvest, regime) if harvest else []
    requests = read_requests(trace, limit)
    loads_s = read_loads(loads) if loads else [MEDIAN_LOAD_S]
    figures = list["ServingFigures"]()
    with measuring() as (stop, line):
        for parameters in all_parameters:
            for name in method or METHODS:

                def say(text: str, run: str = f"x {parameters.speed:g}, {name}") -> None:
                    if stop.is_set():
                        raise Stopped
                    line(f"{run}: {text}")

                replay = Serving(requests, loads_s, name, parameters, machines)
                replay.run(say)
                figures.append(replay.figures)
    if as_json:
        print(json.dumps([asdict(row) for row in figures], indent=1))
    else:
        _print(figures)
        if harvest:
            _print_recalls(figures)


def _print(figures: Sequence["ServingFigures"]) -> None:
    print_table(
        ("SPEED", "METHOD", "REQUESTS", "COLD STARTS", "P50 S", "P99 S", "CLAIMS", "LOST"),
        [
            (
                f"x {row.speed:g}",
                row.method,
                f"{row.requests:,}",
                f"{row.cold:.1%}",
                f"{row.p50_s:.1f}",
                f"{row.p99_s:.1f}",
                f"{row.claims:,}",
                f"{row.lost:.2%}",
            )
            for row in figures
        ],
        "",
    )


def _print_recalls(figures: Sequence["ServingFigures"]) -> None:
    print()
    print_table(
        ("SPEED", "METHOD", "RECALLS", "RECALLED ONCE AT MOST", "CLAIMS BEYOND CAPACITY"),
        [
            (
                f"x {row.speed:g}",
                row.method,
                row.recalls,
                f"{row.at_most_once:.3%}",
                row.beyond,
            )
            for row in figures
        ],
        "",
    )
