"""The sections of docs/performance.md on placing: rates, rivals, kinds, and cost by size."""

from collections.abc import Mapping
from typing import Any

from .figures import ratio
from .markdown import BenchRuns, audit_of, cell_of, command_of, named, rungs_of, table

_RATES = (
    "offered/s",
    "placed/s",
    "of the baseline",
    "sustained",
    "delay p50 ms",
    "p99",
    "conflicts",
    "Redis us",
    "Redis core",
    "audit",
    "command",
)


def _rates(run: Mapping[str, Any]) -> list[object]:
    figures = run["found"]
    return [
        figures["offered_per_s"],
        figures["placed_per_s"],
        figures["placed_per_s"] / figures["baseline_claims_per_s"],
        "yes" if figures["sustained"] else "no",
        figures["delay_ms"]["p50"],
        figures["delay_ms"]["p99"],
        f"{figures['conflicts_per_claim']:.3%}",
        figures["redis_us_per_placement"],
        figures["redis_cpu_share"],
        audit_of(figures),
        command_of(run),
    ]


_LIVES = (
    "offered/s",
    "agents us",
    "schedulers us",
    "generators us",
    "clients us, sum",
    "Redis us",
    "placements in a CPU second of Redis",
    "claims of the baseline in one",
    "ratio",
)


def _lives(run: Mapping[str, Any]) -> list[object]:
    figures = run["found"]
    clients = figures["us_per_placement"]
    placed = ratio(1e6, figures["redis_us_per_placement"])
    baseline = figures["baseline_claims_per_cpu_s"]
    return [
        figures["offered_per_s"],
        *(clients.get(kind) for kind in ("agents", "schedulers", "generators")),
        sum(clients.values()),
        figures["redis_us_per_placement"],
        placed,
        baseline,
        ratio(placed, baseline),
    ]


def ladder(runs: BenchRuns) -> list[str]:
    """Render the runs at growing rates."""
    rungs = [*rungs_of(runs), *named(runs, "eased"), *named(runs, "million")]
    if not rungs:
        return []
    return [
        "## Placements per second\n",
        "20 schedulers, latency-first, 200,000 slots. Tasks hold their slots so long that the load "
        "reaches 0.95 when"
        " the first of them end. The figures count from then on; schedulers report conflicts about "
        "once a second. "
        "The rates grow until one is not sustained in two runs (two, because other work shares the "
        "machine). The "
        "last two runs have 80 % of the highest sustained rate, the second of them with a million "
        "slots, few of them"
        " held.\n",
        table(_RATES, map(_rates, rungs)),
        "CPU time of a placement, whole life (submit, take, claim, start, finish and release, with "
        "views and "
        "renewals), beside the baseline's claims in a CPU second of the server:\n",
        table(_LIVES, map(_lives, rungs)),
        "Cores used, by kind of process:\n",
        table(
            (
                "offered/s",
                "slots",
                "agents",
                "schedulers",
                "generators",
                "redis",
                "commands per placement",
                "bytes per placement",
                "memory MiB",
                "mean age of views ms",
            ),
            [
                [
                    f["offered_per_s"],
                    f["slots"],
                    *(
                        f["cpu_share"].get(k)
                        for k in ("agents", "schedulers", "generators", "redis")
                    ),
                    f["commands_per_placement"],
                    f["bytes_per_placement"],
                    f["memory_mb"],
                    f["staleness_ms"].get("mean"),
                ]
                for f in (run["found"] for run in rungs)
            ],
        ),
    ]


