"""The command `parsync simulate`: the paper's experiments with parsync's schedulers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from parsync_redis.cli.common import Json, print_table
from parsync_redis.errors import InvalidInput

if TYPE_CHECKING:
    from ..simulate.experiment import Outcome
    from ..simulate.simulation import Progress as Tell

EXPERIMENT_HELP: Final = {
    "strategies": (
        "Experiment 1 (figure 4): latency-first, quality-first, adaptive; two groups, three phases."
    ),
    "statesync": "Experiment 2: the strategies against StateSync, over five phases of load.",
    "conflicts": (
        "The formula of conflicts of schedulers that pick at random; some cases, or one of your "
        "own numbers."
    ),
    "staleness": "How old the views are, what is read when, and how many bytes.",
    "extra-slots": "Figure 2: slots to spare that keep the delay unchanged, over R, G, V, P and A.",
    "omega": (
        "Omega's transactions: fine or coarse, incremental or all-or-nothing, 1 to 32 schedulers; "
        "no --scale."
    ),
    "fairness": "Two tenants flood, and a third asks for a fifth: shares and waits; no --scale.",
}

app = typer.Typer(
    no_args_is_help=True,
    help="Run the paper's experiments with our own schedulers, in virtual time.",
)


def register(parent: typer.Typer) -> None:
    """Add the group of these commands to the app."""
    parent.add_typer(app, name="simulate")


def _number(flag: str, help: str, kind: type = float) -> Any:
    return typer.Option(flag, help=help, show_default=False, metavar="N" if kind is int else "X")


SimSchedulers = Annotated[int | None, _number("--schedulers", "N, how many schedulers.", int)]
SimPartitions = Annotated[
    int | None, _number("--partitions", "P, how many partitions; at least N.", int)
]
SimGap = Annotated[float | None, _number("--gap", "G, the synchronisation gap, in seconds.")]
SimSlots = Annotated[int | None, _number("--slots", "S, how many slots at scale 1.", int)]
Rate = Annotated[float | None, _number("--rate", "R, tasks a second at scale 1, at full load.")]
Duration = Annotated[
    float | None, _number("--duration", "d, how many seconds a task holds its slot.")
]
ScoreMean = Annotated[float | None, _number("--score-mean", "The mean of the scores.")]
ScoreVariance = Annotated[float | None, _number("--score-variance", "V, their variance.")]
StrategyOption = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        help="latency, quality, quality-partition or adaptive; only this strategy is run.",
        show_default=False,
    ),
]
SyncOption = Annotated[
    str | None,
    typer.Option(
        "--sync",
        help="parsync, state (everything once a gap) or same (all the same at a tick).",
        show_default=False,
    ),
]
Tau = Annotated[
    float | None, _number("--tau", "Adaptive: the delay in seconds above which latency counts.")
]
Ema = Annotated[float | None, _number("--ema", "Adaptive: the weight of the newest delay.")]
Amplifier = Annotated[
    float | None, _number("--amplifier", "A = N K / R: what the schedulers can decide, over R.")
]
Sharpness = Annotated[
    float | None, _number("--sharpness", "How much the dice prefer good slots; the product's is 4.")
]
Length = Annotated[
    float | None, _number("--length", "The share of the experiment's time that is simulated.")
]
SimPrefer = Annotated[
    list[str] | None,
    typer.Option(
        "--prefer",
        help=(
            "A wish of each task: pack, spread, score or fresh (repeat); not for every experiment."
        ),
        show_default=False,
    ),
]
Scale = Annotated[float, typer.Option("--scale", help="Factor by which S, R and K are smaller.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same result.json.")]
Repeat = Annotated[
    int,
    typer.Option(
        "--repeat", help="Number of runs, with seeds from SEED on: means, 95 % intervals."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Processes at a time; 0: one a core.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="The folder for result.json, PNG and SVG.", metavar="DIR"),
]
NoPlots = Annotated[
    bool, typer.Option("--no-plots", help="Draw nothing; matplotlib is not needed then.")
]


def _experiment(
    context: typer.Context,
    schedulers: SimSchedulers = None,
    partitions: SimPartitions = None,
    gap_s: SimGap = None,
    slots: SimSlots = None,
    rate: Rate = None,
    duration_s: Duration = None,
    score_mean: ScoreMean = None,
    score_variance: ScoreVariance = None,
    strategy: StrategyOption = None,
    sync: SyncOption = None,
    tau_s: Tau = None,
    ema: Ema = None,
    amplifier: Amplifier = None,
    sharpness: Sharpness = None,
    length: Length = None,
    prefer: SimPrefer = None,
    scale: Scale = 0.1,
    seed: Seed = 1,
    repeat: Repeat = 1,
    jobs: Jobs = 0,
    out: Out = None,
    no_plots: NoPlots = False,
    as_json: Json = False,
) -> None:
    choices = {
        "schedulers": schedulers,
        "partitions": partitions,
        "gap_s": gap_s,
        "slots": slots,
        "rate": rate,
        "duration_s": duration_s,
        "score_mean": score_mean,
        "score_variance": score_variance,
        "strategy": strategy,
        "sync": sync,
        "tau_s": tau_s,
        "ema": ema,
        "amplifier": amplifier,
        "sharpness": sharpness,
        "length": length,
        "prefer": prefer,
        "scale": scale,
        "seed": seed,
    }
    simulate(str(context.info_name), choices, repeat, jobs, out, not no_plots, as_json)


for _name, _help in EXPERIMENT_HELP.items():
    app.command(_name, help=_help)(_experiment)


TRACE_HELP: Final = {
    "trace": "Replay a real trace, with its time compressed.",
    "jobs": "Share the slots between the jobs of a real trace, by age and as tenants.",
}


def _trace(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(help="A trace of batch tasks, .csv or .csv.gz; see docs/reproduction.md."),
    ],
    load: Annotated[
        float | None,
        _number("--load", "The share of slots and schedulers that is busy; 0.8, of jobs 0.95."),
    ] = None,
    schedulers: SimSchedulers = None,
    partitions: SimPartitions = None,
    gap_s: SimGap = None,
    slots: SimSlots = None,
    rate: Rate = None,
    score_mean: ScoreMean = None,
    score_variance: ScoreVariance = None,
    strategy: StrategyOption = None,
    sync: SyncOption = None,
    tau_s: Tau = None,
    ema: Ema = None,
    amplifier: Amplifier = None,
    sharpness: Sharpness = None,
    length: Length = None,
    prefer: SimPrefer = None,
    scale: Scale = 0.1,
    seed: Seed = 1,
    repeat: Repeat = 1,
    jobs: Jobs = 0,
    out: Out = None,
    no_plots: NoPlots = False,
    as_json: Json = False,
) -> None:
    choices = {
        "trace": str(file),
        "load": load,
        "schedulers": schedulers,
        "partitions": partitions,
        "gap_s": gap_s,
        "slots": slots,
        "rate": rate,
        "score_mean": score_mean,
        "score_variance": score_variance,
        "strategy": strategy,
        "sync": sync,
        "tau_s": tau_s,
        "ema": ema,
        "amplifier": amplifier,
        "sharpness": sharpness,
        "length": length,
        "prefer": prefer,
        "scale": scale,
        "seed": seed,
    }
    simulate(str(context.info_name), choices, repeat, jobs, out, not no_plots, as_json)


for _name, _help in TRACE_HELP.items():
    app.command(_name, help=_help)(_trace)


@app.command("unequal")
def _unequal(
    context: typer.Context,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            help="Gavel's table of throughputs, .json or .json.gz; else speeds are drawn.",
            show_default=False,
            metavar="FILE",
        ),
    ] = None,
    schedulers: SimSchedulers = None,
    partitions: SimPartitions = None,
    gap_s: SimGap = None,
    slots: SimSlots = None,
    duration_s: Duration = None,
    length: Length = None,
    seed: Seed = 1,
    repeat: Repeat = 1,
    jobs: Jobs = 0,
    out: Out = None,
    no_plots: NoPlots = False,
    as_json: Json = False,
) -> None:
    """Run 2,000 tasks of 26 names on three classes of nodes, by score and by `fast`."""
    choices = {
        "trace": trace and str(trace),
        "schedulers": schedulers,
        "partitions": partitions,
        "gap_s": gap_s,
        "slots": slots,
        "duration_s": duration_s,
        "length": length,
        "seed": seed,
    }
    simulate(str(context.info_name), choices, repeat, jobs, out, not no_plots, as_json)


@app.command("report")
def _report(
    results: Annotated[
        Path, typer.Argument(help="A folder with one of results for each experiment.")
    ],
    document: Annotated[
        Path, typer.Argument(help="The Markdown file to write; plots go beside it.")
    ],
) -> None:
    """Write one document of the claims and plots of several experiments."""
    from ..simulate.report import write_report

    print(f"written: {document}, of {', '.join(write_report(results, document))}")


def simulate(
    name: str,
    choices: dict[str, Any],
    repeat: int,
    jobs: int,
    out: Path | None,
    plots: bool,
    as_json: bool,
) -> None:
    """Run one experiment and show it."""
    from ..simulate.experiment import as_json as text_of
    from ..simulate.experiment import run_experiment, write_result
    from ..simulate.plots import new_figure

    chosen = checked(choices)
    plots = plots and out is not None
    if plots:
        new_figure()  # fails at once if matplotlib is missing, not after minutes
    with progress_bar(f"simulate {name}") as tell:
        outcome = run_experiment(name, chosen, repeat, jobs, tell)
    files = write_result(outcome, out, plots) if out else []
    if as_json:
        print(text_of(outcome.result))
    else:
        _print_claims(outcome)
    say = Console(stderr=True, highlight=False, soft_wrap=True)
    by_wall = outcome.placements / outcome.wall_s
    by_cpu = outcome.placements / max(outcome.cpu_s, 1e-9)
    say.print(
        f"{outcome.placements:,} placements in {outcome.wall_s:.1f} s: {by_wall:,.0f} per wall "
        "second, "
        f"{by_cpu:,.0f} per CPU second"
    )
    if files:
        say.print("written: " + ", ".join(map(str, files)))


def checked(choices: dict[str, Any]) -> dict[str, Any]:
    """Return the choices that were made, with enums; raises InvalidInput for an unknown word."""
    from ..simulate.parameters import SimStrategy, Sync

    chosen = {name: value for name, value in choices.items() if value is not None}
    for name, words in (("strategy", SimStrategy), ("sync", Sync)):
        if name in chosen:
            if chosen[name] not in list(words):
                raise InvalidInput(
                    f"--{name} {chosen[name]!r} is not known: known are {', '.join(words)}"
                )
            chosen[name] = words(chosen[name])
    return chosen


@contextmanager
def progress_bar(title: str) -> "Iterator[Tell]":
    """Show a progress bar on stderr, if that is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=Console(stderr=True), disable=not sys.stderr.isatty()
    ) as progress:
        bar = progress.add_task(title, total=1.0)
        yield lambda done: progress.update(bar, completed=done)


def _print_claims(outcome: "Outcome") -> None:
    from ..simulate.experiment import figures_of, rows_of

    columns, figures = figures_of(outcome.result)
    if figures:
        print_table([column.upper() for column in columns], figures, "")
        print()
    rows = rows_of(outcome.result["claims"])
    print_table(
        ("CLAIM", "PAPER", "OURS", "TOLERANCE", "HOLDS"),
        rows,
        "no claim is checked with these parameters",
    )
    if rows:
        print(f"{sum(check.holds for check in outcome.checks)} of {len(rows)} hold")
