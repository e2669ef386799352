"""The table of targets and results in docs/performance.md."""

from collections.abc import Sequence

from .markdown import Runs, rungs_of, table


def bars(runs: Runs) -> list[str]:
    """Render the targets and the figures reached."""
    rows: list[Sequence[object]] = []
    held = [run["found"] for run in rungs_of(runs) if run["found"]["sustained"]]
    if held:
        best = held[-1]
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
        seen = runs["eased"]["found"]["delay_ms"]["p99"]
        rows.append(("delay p99 at 80 % of that rate", "80 ms", f"{seen:.0f} ms", seen <= 80))
    for name, key, what, most in (
        ("scale", "ratio_slots", "Redis CPU per placement, 200,000 slots / 2,000", 1.3),
        ("scale", "ratio_schedulers", "Redis CPU per placement, 20 schedulers / 1", 1.5),
    ):
        if name in runs and runs[name]["found"][key] is not None:
            rows.append(
                (
                    what,
                    f"{most}",
                    f"{runs[name]['found'][key]:.2f}",
                    runs[name]["found"][key] <= most,
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
        found = runs["memory"]["found"]["memory"]["plain"]
        waiting = found["waiting"]["bytes"]
        running = found["running"]["bytes"]
        rows.append(
            (
                "memory of a waiting task / of a running one",
                "1,000 / 1,400 bytes",
                f"{waiting:,.0f} / {running:,.0f} bytes",
                waiting <= 1000 and running <= 1400,
            )
        )
    for name, key, what, least in (
        ("read", "server_ratio", "HGETALL of 10,000 held / reading the partition", 30),
        ("submit", "ratio", "submit_many / apply_async", 8),
    ):
        if name in runs:
            rows.append(
                (
                    what,
                    f"{least}",
                    f"{runs[name]['found'][key]:.1f}",
                    runs[name]["found"][key] >= least,
                )
            )
    if "celery" in runs:
        found = runs["celery"]["found"]
        ratio = next(iter(found["drain_per_s"].values()))["ratio"]
        late = found["start_ms"]["parsync"]["p50"] - found["start_ms"]["plain"]["p50"]
        rows.append(("Celery no-op tasks/s, parsync / plain", "0.8", f"{ratio:.2f}", ratio >= 0.8))
        rows.append(
            (
                "one at a time, submit to start, ours minus plain, p50",
                "15 ms",
                f"{late:.1f} ms",
                late <= 15,
            )
        )
    if "idle" in runs:
        found = runs["idle"]["found"]
        seen = found["requests_per_scheduler_and_s"]
        due = found["partitions_per_gap"]
        rows.append(
            (
                "idle: requests per second of one scheduler",
                f"{3 * due:g}",
                f"{seen:g}",
                seen <= 3 * due,
            )
        )
    for row in runs["scale"]["found"]["by_slots"] if "scale" in runs else ():
        if row["slots"] == 10**6:
            found = [row | {"offered_per_s": runs["scale"]["found"]["rate"]}]
            found += [run["found"] for name, run in runs.items() if name == "million"]
            seen = "; ".join(
                f"{one['placed_per_s']:,.0f} of {one['offered_per_s']:,.0f}/s, "
                f"{one['memory_mb']:,.0f} MiB"
                for one in found
            )
            well = row["sustained"] and all(one["memory_mb"] < 1024 for one in found)
            rows.append(
                (
                    "1,000,000 slots, few of them held: memory of the server",
                    "works, 1,024 MiB",
                    seen,
                    well,
                )
            )
    shown = [(what, bar, seen, "yes" if well else "**no**") for what, bar, seen, well in rows]
    return ["## Targets\n", table(("what", "target", "measured", "reached"), shown)] if rows else []
