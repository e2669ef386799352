"""The command `parsync bench queue`: the cost of tasks without a seat, and the order of starts."""

import json
from dataclasses import replace
from typing import Annotated, Any

import typer

from parsync_redis.cli.common import Json, print_table
from parsync_redis.errors import InvalidInput

from .measuring import measuring

BlockedTasks = Annotated[
    int | None, typer.Option(help="Tasks of the blocked kind: 200,000.", show_default=False)
]
BlockedKinds = Annotated[
    int | None, typer.Option(help="Blocked kinds, of a task each: 10,000.", show_default=False)
]
Probes = Annotated[
    int | None, typer.Option(help="Single tasks behind what is blocked: 30.", show_default=False)
]
TasksBefore = Annotated[
    int | None, typer.Option(help="Tasks before one of priority 9: 300,000.", show_default=False)
]
Unseated = Annotated[
    int | None, typer.Option(help="Tasks that are to have a reason: 100,000.", show_default=False)
]
Rounds = Annotated[
    int | None,
    typer.Option(help="How often priority and order are measured: 5.", show_default=False),
]
Quiet = Annotated[
    float | None, typer.Option(help="How long cores are measured: 10 s.", show_default=False)
]
Crowd = Annotated[
    int | None,
    typer.Option(help="Scheduler processes: 2; always 3 for the order.", show_default=False),
]
Only = Annotated[
    str,
    typer.Option(
        help="Parts: blocked-kind, blocked-kinds, priority, order, reasons; all if empty."
    ),
]


def queue(
    waiting: BlockedTasks = None,
    kinds: BlockedKinds = None,
    probes: Probes = None,
    tasks: TasksBefore = None,
    unseated: Unseated = None,
    rounds: Rounds = None,
    quiet: Quiet = None,
    schedulers: Crowd = None,
    only: Only = "",
    short: Annotated[
        bool, typer.Option("--short", help="Small sizes: a look at all figures, in half a minute.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure what tasks that find no place cost the others, and the order in which tasks start.

    The bench ends with an audit of the records.
    """
    from ..bench.queue_bars import QUEUE_PARTS, run_queue
    from ..bench.queue_parameters import SHORT, QueueParameters

    choices: dict[str, Any] = {
        "waiting": waiting,
        "kinds": kinds,
        "probes": probes,
        "tasks": tasks,
        "unseated": unseated,
        "rounds": rounds,
        "quiet_s": quiet,
        "schedulers": schedulers,
    }
    parameters = replace(
        SHORT if short else QueueParameters(), **{n: v for n, v in choices.items() if v is not None}
    )
    parts = only.split(",") if only else list(QUEUE_PARTS)
    if unknown := [part for part in parts if part not in QUEUE_PARTS]:
        raise InvalidInput(
            f"--only {unknown[0]!r} is not known: known are {', '.join(QUEUE_PARTS)}"
        )
    with measuring() as (stop, line):
        figures = run_queue(parameters, stop, line, parts)
    print(json.dumps(figures, indent=2)) if as_json else _print(figures)
    if figures["audit"]:
        raise typer.Exit(1)


def _print(figures: dict[str, Any]) -> None:
    from ..bench.queue_bars import QUEUE_COLUMNS, cells

    facts = figures["facts"]
    print(
        f"machine     {facts['machine']}, load average at the end {facts['load_average']}, "
        f"{facts['server']}"
    )
    print(f"audit       {figures['audit']} facts\n")
    print_table(QUEUE_COLUMNS, map(cells, figures["rows"]), "")
