"""Sections of docs/performance.md on the small benches, and on real workers beside plain Celery."""

from collections.abc import Sequence

from .markdown import Runs, command_of, table


def small(runs: Runs) -> list[str]:
    """Render the benches of single costs: read, submit, idle."""
    rows: list[Sequence[object]] = []
    if "read" in runs:
        found = runs["read"]["found"]
        rows.append(
            (
                f"reading a partition of {found['slots']:,} held slots: server time in us, "
                "HGETALL / snapshot",
                found["hgetall"]["server_us"],
                found["snapshot"]["server_us"],
                found["server_ratio"],
                command_of(runs["read"]),
            )
        )
        rows.append(
            (
                "the same, time until the client has the reply",
                found["hgetall"]["client_us"],
                found["snapshot"]["client_us"],
                found["client_ratio"],
                command_of(runs["read"]),
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
                command_of(runs["submit"]),
            )
        )
    if "idle" in runs:
        found = runs["idle"]["found"]
        rows.append(
            (
                f"idle, {found['schedulers']} schedulers and {found['nodes']:,} nodes: partitions "
                "due per second / "
                "requests per second of one scheduler",
                found["partitions_per_gap"],
                found["requests_per_scheduler_and_s"],
                found["requests_per_scheduler_and_s"] / found["partitions_per_gap"],
                command_of(runs["idle"]),
            )
        )
        rows.append(
            (
                "idle: CPU cores of the server / of all schedulers",
                found["cpu_share"]["redis"],
                found["cpu_share"]["schedulers"],
                None,
                command_of(runs["idle"]),
            )
        )
    return (
        ["## Single operations\n", table(("what", "other", "parsync", "ratio", "command"), rows)]
        if rows
        else []
    )


def cost(runs: Runs) -> list[str]:
    """Render what each verb costs the server, and the memory of a task."""
    parts: list[str] = []
    if "cost" in runs:
        found = runs["cost"]["found"]
        thousand = 1000 if found["by"] == "callgrind" else 1
        unit = (
            "thousand instructions, by callgrind"
            if thousand > 1
            else "microseconds, by commandstats"
        )
        columns = [(case, size) for case, sizes in found["cost"].items() for size in sizes]
        verbs = found["cost"][columns[0][0]][columns[0][1]]
        parts += [
            "## Cost of each verb\n",
            f"{command_of(runs['cost'])}: {unit}, of the server for one task; medians of "
            f"{found['rounds']} rounds. "
            "*life* is the sum of the verbs above it. *needs* are two amounts and a label.\n",
            table(
                ("verb", *(f"{case}, {size} a call" for case, size in columns)),
                [
                    (
                        verb,
                        *(
                            f"{found['cost'][case][size][verb]['median'] / thousand:,.1f}"
                            for case, size in columns
                        ),
                    )
                    for verb in verbs
                ],
            ),
        ]
    if "memory" in runs:
        found = runs["memory"]["found"]
        parts += [
            "## Memory of a task\n",
            f"{command_of(runs['memory'])}: {found['tasks']:,} tasks, messages of "
            f"{found['message_bytes']} bytes; "
            f"{found['facts']['server']}, allocator {found['facts']['allocator']}.\n",
            table(
                ("case", "state", "bytes a task", "MB of all"),
                [
                    (case, state, figure["bytes"], figure["mb"])
                    for case, states in found["memory"].items()
                    for state, figure in states.items()
                ],
            ),
        ]
    return parts


def celery(runs: Runs) -> list[str]:
    """Render the bench through real workers."""
    if "celery" not in runs:
        return []
    found = runs["celery"]["found"]
    command = command_of(runs["celery"])
    rows: list[Sequence[object]] = [
        (f"no-op tasks run/s, {slots} slots per worker", row["plain"], row["parsync"], row["ratio"])
        for slots, row in found["drain_per_s"].items()
    ]
    row = found["drain_10ms_per_s"]
    rows.append(("tasks of 10 ms run/s", row["plain"], row["parsync"], row["ratio"]))
    for name in ("p50", "p99"):
        plain = found["start_ms"]["plain"][name]
        ours = found["start_ms"]["parsync"][name]
        rows.append((f"one at a time, submit to start, {name} ms", plain, ours, ours / plain))
    return [
        "## Through real workers\n",
        f"{command}\n",
        table(("what", "plain Celery", "parsync", "ratio"), rows),
    ]
