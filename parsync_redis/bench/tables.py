"""docs/performance.md as text, and its plots, from what the benches printed. Pure, but for the plots' files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..simulate.plots import finish_axes, line, new_figure, save

Runs = Mapping[str, Mapping[str, Any]]

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
- **yardstick**: claims/s of a bare Lua loop of HSETNX, by one client in batches of 100, just before, on that server.
- Every run ends with an audit: each submitted task succeeded once, every slot free, bitmaps and counters agree.
  *audit* is the number of what was not so.
"""


def render(runs: Runs, out: Path) -> str:
    """The document; plots are written beside it."""
    parts = [HEAD, _machine(runs)]
    for section in (_bars, _ladder, _rivals, _kinds, _scale, _small, _celery):
        parts += section(runs)
    plots = _plots(runs, out.parent / "performance")
    return "\n".join([*parts, *(f"![{name}](performance/{name}.svg)" for name in plots), ""])


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows), ""])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def _command(run: Mapping[str, Any]) -> str:
    return f"`parsync bench {' '.join(run['command'])}`"


def _some(runs: Runs, prefix: str) -> list[Mapping[str, Any]]:
    return [run for name, run in runs.items() if name.startswith(prefix)]


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
            ": **other work went on meanwhile**, so that rates are too low and delays too long; ratios suffer less.\n"
            if max(loads) > 3
            else ".\n"
        )
    )


def _audit(found: Mapping[str, Any]) -> int:
    return sum(value for value in found["audit"].values() if isinstance(value, int))


def _rungs(runs: Runs) -> list[Mapping[str, Any]]:
    return sorted(_some(runs, "ladder-"), key=lambda run: float(run["found"]["rate"]))


