"""Kill primaries, stop them, or kill them while their replicas lag; check what that costs tasks and other primaries."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from parsync_redis.store.repair.losses import read_losses
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.store import Store

from .clients import Book, Client, Make, Submitter, Watcher, stop_all
from .history import check_leases, check_runs, slots_of_runs
from .limited import set_limits
from .outage import Outage, pauses, touched, untold
from .play import (
    DRAIN_S,
    Outcome,
    Say,
    check_clean,
    check_histories,
    count_accepted_again,
    events_of,
    note_deaths,
    percentiles,
    runs_of,
    runs_per_task,
)
from .recorder import Recorder
from .several import SeveralStack
from .steady import Marker, Steady

CLIENTS: Final = 4
WINDOW: Final = 60
LAG_S: Final = 0.6
"""Seconds for which a replica gets no writes before its primary is killed."""
STOP_S: Final = 6.0
QUIET_S: Final = 10.0
"""Seconds without a fault before the first outage, and after each outage."""


@dataclass(slots=True)
class Several:
    """A stack on several servers at work."""

    stack: SeveralStack
    store: Store
    book: Book
    clients: Sequence[Submitter]
    watcher: Watcher
    marker: Marker
    outages: list[Outage] = field(default_factory=list)
    step: Callable[[], None] = lambda: None

    def pass_time(self, seconds: float) -> None:
        """Let time pass; restart members that end by themselves, and do what is due (`step`)."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.stack.supervise()
            self.step()
            time.sleep(0.05)


@contextmanager
def several_at_work(
    stack: SeveralStack, rate: float, patience_s: float, make: Make | None = None
) -> Iterator[Several]:
    """Start a stack on several servers and its clients in an empty folder, and stop them at the
    end.

    make: makes the tasks of clients that have at most WINDOW tasks open; without it clients submit
    short tasks at a steady rate.
    """
    stack.folder.mkdir(parents=True, exist_ok=True)
    for old in stack.folder.iterdir():
        old.unlink()
    end_recording = Recorder(stack.folder, "client").watch()
    clients = list[Submitter]()
    try:
        stack.start()
        store = stack.store()
        set_limits(store)
        book = Book()
        watcher = Watcher(stack.store(), book)
        marker = Marker(stack.store())
        for number in range(CLIENTS):
            name = f"client-{number}"
            whose = stack.several.url, stack.cluster, name, book, rate / CLIENTS
            client: Submitter
            if make is None:
                client = Steady(*whose, patience_s, stack.seed)
            else:
                client = Client(*whose, WINDOW, stack.seed, make)
            client.marker = marker.ids
            clients.append(client)
        for thread in (*clients, watcher, marker):
            thread.start()
        yield Several(stack, store, book, clients, watcher, marker)
    finally:
        for client in clients:
            client.stop()
        stack.stop()
        end_recording()


# -- outages ---------------------------------------------------------------------------------------


