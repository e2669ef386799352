"""The cost of a placement by the number of slots, and by the number of schedulers."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from .figures import ratio
from .parameters import BenchParameters
from .placement import Say, run_placement

SCHEDULERS: Final = (1, 2, 5, 10, 20)
SCALE_COLUMNS: Final = (
    "slots",
    "schedulers",
    "placed_per_s",
    "delay_ms",
    "conflicts_per_claim",
    "redis_us_per_placement",
    "script_us_per_placement",
    "us_per_placement",
    "memory_mb",
    "sustained",
    "audit",
)


def _say_of(say: Say, run: str, text: str) -> None:
    say(f"{run}: {text}")


def run_scale(
    parameters: BenchParameters,
    slots: Sequence[int],
    schedulers: Sequence[int],
    stop: threading.Event,
    say: Say,
) -> dict[str, Any]:
    """Run the placement bench for each number of slots, then for each number of schedulers.

    Return the parameters and a table of each: `duration_s` is the length of a task, `seconds` the
    length of a run, `facts` the same facts about the machine in each run.
    """
    plans = [replace(parameters, slots=n, node_slots=max(10, n // 2000)) for n in slots]
    plans += [replace(parameters, schedulers=n) for n in schedulers]
    for plan in plans:
        plan.check()
    rows = []
    facts = {}
    for number, plan in enumerate(plans, 1):
        size = f"{plan.slots:,} slots, {plan.schedulers} schedulers"
        figures = run_placement(
            plan,
            stop,
            partial(_say_of, say, f"{number} of {len(plans)}: {size}"),
        )
        facts = figures["facts"]
        rows.append({name: figures[name] for name in SCALE_COLUMNS})
    by_slots = rows[: len(slots)]
    by_schedulers = rows[len(slots) :]
    return {
        "rate": parameters.rate,
        "duration_s": parameters.duration_s,
        "seconds": parameters.seconds,
        "partitions": parameters.partitions,
        "by_slots": by_slots,
        "by_schedulers": by_schedulers,
        "ratio_slots": _ratio(by_slots, "slots", 200_000, 2_000),
        "ratio_schedulers": _ratio(by_schedulers, "schedulers", 20, 1),
        "facts": facts,
    }


def _ratio(rows: Sequence[dict[str, Any]], by: str, most: int, least: int) -> float | None:
    """Return the Redis CPU per placement at `most` divided by that at `least`.

    None if one of the two was not measured.
    """
    cost = {row[by]: row["redis_us_per_placement"] for row in rows}
    return ratio(cost[most], cost[least], 2) if {most, least} <= cost.keys() else None
