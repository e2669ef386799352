"""The table of targets and results in docs/performance.md."""

from collections.abc import Sequence

from .markdown import BenchRuns, rungs_of, table


def target_lines(runs: BenchRuns) -> list[str]:
    """Return the lines of the table: target, bar, measured figure, and whether it is reached."""
    rows: list[Sequence[object]] = []
    sustained = [run["found"] for run in rungs_of(runs) if run["found"]["sustained"]]
    if sustained:
        best = sustained[-1]
        share = best["placed_per_s"] / best["baseline_claims_per_s"]
        rows.append(
            (
                f"placements/s, 20 schedulers, 200,000 slots, load {best['load']:.2f}",
                "0.12 of the baseline and 20,000",
                f"{share:.3f} and {best['placed_per_s']:,.0f}",
                share >= 0.12 and best["placed_per_s"] >= 20_000,
            )
        )
        lost = best["conflicts_per_claim"]
        rows.append(("conflicts, latency-first, at that load", "< 1%", f"{lost:.2%}", lost < 0.01))
        clients = sum(best["us_per_placement"].values())
        rows.append(
            (
                "CPU of schedulers, agents and generators per placement",
                "40 us",
                f"{clients:.0f} us",
                clients <= 40,
            )
        )
    if "eased" in runs:
        measured = runs["eased"]["found"]["delay_ms"]["p99"]
        rows.append(
            ("delay p99 at 80 % of that rate", "80 ms", f"{measured:.0f} ms", measured <= 80)
        )
    for name, key, target, highest in (
        ("scale", "ratio_slots", "Redis CPU per placement, 200,000 slots / 2,000", 1.3),
        ("scale", "ratio_schedulers", "Redis CPU per placement, 20 schedulers / 1", 1.5),
    ):
        if name in runs and runs[name]["found"][key] is not None:
            rows.append(
                (
                    target,
                    f"{highest}",
                    f"{runs[name]['found'][key]:.2f}",
                    runs[name]["found"][key] <= highest,
                )
            )
    if "cost" in runs and runs["cost"]["found"]["by"] == "callgrind":
        plain = runs["cost"]["found"]["cost"]["plain"]
        lives = [plain[size]["life"]["median"] / 1000 for size in ("100", "10", "1")]
        rows.append(
            (
                "thousand instructions of the server a life, calls of 100 / 10 / 1",
                "200 / 290 / 950",
                " / ".join(f"{life:,.0f}" for life in lives),
                all(life <= bar for life, bar in zip(lives, (200, 290, 950), strict=True)),
            )
        )
    if "memory" in runs:
        figures = runs["memory"]["found"]["memory"]["plain"]
        waiting = figures["waiting"]["bytes"]
        running = figures["running"]["bytes"]
        rows.append(
            (
                "memory of a waiting task / of a running one",
                "1,000 / 1,400 bytes",
                f"{waiting:,.0f} / {running:,.0f} bytes",
                waiting <= 1000 and running <= 1400,
            )
        )
    for name, key, target, lowest in (
        ("read", "server_ratio", "HGETALL of 10,000 held / reading the partition", 30),
        ("submit", "ratio", "submit_many / apply_async", 8),
    ):
        if name in runs:
            rows.append(
                (
                    target,
                    f"{lowest}",
                    f"{runs[name]['found'][key]:.1f}",
                    runs[name]["found"][key] >= lowest,
                )
            )
    if "celery" in runs:
        figures = runs["celery"]["found"]
        ratio = next(iter(figures["drain_per_s"].values()))["ratio"]
        later_ms = figures["start_ms"]["parsync"]["p50"] - figures["start_ms"]["plain"]["p50"]
        rows.append(("Celery no-op tasks/s, parsync / plain", "0.8", f"{ratio:.2f}", ratio >= 0.8))
        rows.append(
            (
                "one at a time, submit to start, ours minus plain, p50",
                "15 ms",
                f"{later_ms:.1f} ms",
                later_ms <= 15,
            )
        )
    if "idle" in runs:
        figures = runs["idle"]["found"]
        measured = figures["requests_per_scheduler_and_s"]
        due = figures["partitions_per_gap"]
        rows.append(
            (
                "idle: requests per second of one scheduler",
                f"{3 * due:g}",
                f"{measured:g}",
                measured <= 3 * due,
            )
        )
    for row in runs["scale"]["found"]["by_slots"] if "scale" in runs else ():
        if row["slots"] == 10**6:
            figures = [row | {"offered_per_s": runs["scale"]["found"]["rate"]}]
            figures += [run["found"] for name, run in runs.items() if name == "million"]
            measured = "; ".join(
                f"{figure_row['placed_per_s']:,.0f} of {figure_row['offered_per_s']:,.0f}/s, "
                f"{figure_row['memory_mb']:,.0f} MiB"
                for figure_row in figures
            )
            reached = row["sustained"] and all(
                figure_row["memory_mb"] < 1024 for figure_row in figures
            )
            rows.append(
                (
                    "1,000,000 slots, few of them held: memory of the server",
                    "works, 1,024 MiB",
                    measured,
                    reached,
                )
            )
    shown = [
        (target, bar, measured, "yes" if reached else "**no**")
        for target, bar, measured, reached in rows
    ]
    return ["## Targets\n", table(("what", "target", "measured", "reached"), shown)] if rows else []