def cause(field: Several, kind: str, number: int) -> Outage:
    """Have one primary go away, wait until its replica has taken over, and bring it back as a
    replica.
    """
    several = field.stack.several
    several.wait_until_well()
    primaries = sorted(set(field.stack.owners(several.servers[0]).primaries))
    address = primaries[number % len(primaries)]
    victim = next(server for server in several.servers if address.endswith(f":{server.port}"))
    other = next(server for server in several.servers if server is not victim)
    shards, partitions = field.stack.of_server(victim, field.store)
    cut_s = time.monotonic()
    if kind == "lag":
        cut_replication(field, victim)
        time.sleep(LAG_S)
    os.kill(victim.process.pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
    outage = Outage(
        kind, address, shards, partitions, cut_s, time.monotonic(), int(time.time() * 1000)
    )
    field.outages.append(outage)
    while address in field.stack.owners(other).primaries:
        field.pass_time(0.02)
        assert time.monotonic() < outage.at_s + 30, f"nobody took over from {address}"
    outage.taken_s = outage.until_s = time.monotonic()
    if kind == "stop":
        field.pass_time(max(0.0, outage.at_s + STOP_S - time.monotonic()))
        os.kill(victim.process.pid, signal.SIGCONT)
    else:
        field.pass_time(1.0)
        victim.restart(kill=True)
    several.wait_until_well()
    outage.until_s = time.monotonic() if kind == "stop" else outage.until_s
    return outage


def cut_replication(field: Several, victim: EmbeddedServer) -> None:
    """End the replication from a primary: its replica is not let in again, as with a line that is
    cut.
    """
    with field.stack.several.client(victim) as client:
        client.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")


def failover(
    kills: int,
    seed: int,
    folder: Path,
    say: Say,
    how: str = "kill",
    rate: float = 30.0,
    program: str | None = None,
) -> Outcome:
    """Run the stack, have primaries go away by turns, let it calm down, and check everything.

    how: kill, stop, lag, or mixed.
    """
    outcome = Outcome()
    begun_s = time.monotonic()
    kinds = ["kill", "stop", "kill", "lag"] if how == "mixed" else [how]
    with several_at_work(
        SeveralStack(folder, seed, program=program), rate, patience_s=0.0
    ) as field:
        field.pass_time(QUIET_S / 2)
        quiet = time.monotonic(), time.monotonic() + QUIET_S
        field.pass_time(QUIET_S)
        for number in range(kills):
            outage = cause(field, kinds[number % len(kinds)], number + seed)
            away_s = outage.taken_s - outage.at_s
            what = f"{outage.kind} {outage.address}, shards {sorted(outage.shards)}, partitions "
            say(
                f"{outage.at_s - begun_s:7.1f} s  {what}{sorted(outage.partitions)}: taken over "
                f"after {away_s:.1f} s"
            )
            field.pass_time(QUIET_S / 2)
        drain(field, outcome, say)
        _figures(field, quiet, outcome)
    note_deaths(field.stack, outcome, begun_s, say)
    return outcome


# -- what came of it -------------------------------------------------------------------------------


def drain(field: Several, outcome: Outcome, say: Say) -> None:
    """End the load; every task must end or be lost, every slot must come free, and the audit must
    be clean.
    """
    stop_all(field.clients)
    field.marker.stop()
    book = field.book
    store = field.store
    say(f"calm: {len(book.open)} tasks are open")
    deadline_s = time.monotonic() + DRAIN_S
    gone = set[str]()
    while book.open - gone and time.monotonic() < deadline_s:
        field.pass_time(0.2)
        names = book.still_open()
        gone = {id for id, state in zip(names, store.states(names), strict=True) if not state}
    check_clean(store, field.stack.partitions, outcome)
    field.watcher.stop()
    judge(field, outcome)


def judge(field: Several, outcome: Outcome) -> None:
    """Check the records; tasks that an outage may have lost are exempt, but their losses must be
    told.
    """
    book = field.book
    store = field.store
    outages = field.outages
    everything = sorted(book.acknowledged | book.unknown)
    ends = dict(zip(everything, store.states(everything), strict=True))
    end_s = time.monotonic()
    for id, state in ends.items():
        book.see(id, state or "gone")
    events = list(events_of(field.stack.folder))
    runs = runs_of(field.stack.folder)
    shard_of = store.keys.shard_of
    exempt = touched(events, outages, shard_of)
    lost = {id for id in book.acknowledged if not ends[id]}
    stuck = sorted(id for id in book.acknowledged - lost if id not in book.final)
    copied = sorted(lost & field.marker.copied)
    silent = untold(lost, outages, read_losses(store), shard_of)
    outcome.broken += [
        f"promise 1: task {id} was acknowledged and copied, and is lost" for id in copied
    ]
    outcome.broken += [f"promise 1: task {id} is {ends[id]}, and does not end" for id in stuck]
    outcome.broken += [f"task {id} is lost, and `losses` does not say so" for id in silent]
    strict = [event for event in events if event.task not in exempt]
    whole = [run for run in runs if run.task not in exempt]
    twice = [*check_leases(strict), *check_runs(whole, slots_of_runs(strict))]
    in_slots = [what for what in check_runs(runs, slots_of_runs(events)) if "in slot" in what]
    outcome.broken += sorted({*twice, *in_slots})
    check_histories(events, {id: ends[id] for id in ends.keys() - exempt - lost}, end_s, outcome)
    changed = [id for id in book.changed if id not in exempt | lost]
    outcome.broken += [f"promise 1: task {id} was {book.changed[id]}" for id in changed]
    outcome.figures |= {
        "tasks": len(ends),
        "acknowledged": len(book.acknowledged),
        "copied": len(field.marker.copied),
        "ended": dict(Counter(ends.values())),
        "lost_copied": len(copied),
        "lost_uncopied": len(lost) - len(copied),
        "lost_untold": len(silent),
        "exempt": len(exempt),
        "stuck": len(stuck),
        "double_booked": len({*twice, *in_slots}),
        "double_accepted": count_accepted_again(strict) + len(changed),
        "runs_per_task": runs_per_task(runs),
        "client_errors": dict(book.errors),
        "submit_s": percentiles(
            [seconds for client in field.clients for seconds in client.latencies_s]
        ),
    }


def _figures(field: Several, quiet: tuple[float, float], outcome: Outcome) -> None:
    """Measure the pauses of the others' partitions, in outages and while all was well, and of the
    primary's own.
    """
    events = list(events_of(field.stack.folder))
    others = dict[str, list[float]]()
    own = list[float]()
    everybody = frozenset(range(field.stack.partitions))
    length_s = max((outage.taken_s - outage.at_s for outage in field.outages), default=2.0)
    for outage in field.outages:
        span = outage.at_s, max(outage.taken_s, outage.at_s + length_s)
        others.setdefault(outage.kind, []).extend(
            pauses(events, [everybody - outage.partitions], [span])
        )
        own += pauses(events, [outage.partitions], [span])
    begin_s = quiet[0]
    spans = list[tuple[float, float]]()
    while begin_s + length_s <= quiet[1]:
        spans.append((begin_s, begin_s + length_s))
        begin_s += length_s
    groups = {outage.partitions: everybody - outage.partitions for outage in field.outages}
    outcome.figures |= {
        "outages": dict(Counter(outage.kind for outage in field.outages)),
        "taken_over_s": percentiles([outage.taken_s - outage.at_s for outage in field.outages]),
        "others_pause_before_s": percentiles(pauses(events, groups.values(), spans)),
        "others_pause_s": {kind: percentiles(found) for kind, found in others.items()},
        "own_pause_s": percentiles(own),
    }
