"""One run of the chaos: a stack, its clients, a storm of faults, calm, and the judgement."""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parsync_redis.store.store import Store
from tests.kit.oracle.audit import audit
from tests.kit.unit_locks import Units, read_units

from .app import TICKS
from .clients import Book, Client, Make, Watcher, mixed, stop_all
from .faults import Storm
from .history import (
    Event,
    Run,
    check_leases,
    check_runs,
    check_task,
    read_calls,
    read_ticks,
    slots_of_runs,
)
from .limited import accounts_left, freed_after_s, set_limits
from .proxy import Line
from .recorder import Recorder
from .stack import LEASE_S, PARTITIONS, Stack

Say = Callable[[str], None]
DRAIN_S = 90.0
"""Seconds from the end of the storm within which the last task must end."""
CLEAN_S = 10 * LEASE_S
"""Seconds from the end of the last task within which the last slot must be free.

The promise is two leases, on a machine that has time for all these processes.
"""


@dataclass(slots=True)
class Outcome:
    """The result of a run: figures, and broken promises."""

    figures: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Field:
    """A stack with clients at work."""

    stack: Stack
    book: Book
    clients: list[Client]
    watcher: Watcher
    lines: dict[str, Line]


@contextmanager
def at_work(
    stack: Stack, rate: float, window: int, make: Make = mixed, cancels: float = 0.02
) -> Iterator[Field]:
    """Start a stack and its clients in an emptied folder, and stop them at the end."""
    shutil.rmtree(stack.folder, ignore_errors=True)
    stack.folder.mkdir(parents=True)
    end_recording = Recorder(stack.folder, "client").watch() if stack.record else lambda: None
    book = Book()
    clients = list[Client]()
    try:
        stack.start()
        store = stack.store()
        set_limits(store)
        store.client.close()
        lines = {
            name: member.line for name, member in stack.members.items() if member.line is not None
        }
        for name in ("client-a", "client-b"):
            if (line := stack.line(stack.seed)) is not None:
                lines[name] = line
            client = Client(
                stack.url_by(line),
                stack.cluster,
                name,
                book,
                rate / 2,
                window,
                stack.seed,
                make,
                cancels,
            )
            clients.append(client)
        watcher = Watcher(stack.store(), book)
        for thread in (*clients, watcher):
            thread.start()
        yield Field(stack, book, clients, watcher, lines)
    finally:
        for client in clients:
            client.stop()
        stack.stop()
        for client in clients:
            if client.is_alive():
                client.join(timeout=180)
        end_recording()


def play(
    seconds: float, seed: int, folder: Path, say: Say, every_s: float = 1.0, rate: float = 12.0
) -> Outcome:
    """Run the storm for so long, let it calm down, and check everything."""
    outcome = Outcome()
    begun_s = time.monotonic()
    with at_work(Stack(folder, seed), rate, window=60) as field:
        storm = Storm(
            field.stack,
            field.lines,
            seed,
            lambda what: say(f"{time.monotonic() - begun_s:7.1f} s  {what}"),
        )
        storm_for(storm, field.book, seconds, every_s, say)
        _calm(storm, field, outcome, say)
    note_deaths(field.stack, outcome, begun_s, say)
    _check(field.stack, storm, field.book, outcome)
    return outcome


def storm_for(storm: Storm, book: Book, seconds: float, every_s: float, say: Say) -> None:
    """Cause faults about every `every_s`, the first after a quiet moment."""
    end_s = time.monotonic() + seconds
    next_s = time.monotonic() + 1.0
    show_s = time.monotonic() + 10.0
    while (now_s := time.monotonic()) < end_s:
        storm.step()
        if now_s >= next_s:
            next_s = now_s + storm.dice.uniform(0.5, 1.5) * every_s
            storm.strike()
        if now_s >= show_s:
            show_s = now_s + 10.0
            say(
                f"          {sum(storm.counts.values())} faults, {len(book.acknowledged)} tasks, "
                f"{len(book.open)} open"
            )
        time.sleep(0.02)


def _calm(storm: Storm, field: Field, outcome: Outcome, say: Say) -> None:
    """End the storm; every task must end, every slot must come free within two leases, and the
    audit must be clean.
    """
    stack = field.stack
    book = field.book
    while not storm.calm():
        time.sleep(0.1)
    stack.await_up()
    stop_all(field.clients)
    say(f"calm: {len(book.open)} tasks are open")
    deadline = time.monotonic() + DRAIN_S
    while book.open and time.monotonic() < deadline:
        stack.supervise()
        time.sleep(0.1)
    store = stack.store()
    ended_s = time.monotonic()
    check_clean(store, PARTITIONS, outcome)
    outcome.figures["clean_leases"] = round((time.monotonic() - ended_s) / LEASE_S, 2)
    field.watcher.stop()
    everything = sorted(book.acknowledged | book.unknown)
    states = [
        state
        for at in range(0, len(everything), 500)
        for state in store.states(everything[at : at + 500])
    ]
    for id, state in zip(everything, states, strict=True):
        book.see(id, state or "gone")
    ends = dict(zip(everything, states, strict=True))
    store.client.close()
    outcome.figures["end_s"] = time.monotonic()
    outcome.figures["ends"] = ends


