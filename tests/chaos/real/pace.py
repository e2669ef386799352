"""Longer runs of the same stack: throughput while processes are killed, and memory over time."""

from __future__ import annotations

import random
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from .clients import stop_all
from .history import Run
from .play import Field, Say, at_work, events_of, first_after, percentiles, runs_of
from .stack import LEASE_S, WORKERS, Member, Stack, session

TASK_S = 0.1
LONG_S = 0.6
SLOTS = sum(spec.slots for spec in WORKERS)
KILL_EVERY_S = 10.0
SHORT_RETENTION_S = 30


@dataclass(frozen=True, slots=True)
class Kill:
    """A node whose processes were all killed, and when."""

    node: str
    at_s: float


def _short(dice: random.Random) -> dict[str, Any]:
    return {"args": [TASK_S], "wait_for_capacity": True}


def _long(dice: random.Random) -> dict[str, Any]:
    return {"args": [LONG_S], "wait_for_capacity": True}


def _finished(field: Field, seconds: float) -> Iterator[float]:
    """Let time pass and print it; restart members that ended at once."""
    end_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < end_s:
        field.stack.supervise()
        time.sleep(0.02)
        yield now_s


def throughput(seconds: float, seed: int, folder: Path, say: Say) -> dict[str, Any]:
    """Run four phases: quiet; a worker and a scheduler killed every ten seconds; at four tenths of
    the slots, with longer tasks, a worker killed every three leases and away for two and a half;
    the server killed every three leases.

    seconds: of each. The ratio of the first two, in tasks a second, and how many leases it took in
    the third until what ran on the killed node ran again; and in the fourth the seconds from when
    the server was there again to a placement.
    """
    dice = random.Random(seed)
    rates = dict[str, float]()
    with at_work(Stack(folder, seed), rate=1e6, window=80, make=_short, cancels=0.0) as field:
        for _ in _finished(field, 5.0):
            pass
        for phase, kinds in (("undisturbed", ()), ("killed", ("n", "scheduler"))):
            begun_s = time.monotonic()
            before = len(field.book.final)
            _killing(field, seconds, kinds, KILL_EVERY_S, 0.0, dice, say)
            rates[phase] = (len(field.book.final) - before) / (time.monotonic() - begun_s)
            say(f"{phase}: {rates[phase]:.1f} tasks/s")
        for client in field.clients:
            client.make = _long
            client.rate = 0.4 * SLOTS / LONG_S / len(field.clients)
        for _ in _finished(field, 5.0):
            pass
        kills = _killing(field, seconds, ("n",), 3 * LEASE_S, 2.5 * LEASE_S, dice, say)
        for _ in _finished(field, 3 * LEASE_S):
            pass
        ups = _restarting(field, seconds)
        stop_all(field.clients)
        deadline = time.monotonic() + 180
        while field.book.open and time.monotonic() < deadline:
            field.stack.supervise()
            time.sleep(0.1)
        lost = len(field.book.open)
    moved = moved_after(kills, runs_of(folder))
    events = list(events_of(folder))
    return {
        "seed": seed,
        "undisturbed": round(rates["undisturbed"], 1),
        "killed": round(rates["killed"], 1),
        "ratio": round(rates["killed"] / rates["undisturbed"], 3),
        "lost": lost,
        "kills": len(kills),
        "moved_leases": percentiles([seconds / LEASE_S for seconds in moved]),
        "first_placement_s": percentiles(
            [wait for up_s in ups if (wait := first_after(up_s, events)) is not None]
        ),
    }


def _killing(
    field: Field,
    seconds: float,
    kinds: tuple[str, ...],
    every_s: float,
    away_s: float,
    dice: random.Random,
    say: Say,
) -> list[Kill]:
    """Let time pass; every so often kill one member of each kind, which stays away for so long."""
    kills = list[Kill]()
    next_s = time.monotonic()
    back = list[tuple[float, Member]]()
    for now_s in _finished(field, seconds):
        for at_s, member in [one for one in back if one[0] <= now_s]:
            back.remove((at_s, member))
            member.busy = False
        if not kinds or now_s < next_s:
            continue
        next_s += every_s
        victims = [
            dice.choice([m for n, m in sorted(field.stack.members.items()) if n.startswith(kind)])
            for kind in kinds
        ]
        for member in victims:
            assert member.process is not None
            member.busy = True
            field.stack.signal(member.process, signal.SIGKILL)
            back.append((now_s + away_s, member))
        kills.append(Kill(victims[0].name, time.monotonic()))
        say(f"killed {' and '.join(member.name for member in victims)}")
    for _, member in back:
        member.busy = False
    return kills


