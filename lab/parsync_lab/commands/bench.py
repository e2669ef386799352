"""The group `parsync bench`, and `bench celery`, which compares parsync with plain Celery."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from parsync_lab import Stopped
from parsync_redis.cli.common import Json, print_table
from parsync_redis.cli.run import stop_by_signal
from parsync_redis.cli.stack import LocalStack
from parsync_redis.client import ParsyncClient
from parsync_redis.errors import ServerUnreachable

from .bench_cost import cost
from .bench_placement import placement, scale
from .bench_queue import queue
from .bench_small import decide, idle, memory, read, report, serve, submit

if TYPE_CHECKING:
    from ..bench.celery import Bench, Round

CELERY_BENCH_CLUSTER: Final = "bench"
WORKERS_START_S: Final = 60.0
DRAIN_BAR: Final = 0.8
LONG_MS: Final = 10.0
SUBMIT_BAR = 8.0
SUBMIT_GOAL = 15.0

app = typer.Typer(no_args_is_help=True, help="Measure what parsync does and costs.")


def register(parent: typer.Typer) -> None:
    """Add the group of these commands to the app."""
    for command in (
        placement,
        cost,
        memory,
        read,
        submit,
        idle,
        serve,
        decide,
        queue,
        scale,
        report,
    ):
        app.command()(command)
    parent.add_typer(app, name="bench")


@app.callback()
def bench() -> None:
    """Measure what parsync does and costs."""


@app.command()
def celery(
    tasks: Annotated[int, typer.Option(min=100, max=1_000_000, help="Tasks of a round.")] = 1500,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Solo workers.")] = 4,
    slots: Annotated[int, typer.Option(min=1, max=1000, help="Slots of each worker.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds of each system.")] = 5,
    schedulers: Annotated[int, typer.Option(min=1, max=16, help="How many schedulers.")] = 2,
    samples: Annotated[int, typer.Option(min=10, help="Single tasks for the latency.")] = 100,
    as_json: Json = False,
) -> None:
    """Compare parsync with plain Celery on the same workers: runs, submits, and latency.

    Both run no-op tasks by turns.
    """
    from ..bench.celery import run_latencies, run_rounds
    from ..bench.figures import quantiles

    say = Console(stderr=True, highlight=False, soft_wrap=True)
    rounds_by_slots: dict[int, list[Round]] = {}
    long: list[Round] = []
    latencies: dict[str, dict[str, float]] = {}
    with stop_by_signal() as (stop, signals):
        try:
            with LocalStack(CELERY_BENCH_CLUSTER) as stack:
                facts = _facts(stack.server(), schedulers, workers, tasks, rounds)
                stack.scheduler(schedulers)
                for slots_each in dict.fromkeys((slots, 1)):
                    say.print(f"{workers} solo workers, {slots_each} slots each")
                    with _workers(stack, workers, slots_each, stop) as bench:
                        rounds_by_slots[slots_each] = run_rounds(
                            bench, tasks, rounds, lambda r: say.print(f"  {_line(r)}")
                        )
                        if slots_each == slots:
                            say.print(f"the same with tasks of {LONG_MS:g} ms")
                            long_tasks = max(100, tasks // 2)
                            long = run_rounds(
                                bench,
                                long_tasks,
                                rounds,
                                lambda r: say.print(f"  {_line(r)}"),
                                LONG_MS,
                            )
                            latencies = {
                                name: quantiles(ms)
                                for name, ms in run_latencies(bench, samples).items()
                            }
        except Stopped:
            raise typer.Exit(130 if 2 in signals else 143) from None
    result = _result(facts, rounds_by_slots, long, latencies)
    print(json.dumps(result, indent=2)) if as_json else _print(result)


@contextmanager
def _workers(stack: LocalStack, count: int, slots: int, stop: Event) -> "Iterator[Bench]":
    """Start workers that consume nothing yet; stop them at the end."""
    from ..bench.celery import Bench

    names = [f"bench{slots}-{number}" for number in range(1, count + 1)]
    for name in names:
        # One task at a time for both; Celery's own prefetch is its default, 4.
        stack.worker(
            "parsync_lab.bench.app",
            name,
            slots,
            pool="solo",
            concurrency=1,
            extra=("-Q", "bench-idle"),
        )
    with ParsyncClient.from_url(stack.url or "", CELERY_BENCH_CLUSTER) as client:
        waited_s = 0.0
        while {n.name for n in client.nodes() if n.state == "up"} < set(names):
            ended = [
                name for name in stack.processes if name not in stack.alive() and name in names
            ]
            if waited_s > WORKERS_START_S or ended:
                lines = list(stack.processes[(ended or names)[0]].lines)[-5:]
                raise ServerUnreachable(
                    f"the workers did not come up within {WORKERS_START_S:g} s\n" + "\n".join(lines)
                )
            if stop.wait(0.1):
                raise Stopped
            waited_s += 0.1
        bench = Bench(client, names, slots, stop)
        bench.until_heard()
        bench.close("parsync")
        yield bench
    for name in names:
        stack.terminate(name)


def _facts(url: str, schedulers: int, workers: int, tasks: int, rounds: int) -> dict[str, Any]:
    with ParsyncClient.from_url(url, CELERY_BENCH_CLUSTER) as client:
        info = client.store.check_server()
    return {
        "machine": (
            f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} "
            f"{platform.release()}"
        ),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "server": f"{info['name']} {info['version']}",
        **{name: version(name) for name in ("celery", "kombu", "redis", "hiredis")},
        "schedulers": schedulers,
        "workers": workers,
        "tasks": tasks,
        "rounds": rounds,
    }


def _result(
    facts: dict[str, Any],
    rounds_by_slots: dict[int, list["Round"]],
    long: list["Round"],
    latencies: dict[str, dict[str, float]],
) -> dict[str, Any]:
    from ..bench.celery import rate, ratio

    def compared(rounds: list["Round"], measure: str) -> dict[str, float]:
        plain = rate(rounds, "plain", measure)
        parsync = rate(rounds, "parsync", measure)
        return {
            "plain": round(plain, 1),
            "parsync": round(parsync, 1),
            "ratio": round(ratio(rounds, measure), 3),
        }

    all_rounds = [round_ for rounds in rounds_by_slots.values() for round_ in rounds]
    return {
        "facts": facts,
        "drain_per_s": {
            str(slots): compared(rounds, "drain_rate") for slots, rounds in rounds_by_slots.items()
        },
        "drain_10ms_per_s": compared(long, "drain_rate"),
        "submit_per_s": compared(all_rounds, "submit_rate"),
        "start_ms": latencies,
    }


def _line(round_: "Round") -> str:
    return (
        f"{round_.system:<8} submitted {round_.submit_rate:8.0f}/s, ran {round_.drain_rate:6.0f}/s"
    )


def _print(result: dict[str, Any]) -> None:
    facts = result["facts"]
    print(f"machine     {facts['machine']}, load at the start {facts['load']}")
    print(
        "versions    "
        + ", ".join(f"{n} {facts[n]}" for n in ("python", "celery", "kombu", "redis", "hiredis"))
        + f", {facts['server']}"
    )
    print(
        f"stack       {facts['schedulers']} schedulers, {facts['workers']} solo workers, which run "
        "both systems by "
        f"turns: {facts['rounds']} rounds of {facts['tasks']} tasks each;\n            "
        "medians, the ratio's over pairs of rounds next to each other"
    )
    print(
        "options     JSON, no results stored, no events, no mingle, gossip or heartbeat, Celery's "
        "prefetch is 4"
    )
    print(
        "drain       all tasks are submitted before any may start; timed from the first to the "
        "last that runs"
    )
    print(
        "slots       more than the one task that a solo worker runs at a time: a short queue at "
        "the worker, as "
        "prefetch is\n"
    )
    rows: list[tuple[object, ...]] = [
        (
            f"tasks run/s, {slots} slot{'s' * (slots != '1')} a worker",
            row["plain"],
            row["parsync"],
            row["ratio"],
            f"at least {DRAIN_BAR:g}",
        )
        for slots, row in result["drain_per_s"].items()
    ]
    row = result["drain_10ms_per_s"]
    rows.append((f"tasks of {LONG_MS:g} ms run/s", row["plain"], row["parsync"], row["ratio"], ""))
    submit = result["submit_per_s"]
    rows.append(
        (
            "submitted/s, apply_async and submit_many",
            submit["plain"],
            submit["parsync"],
            submit["ratio"],
            f"at least {SUBMIT_BAR:g}, goal {SUBMIT_GOAL:g}",
        )
    )
    for name in ("p50", "p99"):
        plain, parsync = (result["start_ms"][system][name] for system in ("plain", "parsync"))
        rows.append(
            (f"ms from submit to start, one at a time, {name}", plain, parsync, parsync / plain, "")
        )
    shown = [tuple(_short(value) for value in row) for row in rows]
    print_table(("", "PLAIN CELERY", "PARSYNC", "RATIO", "BAR"), shown, "")


def _short(value: object) -> object:
    return f"{value:.0f}" if isinstance(value, float) and value >= 100 else value