def check_clean(store: Store, partitions: int, outcome: Outcome) -> None:
    """Wait until no slot is held, no account has a holder, and the audit is clean, for at most
    CLEAN_S; note what is left as broken promises.
    """
    leaks = ["not looked"]
    end_s = time.monotonic() + CLEAN_S
    while leaks and time.monotonic() < end_s:
        time.sleep(0.1)
        held = [
            lease for p in range(partitions) for lease in store.leases(p, store.nodes(p).values())
        ]
        leaks = [*map(str, held), *accounts_left(store), *audit(store)]
    outcome.figures["leaked"] = len(leaks)
    outcome.broken += [f"promise 3 or 6, after the last end: {leak}" for leak in leaks]


def note_deaths(stack: Stack, outcome: Outcome, begun_s: float, say: Say) -> None:
    """Name the processes that ended by themselves, and note how long the run took."""
    for death in stack.deaths:
        say(
            f"{death.name} ended by itself at {death.at_s - begun_s:.1f} s, code {death.code}: "
            f"{death.last}"
        )
    outcome.figures["died_by_themselves"] = len(stack.deaths)
    outcome.figures["seconds"] = round(time.monotonic() - begun_s)


# -- what came of it -------------------------------------------------------------------------------


def events_of(folder: Path) -> Iterator[Event]:
    """Return every recorded call."""
    for path in sorted(folder.glob("calls-*.log")):
        with path.open(encoding="utf-8") as lines:
            yield from read_calls(path.stem.removeprefix("calls-"), lines)


def runs_of(folder: Path) -> list[Run]:
    """Return every run that left ticks."""
    with (folder / TICKS).open(encoding="utf-8") as lines:
        return read_ticks(lines)


def check_histories(
    events: Iterable[Event], ends: Mapping[str, str], end_s: float, outcome: Outcome
) -> None:
    """Check the history of each task in `ends`, which has its last state ('' if it is gone)."""
    by_task = defaultdict[str, list[Event]](list)
    for event in events:
        by_task[event.task].append(event)
    wrong = {
        id: why
        for id, state in ends.items()
        if (why := check_task(by_task[id], state or "none", end_s))
    }
    outcome.broken += [f"task {id}: {why}" for id, why in sorted(wrong.items())]
    outcome.figures["histories_wrong"] = len(wrong)


def check_units(
    stack: Stack, outcome: Outcome, judge: Callable[[Sequence[Run], Units], list[str]] | None = None
) -> None:
    """Check that no run was beyond its limits, by its locks; or what `judge` finds by their times.

    unit_free_leases: how long the units of killed runs were held.
    """
    units = read_units(stack.folder)
    runs = runs_of(stack.folder)
    overruns = units.overruns if judge is None else judge(runs, units)
    freed_s = freed_after_s(runs, events_of(stack.folder), units)
    outcome.broken += overruns
    outcome.figures |= {
        "overruns": len(overruns),
        "overruns_by_locks": len(units.overruns),
        "units_of_limits": dict(sorted(units.locked.items())),
        "last_units": dict(sorted(units.last.items())),
        "unit_free_leases": percentiles([seconds / stack.lease_s for seconds in freed_s]),
    }


def count_accepted_again(events: Iterable[Event]) -> int:
    """Return how many finishes were accepted beyond the first of their task."""
    accepted = [event.task for event in events if (event.verb, event.word) == ("finish", "ok")]
    return len(accepted) - len({*accepted})


def runs_per_task(runs: Sequence[Run]) -> float:
    """Return the mean number of runs of the tasks that ran."""
    return round(len(runs) / max(1, len({run.task for run in runs})), 3)


def _check(stack: Stack, storm: Storm, book: Book, outcome: Outcome) -> None:
    events = list(events_of(stack.folder))
    runs = runs_of(stack.folder)
    ends = outcome.figures.pop("ends")
    end_s = outcome.figures.pop("end_s")
    lost = sorted(id for id in book.acknowledged if id not in book.final)
    outcome.broken += [
        f"promise 1: task {id} was acknowledged and is {ends[id] or 'gone'}" for id in lost
    ]
    outcome.broken += [
        f"promise 1: task {id} was {change}" for id, change in sorted(book.changed.items())
    ]
    twice = [*check_leases(events), *check_runs(runs, slots_of_runs(events))]
    outcome.broken += twice
    check_histories(events, ends, end_s, outcome)
    check_units(stack, outcome)
    placed = [first_after(up_s, events) for up_s in storm.server_up_s]
    outcome.figures |= {
        "faults": sum(storm.counts.values()),
        "tasks": len(ends),
        "acknowledged": len(book.acknowledged),
        "ended": dict(Counter(ends.values())),
        "lost": len(lost),
        "double_booked": len(twice),
        "double_accepted": count_accepted_again(events) + len(book.changed),
        "runs_per_task": runs_per_task(runs),
        "events": len(events),
        "first_placement_s": percentiles([seconds for seconds in placed if seconds is not None]),
        "server_kills": len(storm.server_up_s),
        "client_errors": dict(book.errors),
        "by_kind": dict(sorted(storm.counts.items())),
    }


def percentiles(values: list[float]) -> dict[str, float]:
    """Return p50, p99, the maximum and the count; {} of no values."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "p50": round(ordered[len(ordered) // 2], 2),
        "p99": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 2),
        "max": round(ordered[-1], 2),
    }


def first_after(up_s: float, events: list[Event]) -> float | None:
    """Return seconds from when the server was up again until a claim was won."""
    won = [
        event.back_s
        for event in events
        if event.verb == "commit" and event.word == "held" and event.back_s > up_s
    ]
    return min(won) - up_s if won else None
