"""docs/performance.md as text, from what the benches printed. Pure, but for the files of the plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .bars import bars
from .markdown import Runs, cell_of, named, rungs_of, table
from .plots import draw_plots

HEAD = """\
# Performance

Written by `make bench` from what the commands below printed; nothing here is written by hand. All processes of a run,
the server included, are on the one machine named here, and share its cores.

- **open loop**: a task is due at its time, whether those before it went through or not; who submits late adds delay.
- **delay**: from when a task was due until its claim was committed, by the server's clock; it has waits for a slot.
- **sustained**: placed at least 0.98 of what was offered, and the delay does not grow over the run.
- **load**: the share of the slots that the offered tasks hold.
- **agents** are stand-ins: each process looks after many nodes, and starts, holds, finishes and releases every task
  through the calls of a real agent; it runs no function. What a real worker adds shows `parsync bench celery`.
- **baseline**: claims/s of a bare Lua loop of HSETNX, by one client in batches of 100, just before, on that server.
- Every run ends with an audit: each submitted task succeeded once, every slot free, bitmaps and counters agree.
  *audit* is the number of what was not so.
"""


def render(runs: Runs, out: Path) -> str:
    """The document; plots are written beside it."""
    parts = [HEAD, _machine(runs)]
    for section in (bars, _ladder, _rivals, _kinds, _scale, _small, _celery):
        parts += section(runs)
    plots = draw_plots(runs, out.parent / "performance")
    return "\n".join([*parts, *(f"![{name}](performance/{name}.svg)" for name in plots), ""])


def _command(run: Mapping[str, Any]) -> str:
    return f"`parsync bench {' '.join(run['command'])}`"


def _machine(runs: Runs) -> str:
    facts = [run["found"]["facts"] for run in runs.values() if "load_average" in run["found"].get("facts", {})]
    if not facts:
        return ""
    one, loads = facts[0], [row["load_average"] for row in facts]
    names = ("python", "celery", "redis", "hiredis", "numpy")
    return (
        f"Machine: {one['machine']}; {one['server']}; "
        + ", ".join(f"{n} {one[n]}" for n in names if n in one)
        + f".\\\nLoad average when the runs began: {min(loads):g} to {max(loads):g}"
        + (
            ": the run before had just ended, or **other work went on**; then rates are too low and delays too long.\n"
            if max(loads) > 3
            else ".\n"
        )
    )


def _audit(found: Mapping[str, Any]) -> int:
    return sum(value for value in found["audit"].values() if isinstance(value, int))


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
    found = run["found"]
    return [
        found["offered_per_s"],
        found["placed_per_s"],
        found["placed_per_s"] / found["baseline_claims_per_s"],
        "yes" if found["sustained"] else "no",
        found["delay_ms"]["p50"],
        found["delay_ms"]["p99"],
        f"{found['conflicts_per_claim']:.3%}",
        found["redis_us_per_placement"],
        found["redis_cpu_share"],
        _audit(found),
        _command(run),
    ]


def _ladder(runs: Runs) -> list[str]:
    rungs = [*rungs_of(runs), *named(runs, "eased"), *named(runs, "million")]
    if not rungs:
        return []
    return [
        "## How many placements a second\n",
        "20 schedulers, latency-first, 200,000 slots. Tasks hold their slots for so long that the load is 0.95 once "
        "the first of them end; figures are of the time from then on, conflicts as schedulers tell of them about once "
        "a second. The rates grow until one is not sustained, in two runs, for others have the machine as well. Then "
        "80 % of the highest rate that was, and that with a million slots, few of them held.\n",
        table(_RATES, map(_rates, rungs)),
        "Cores used, by kind of process:\n",
        table(
            (
                "offered/s",
                "slots",
                "agents",
                "schedulers",
                "generators",
                "redis",
                "commands a placement",
                "bytes a placement",
                "memory MiB",
                "mean age of views ms",
            ),
            [
                [
                    f["offered_per_s"],
                    f["slots"],
                    *(f["cpu_share"].get(k) for k in ("agents", "schedulers", "generators", "redis")),
                    f["commands_per_placement"],
                    f["bytes_per_placement"],
                    f["memory_mb"],
                    f["staleness_ms"].get("mean"),
                ]
                for f in (run["found"] for run in rungs)
            ],
        ),
    ]


def _rivals(runs: Runs) -> list[str]:
    rows = named(runs, "rival-")
    if not rows:
        return []
    found = [run["found"] for run in rows]
    return [
        "## Rivals under the same load\n",
        "*state*: our schedulers, each of which reads the whole state once a gap. *central*: no schedulers; a script "
        "takes the best free slot from a sorted set. *queues*: plain Celery, a queue for each of five classes of "
        "machine; its delay is until a worker has the message. Both latter renew no lease, fence nothing, and lose "
        "what a lost process held.\n",
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
                    _audit(f),
                    _command(run),
                ]
                for f, run in zip(found, rows, strict=True)
            ],
        ),
        "*central* wins where all tasks see the same scores and one server suffices: it decides on perfect knowledge, "
        "in the same script that submits, at a fraction of the cost. Who needs no more than that should do that. It "
        "stops being possible where slots are on several servers, because one script sees one server; where tasks have "
        "needs of their own it has to look for what fits inside Redis, see below.\n",
    ]


def _kinds(runs: Runs) -> list[str]:
    rows = named(runs, "kinds-")
    if not rows:
        return []
    return [
        "## 50 kinds of task over 10,000 nodes\n",
        "Each kind requires a GPU model and a zone, and an amount of memory. *central* has to look for a node that "
        "fits, inside Redis, through nodes that do not; our schedulers do that outside, and Redis judges one claim. "
        f"{_cheaper(rows)} All tasks still see the same scores: where each kind has its own, *central* has to look at "
        "every node for every task.\n",
        table(
            ("system", "placed/s", "sustained", "delay p50 ms", "p99", "Redis us", "Redis core", "audit", "command"),
            [
                [
                    f["system"],
                    f["placed_per_s"],
                    "yes" if f["sustained"] else "no",
                    f["delay_ms"]["p50"],
                    f["delay_ms"]["p99"],
                    f["redis_us_per_placement"],
                    f["redis_cpu_share"],
                    _audit(f),
                    _command(run),
                ]
                for f, run in ((run["found"], run) for run in rows)
            ],
        ),
    ]


def _cheaper(rows: list[Mapping[str, Any]]) -> str:
    """Who asked less of the server, in words."""
    cost = {run["found"]["system"]: float(run["found"]["redis_us_per_placement"]) for run in rows}
    if len(cost) < 2:
        return ""
    least, most = sorted(cost, key=lambda system: cost[system])
    return f"Here *{least}* takes less of the server: {cost[least]:.0f} us a placement, *{most}* {cost[most]:.0f} us."


def _scale(runs: Runs) -> list[str]:
    if "scale" not in runs:
        return []
    found = runs["scale"]["found"]
    head = ("slots", "schedulers", "placed/s", "Redis us", "scheduler us", "delay p99 ms", "conflicts", "MiB", "audit")
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
            _audit(r),
        ]
        for r in (*found["by_slots"], *found["by_schedulers"])
    ]
    return [
        "## What a placement costs as the cluster grows\n",
        f"CPU microseconds a placement, at {found['rate']:,.0f} tasks/s of {found['duration_s']:g} s: "
        f"{_command(runs['scale'])}. What is read and renewed whatever the rate is part of it. Redis at 200,000 "
        f"slots / at 2,000: **{cell_of(found['ratio_slots'])}** (bar 1.3); with 20 schedulers / with 1: "
        f"**{cell_of(found['ratio_schedulers'])}** (bar 1.5).\n",
        table(head, rows),
    ]


def _small(runs: Runs) -> list[str]:
    rows: list[Sequence[object]] = []
    if "read" in runs:
        found = runs["read"]["found"]
        rows.append(
            (
                f"reading a partition of {found['slots']:,} held slots: us of the server, HGETALL / snapshot",
                found["hgetall"]["server_us"],
                found["snapshot"]["server_us"],
                found["server_ratio"],
                _command(runs["read"]),
            )
        )
        rows.append(
            (
                "the same, until the client has it",
                found["hgetall"]["client_us"],
                found["snapshot"]["client_us"],
                found["client_ratio"],
                _command(runs["read"]),
            )
        )
    if "submit" in runs:
        found = runs["submit"]["found"]
        rows.append(
            (
                "messages/s, apply_async / submit_many",
                found["apply_async"],
                found["submit_many"],
                found["ratio"],
                _command(runs["submit"]),
            )
        )
    if "idle" in runs:
        found = runs["idle"]["found"]
        rows.append(
            (
                f"idle, {found['schedulers']} schedulers and {found['nodes']:,} nodes: partitions due a second / "
                "requests of a scheduler a second",
                found["partitions_per_gap"],
                found["requests_per_scheduler_and_s"],
                found["requests_per_scheduler_and_s"] / found["partitions_per_gap"],
                _command(runs["idle"]),
            )
        )
        rows.append(
            (
                "idle: cores of the server, of all schedulers",
                found["cpu_share"]["redis"],
                found["cpu_share"]["schedulers"],
                None,
                _command(runs["idle"]),
            )
        )
    return ["## Small ones\n", table(("what", "theirs", "ours", "ratio", "command"), rows)] if rows else []


def _celery(runs: Runs) -> list[str]:
    if "celery" not in runs:
        return []
    found, command = runs["celery"]["found"], _command(runs["celery"])
    rows: list[Sequence[object]] = [
        (f"no-op tasks run/s, {slots} slots a worker", row["plain"], row["parsync"], row["ratio"])
        for slots, row in found["drain_per_s"].items()
    ]
    row = found["drain_10ms_per_s"]
    rows.append(("tasks of 10 ms run/s", row["plain"], row["parsync"], row["ratio"]))
    for name in ("p50", "p99"):
        plain, ours = found["start_ms"]["plain"][name], found["start_ms"]["parsync"][name]
        rows.append((f"one at a time, submit to start, {name} ms", plain, ours, ours / plain))
    return ["## Through real workers\n", f"{command}\n", table(("what", "plain Celery", "parsync", "ratio"), rows)]
