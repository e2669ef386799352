"""`parsync whatif`: predict a cluster of the user's numbers, and compare it with alternatives."""

import json
from typing import Annotated, Any

import typer

from ...cli.common import Json, print_table
from .simulate import (
    Duration,
    Gap,
    Jobs,
    Partitions,
    Rate,
    Schedulers,
    ScoreMean,
    ScoreVariance,
    Seed,
    StrategyOption,
    Tau,
    checked,
    progress_bar,
)

Decisions = Annotated[
    float, typer.Option("--decisions", help="K, claims a second that one scheduler can make.")
]
OwnSlots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        help="S, how many slots; by default as many as are 80 % busy.",
        show_default=False,
        metavar="N",
    ),
]


def register(parent: typer.Typer) -> None:
    """Add the command to the app."""
    parent.command()(whatif)


def whatif(
    schedulers: Schedulers = 3,
    partitions: Partitions = 8,
    gap_s: Gap = 0.5,
    rate: Rate = 500.0,
    duration_s: Duration = 5.0,
    slots: OwnSlots = None,
    score_mean: ScoreMean = None,
    score_variance: ScoreVariance = None,
    strategy: StrategyOption = "adaptive",
    tau_s: Tau = None,
    decisions: Decisions = 1000.0,
    seed: Seed = 1,
    jobs: Jobs = 0,
    as_json: Json = False,
) -> None:
    """Predict delays, conflicts and the load of Redis for your numbers. Its delays were 3 to 40 times off: measure."""
    from ..simulate.whatif import as_result, predict

    given = checked(
        {
            "schedulers": schedulers,
            "partitions": partitions,
            "gap_s": gap_s,
            "rate": rate,
            "duration_s": duration_s,
            "score_mean": score_mean,
            "score_variance": score_variance,
            "strategy": strategy,
            "tau_s": tau_s,
            "slots": slots,
        }
    )
    if "slots" not in given:
        given["slots"] = enough_slots(given)
    with progress_bar("whatif") as tell:
        predictions = predict(given, decisions, seed, jobs, tell)
    result = as_result(given, predictions)
    print(json.dumps(result, indent=2)) if as_json else _print(result, given)


def enough_slots(given: dict[str, Any]) -> int:
    """As many slots as the rate keeps 80 % busy, and some for each partition; never more than there may be."""
    from ..simulate.parameters import MOST_SLOTS, NODE_SLOTS

    wanted = float(given["rate"]) * float(given["duration_s"]) / 0.8
    return max(round(max(0.0, min(wanted, MOST_SLOTS))), NODE_SLOTS * int(given["partitions"]))


def _print(result: dict[str, Any], given: dict[str, Any]) -> None:
    print(f"caution: {result['caution']}\n")
    print(f"{given['rate']:g} tasks/s of {given['duration_s']:g} s on {given['slots']:,} slots\n")
    print_table(
        (
            "ALTERNATIVE",
            "N",
            "P",
            "GAP",
            "STRATEGY",
            "KEEPS UP",
            "DELAY P50",
            "P99",
            "CONFLICTS",
            "SCORE",
            "STALENESS",
            "OLDEST",
            "READS/S",
            "KB/S",
            "CALLS/S",
        ),
        [
            (
                f"{'* ' if one['name'] == result['choose'] else ''}{one['name']}",
                one["schedulers"],
                one["partitions"],
                f"{one['gap_s']:g} s",
                one["strategy"],
                "yes" if one["keeps_up"] else "NO",
                _ms(one["delay_p50_s"]),
                _ms(one["delay_p99_s"]),
                f"{one['conflict_fraction']:.1%}",
                "-" if one["score_mean"] is None else f"{one['score_mean']:.3g}",
                _ms(one["staleness_mean_s"]),
                _ms(one["oldest_s"]),
                round(one["reads_per_s"]),
                round(one["read_bytes_per_s"] / 1000),
                round(one["calls_per_s"]),
            )
            for one in result["alternatives"]
        ],
        "",
    )
    print(f"\nchoose: {result['choose'] or 'none'} ({result['why']})")
    print(
        "delays have a wait for a tick in them (GAP / N), which a scheduler that is told of tasks does not wait for"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"