_RATES = (
    "offered/s",
    "placed/s",
    "of the yardstick",
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
        found["placed_per_s"] / found["yardstick_claims_per_s"],
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
    rungs = [*_rungs(runs), *_some(runs, "loaded-")]
    if not rungs:
        return []
    return [
        "## How many placements a second\n",
        "20 schedulers, latency-first. First 200,000 slots at growing rates until one is not sustained; then the "
        "highest rate that was, and 80 % of it, with so few slots that the load is 0.9 and 0.72.\n",
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
    rows = _some(runs, "rival-")
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
        "stops being possible where tasks have needs and scores of their own (below), and where slots are on several "
        "servers: one script sees one server.\n",
    ]


def _kinds(runs: Runs) -> list[str]:
    rows = _some(runs, "kinds-")
    if not rows:
        return []
    return [
        "## 50 kinds of task over 10,000 nodes\n",
        "Each kind requires a GPU model and a zone, and an amount of memory. *central* has to look for a node that "
        "fits, inside Redis; our schedulers do that outside, and Redis judges one claim.\n",
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
        f"slots / at 2,000: **{_cell(found['ratio_slots'])}** (bar 1.3); with 20 schedulers / with 1: "
        f"**{_cell(found['ratio_schedulers'])}** (bar 1.5).\n",
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


def _bars(runs: Runs) -> list[str]:
    """What is to be reached, and what was."""
    rows: list[Sequence[object]] = []
    held = [run["found"] for run in _rungs(runs) if run["found"]["sustained"]]
    if held:
        best = held[-1]
        share = best["placed_per_s"] / best["yardstick_claims_per_s"]
        rows.append(
            (
                "placements/s, 20 schedulers, 200,000 slots",
                "0.12 of the yardstick and 20,000",
                f"{share:.3f} and {best['placed_per_s']:,.0f}",
                share >= 0.12 and best["placed_per_s"] >= 20_000,
            )
        )
    for name, what, bar in (("loaded-1", "conflicts, latency-first, at the highest sustained rate, load 0.9", 0.01),):
        if name in runs:
            seen = runs[name]["found"]["conflicts_per_claim"]
            rows.append((what, f"< {bar:.0%}", f"{seen:.2%}", seen < bar))
    if "loaded-0.8" in runs:
        seen = runs["loaded-0.8"]["found"]["delay_ms"]["p99"]
        rows.append(("delay p99 at 80 % of that rate", "250 ms", f"{seen:.0f} ms", seen <= 250))
    for name, key, what, most in (
        ("scale", "ratio_slots", "Redis CPU a placement, 200,000 slots / 2,000", 1.3),
        ("scale", "ratio_schedulers", "Redis CPU a placement, 20 schedulers / 1", 1.5),
    ):
        if name in runs and runs[name]["found"][key] is not None:
            rows.append((what, f"{most}", f"{runs[name]['found'][key]:.2f}", runs[name]["found"][key] <= most))
    for name, key, what, least in (
        ("read", "server_ratio", "HGETALL of 10,000 held / reading the partition", 30),
        ("submit", "ratio", "submit_many / apply_async", 8),
    ):
        if name in runs:
            rows.append((what, f"{least}", f"{runs[name]['found'][key]:.1f}", runs[name]["found"][key] >= least))
    if "celery" in runs:
        found = runs["celery"]["found"]
        ratio = next(iter(found["drain_per_s"].values()))["ratio"]
        late = found["start_ms"]["parsync"]["p50"] - found["start_ms"]["plain"]["p50"]
        rows.append(("Celery no-op tasks/s, parsync / plain", "0.8", f"{ratio:.2f}", ratio >= 0.8))
        rows.append(("one at a time, submit to start, ours minus plain, p50", "15 ms", f"{late:.1f} ms", late <= 15))
    if "idle" in runs:
        found = runs["idle"]["found"]
        seen, due = found["requests_per_scheduler_and_s"], found["partitions_per_gap"]
        rows.append(("idle: requests of a scheduler a second", f"{3 * due:g}", f"{seen:g}", seen <= 3 * due))
    for row in runs["scale"]["found"]["by_slots"] if "scale" in runs else ():
        if row["slots"] == 10**6:
            memory = row["memory_mb"]
            well = row["sustained"] and memory < 1024
            rows.append(("1,000,000 slots: memory of the server", "1,024 MiB", f"{memory:,.0f} MiB", well))
    shown = [(what, bar, seen, "yes" if well else "**no**") for what, bar, seen, well in rows]
    return ["## What it is to reach\n", table(("what", "bar", "seen", "reached"), shown)] if rows else []


def _plots(runs: Runs, folder: Path) -> list[str]:
    """Rate and delay along the ladder; costs along the scale."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    rungs = [run["found"] for run in _rungs(runs)]
    if rungs:
        figure = new_figure()
        left, right = figure.subplots(1, 2)
        offered = [found["offered_per_s"] for found in rungs]
        line(left, [found["placed_per_s"] for found in rungs], "placed/s", "tab:blue", "o-", offered)
        line(left, offered, "offered/s", "tab:gray", "--", offered)
        for name, colour in (("p50", "tab:green"), ("p99", "tab:red")):
            line(right, [found["delay_ms"][name] for found in rungs], f"delay {name}, ms", colour, "o-", offered)
        right.set_yscale("log")
        for axes in (left, right):
            axes.set_xlabel("offered, tasks/s")
        finish_axes(left, right)
        save(figure, "20 schedulers, 200,000 slots", folder, "rates")
        made.append("rates")
    if "scale" in runs:
        figure = new_figure()
        for axes, by in zip(figure.subplots(1, 2), ("slots", "schedulers"), strict=True):
            rows = runs["scale"]["found"][f"by_{by}"]
            xs = [row[by] for row in rows]
            line(axes, [row["redis_us_per_placement"] for row in rows], "Redis", "tab:red", "o-", xs)
            line(axes, [row["us_per_placement"]["schedulers"] for row in rows], "schedulers", "tab:blue", "o-", xs)
            axes.set_xlabel(by)
            axes.set_ylabel("CPU us a placement")
            axes.set_ylim(bottom=0)
            if by == "slots":
                axes.set_xscale("log")
            finish_axes(axes)
        save(figure, "What a placement costs", folder, "scale")
        made.append("scale")
    return made