def _restarting(field: Field, seconds: float) -> list[float]:
    """Kill the server every three leases and start it at once; return when it was up again."""
    ups = list[float]()
    next_s = time.monotonic()
    for now_s in _finished(field, seconds):
        if now_s >= next_s:
            next_s += 3 * LEASE_S
            field.stack.server.restart(kill=True)
            ups.append(time.monotonic())
    return ups


def moved_after(kills: list[Kill], runs: list[Run]) -> list[float]:
    """Return seconds from the kill of a node until each task that ran there runs again."""
    found = []
    for kill in kills:
        for run in runs:
            if (
                run.node == kill.node
                and not run.ended
                and kill.at_s - 0.5 < run.last_s < kill.at_s + 0.1
            ):
                later = [
                    other.began_s
                    for other in runs
                    if other.task == run.task and other.began_s > kill.at_s
                ]
                found += [min(later) - kill.at_s] if later else []
    return found


def soak(minutes: float, seed: int, folder: Path, say: Say) -> dict[str, Any]:
    """Measure memory at 70 % load: how much it grew after the first third.

    Bytes by name: each scheduler and worker with its pool (proportional set size), and what the
    server uses. Compared are the means of a ninth of the time, after the first third and at the
    end.
    """
    stack = Stack(folder, seed, retention_s=SHORT_RETENTION_S, record=False)
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with at_work(stack, rate=1e6, window=80, make=_short, cancels=0.0) as field:
        for _ in _finished(field, 5.0):
            pass
        begun_s = time.monotonic()
        before = len(field.book.final)
        for _ in _finished(field, 20.0):
            pass
        most = (len(field.book.final) - before) / (time.monotonic() - begun_s)
        for client in field.clients:
            client.rate = 0.7 * most / len(field.clients)
        say(f"{most:.1f} tasks/s at most; now {0.7 * most:.1f}")
        begun_s = time.monotonic()
        before = len(field.book.final)
        next_s = 0.0
        shown = 0
        for now_s in _finished(field, 60 * minutes):
            if now_s >= next_s:
                next_s = now_s + 5.0
                for name, size in memory(stack).items():
                    seen[name].append((now_s - begun_s, size))
                if int((now_s - begun_s) / 60) > shown:
                    shown += 1
                    sizes = " ".join(
                        f"{name}={rows[-1][1] / 2**20:.1f}" for name, rows in seen.items()
                    )
                    say(f"{shown:4d} min, MiB: {sizes}")
        done = len(field.book.final) - before
    span_s = 60 * minutes
    growth = {
        name: round(
            100
            * (_mean(rows, span_s * 8 / 9, span_s) / _mean(rows, span_s / 3, span_s * 4 / 9) - 1),
            2,
        )
        for name, rows in seen.items()
    }
    return {
        "seed": seed,
        "minutes": minutes,
        "tasks": done,
        "tasks_per_s": round(done / span_s, 1),
        "growth_percent": growth,
        "worst_percent": max(growth.values()),
        "ended_by_themselves": len(stack.deaths),
    }


def _mean(rows: list[tuple[float, float]], begin_s: float, end_s: float) -> float:
    return fmean(size for at_s, size in rows if begin_s <= at_s <= end_s)


def memory(stack: Stack) -> dict[str, float]:
    """Return the bytes of memory by member, and of the server as 'server'."""
    found = {}
    for name, member in stack.members.items():
        if member.process is not None:
            found[name] = float(sum(_pss(pid) for pid in session(member.process.popen.pid)))
    store = stack.store()
    found["server"] = float(store.client.info("memory")["used_memory"])
    store.client.close()
    return found


def _pss(pid: int) -> int:
    """Return the proportional set size in bytes, 0 for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return 1024 * int(match[1]) if match else 0
