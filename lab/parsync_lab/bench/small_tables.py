"""Sections of docs/performance.md on the small benches, and on real workers beside plain Celery."""

from collections.abc import Sequence

from .markdown import BenchRuns, command_of, table


def small(runs: BenchRuns) -> list[str]:
    """Render the benches of single costs: read, submit, idle."""
    rows: list[Sequence[object]] = []
    if "read" in runs:
        figures = runs["read"]["found"]
        rows.append(
            (
                f"reading a partition of {figures['slots']:,} held slots: server time in us, "
                "HGETALL / snapshot",
                figures["hgetall"]["server_us"],
                figures["snapshot"]["server_us"],
                figures["server_ratio"],
                command_of(runs["read"]),
            )
        )
        rows.append(
            (
                "the same, time until the client has the reply",
                figures["hgetall"]["client_us"],
                figures["snapshot"]["client_us"],
                figures["client_ratio"],
                command_of(runs["read"]),
            )
        )
    if "submit" in runs:
        figures = runs["submit"]["found"]
        rows.append(
            (
                "messages/s, apply_async / submit_many",
                figures["apply_async"],
                figures["submit_many"],
                figures["ratio"],
                command_of(runs["submit"]),
            )
        )
    if "idle" in runs:
        figures = runs["idle"]["found"]
        rows.append(
            (
                f"idle, {figures['schedulers']} schedulers and {figures['nodes']:,} nodes: "
                "partitions due per second / requests per second of one scheduler",
                figures["partitions_per_gap"],
                figures["requests_per_scheduler_and_s"],
                figures["requests_per_scheduler_and_s"] / figures["partitions_per_gap"],
                command_of(runs["idle"]),
            )
        )
        rows.append(
            (
                "idle: CPU cores of the server / of all schedulers",
                figures["cpu_share"]["redis"],
                figures["cpu_share"]["schedulers"],
                None,
                command_of(runs["idle"]),
            )
        )
    return (
        ["## Single operations\n", table(("what", "other", "parsync", "ratio", "command"), rows)]
        if rows
        else []
    )


def cost(runs: BenchRuns) -> list[str]:
    """Render what each verb costs the server, and the memory of a task."""
    parts: list[str] = []
    if "cost" in runs:
        figures = runs["cost"]["found"]
        thousand = 1000 if figures["by"] == "callgrind" else 1
        unit = (
            "thousand instructions, by callgrind"
            if thousand > 1
            else "microseconds, by commandstats"
        )
        columns = [(case, size) for case, sizes in figures["cost"].items() for size in sizes]
        verbs = figures["cost"][columns[0][0]][columns[0][1]]
        parts += [
            "## Cost of each verb\n",
            f"{command_of(runs['cost'])}: {unit}, of the server for one task; medians of "
            f"{figures['rounds']} rounds. "
            "*life* is the sum of the verbs above it. *needs* are two amounts and a label.\n",
            table(
                ("verb", *(f"{case}, {size} a call" for case, size in columns)),
                [
                    (
                        verb,
                        *(
                            f"{figures['cost'][case][size][verb]['median'] / thousand:,.1f}"
                            for case, size in columns
                        ),
                    )
                    for verb in verbs
                ],
            ),
        ]
    if "memory" in runs:
        figures = runs["memory"]["found"]
        parts += [
            "## Memory of a task\n",
            f"{command_of(runs['memory'])}: {figures['tasks']:,} tasks, messages of "
            f"{figures['message_bytes']} bytes; "
            f"{figures['facts']['server']}, allocator {figures['facts']['allocator']}.\n",
            table(
                ("case", "state", "bytes a task", "MB of all"),
                [
                    (case, state, figure["bytes"], figure["mb"])
                    for case, states in figures["memory"].items()
                    for state, figure in states.items()
                ],
            ),
        ]
    return parts


def celery(runs: BenchRuns) -> list[str]:
    """Render the bench through real workers."""
    if "celery" not in runs:
        return []
    figures = runs["celery"]["found"]
    command = command_of(runs["celery"])
    rows: list[Sequence[object]] = [
        (f"no-op tasks run/s, {slots} slots per worker", row["plain"], row["parsync"], row["ratio"])
        for slots, row in figures["drain_per_s"].items()
    ]
    row = figures["drain_10ms_per_s"]
    rows.append(("tasks of 10 ms run/s", row["plain"], row["parsync"], row["ratio"]))
    for name in ("p50", "p99"):
        plain = figures["start_ms"]["plain"][name]
        parsync_ms = figures["start_ms"]["parsync"][name]
        rows.append(
            (f"one at a time, submit to start, {name} ms", plain, parsync_ms, parsync_ms / plain)
        )
    return [
        "## Through real workers\n",
        f"{command}\n",
        table(("what", "plain Celery", "parsync", "ratio"), rows),
    ]