def rivals(runs: BenchRuns) -> list[str]:
    """Render the runs of other systems under the same load."""
    rows = named(runs, "rival-")
    if not rows:
        return []
    figures = [run["found"] for run in rows]
    return [
        "## Other systems under the same load\n",
        "*state*: our schedulers, but each reads the whole state once a gap. *central*: no "
        "schedulers; a script "
        "takes the best free slot from a sorted set. *queues*: plain Celery with a queue for each "
        "of five classes of"
        " machine; its delay ends when a worker has the message. *central* and *queues* renew no "
        "leases, do not "
        "reject stale processes, and lose the tasks of a lost process.\n",
        table(
            (
                "system",
                "placed/s",
                "sustained",
                "delay p50 ms",
                "p99",
                "conflicts",
                "Redis us",
                "cores, all",
                "audit",
                "command",
            ),
            [
                [
                    f["system"],
                    f["placed_per_s"],
                    "yes" if f["sustained"] else "no",
                    f["delay_ms"]["p50"],
                    f["delay_ms"]["p99"],
                    f"{f['conflicts_per_claim']:.2%}",
                    f["redis_us_per_placement"],
                    sum(f["cpu_share"].values()),
                    audit_of(f),
                    command_of(run),
                ]
                for f, run in zip(figures, rows, strict=True)
            ],
        ),
        "*central* wins if all tasks see the same scores and one server suffices: it decides with "
        "perfect knowledge,"
        " in the script that submits, at a fraction of the cost. If you need no more than that, do "
        "it that way. It "
        "is not possible with slots on several servers, because a script sees only one server. If "
        "tasks have "
        "different needs, it has to search for a fitting node inside Redis, see below.\n",
    ]


def kinds(runs: BenchRuns) -> list[str]:
    """Render the runs with 50 kinds of task."""
    rows = named(runs, "kinds-")
    if not rows:
        return []
    return [
        "## 50 kinds of task over 10,000 nodes\n",
        "Each kind requires a GPU model, a zone, and an amount of memory. *central* searches for a "
        "fitting node inside "
        "Redis; our schedulers search outside, and Redis only judges the claim. "
        f"{_cheaper(rows)} Here all tasks see the same scores. If each kind had its own scores, "
        "*central* would have "
        "to check every node for every task.\n",
        table(
            (
                "system",
                "placed/s",
                "sustained",
                "delay p50 ms",
                "p99",
                "Redis us",
                "Redis core",
                "audit",
                "command",
            ),
            [
                [
                    f["system"],
                    f["placed_per_s"],
                    "yes" if f["sustained"] else "no",
                    f["delay_ms"]["p50"],
                    f["delay_ms"]["p99"],
                    f["redis_us_per_placement"],
                    f["redis_cpu_share"],
                    audit_of(f),
                    command_of(run),
                ]
                for f, run in ((run["found"], run) for run in rows)
            ],
        ),
    ]


def _cheaper(rows: list[Mapping[str, Any]]) -> str:
    """Say which system cost the server less."""
    cost = {run["found"]["system"]: float(run["found"]["redis_us_per_placement"]) for run in rows}
    if len(cost) < 2:
        return ""
    least, most = sorted(cost, key=lambda system: cost[system])
    return (
        f"Here *{least}* costs the server less: {cost[least]:.0f} us per placement, *{most}* "
        f"{cost[most]:.0f} us."
    )


def scale(runs: BenchRuns) -> list[str]:
    """Render the cost of a placement by slots and by schedulers."""
    if "scale" not in runs:
        return []
    figures = runs["scale"]["found"]
    head = (
        "slots",
        "schedulers",
        "placed/s",
        "Redis us",
        "scheduler us",
        "delay p99 ms",
        "conflicts",
        "MiB",
        "audit",
    )
    rows = [
        [
            r["slots"],
            r["schedulers"],
            r["placed_per_s"],
            r["redis_us_per_placement"],
            r["us_per_placement"]["schedulers"],
            r["delay_ms"]["p99"],
            f"{r['conflicts_per_claim']:.2%}",
            r["memory_mb"],
            audit_of(r),
        ]
        for r in (*figures["by_slots"], *figures["by_schedulers"])
    ]
    return [
        "## Cost of a placement by the size of the cluster\n",
        f"CPU microseconds per placement, at {figures['rate']:,.0f} tasks/s of "
        f"{figures['duration_s']:g} s: "
        f"{command_of(runs['scale'])}. The figures include the reads and renewals that do not "
        "depend on the rate. "
        f"Redis at 200,000 slots / at 2,000: **{cell_of(figures['ratio_slots'])}** (target 1.3); "
        "with 20 schedulers / "
        f"with 1: **{cell_of(figures['ratio_schedulers'])}** (target 1.5).\n",
        table(head, rows),
    ]
