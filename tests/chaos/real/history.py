"""Layer 4: what was recorded, checked against small sequential models. Pure.

Three questions, each about one key at a time, so that the histories are short:

    check_leases   of a slot: were two leases certainly held at one moment? From commit and release
    check_runs     of a slot, a task, an attempt: did two runs work at one moment, did one begin twice? From the ticks
    check_task     of a task: is there an order of submit, cancel, start, finish and requeue, each between its call and
                   its reply, in which every reply is right? A call without a reply may have happened, later or never

Times are monotonic seconds of one machine.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

FINAL: Final = ("succeeded", "failed", "cancelled", "dead")


@dataclass(frozen=True, slots=True)
class Event:
    """A call about one task or lease: from when to when, what it asked, and the word it got ('' is
    unknown).
    """

    who: str
    call_s: float
    back_s: float
    verb: str
    item: Mapping[str, str] = field(hash=False)
    word: str

    @property
    def task(self) -> str:
        """Return the task of the event."""
        return self.item.get("task") or self.item["id"]

    @property
    def place(self) -> tuple[str, ...]:
        """Return node, slot and incarnation."""
        return self.item.get("node", ""), self.item.get("slot", ""), self.item.get("inc", "")

    def __str__(self) -> str:
        until = f"{self.back_s:.3f}" if self.back_s < inf else "?"
        about = " ".join(f"{name}={value}" for name, value in self.item.items() if len(value) < 60)
        return f"{self.call_s:.3f}-{until} {self.who} {self.verb} {about}: {self.word or 'unknown'}"


@dataclass(slots=True)
class Run:
    """A run of a task's function as its ticks tell."""

    task: str
    attempt: str
    node: str
    slot: str
    pid: int
    began_s: float
    last_s: float
    ended: bool = False

    def __str__(self) -> str:
        end = "ended" if self.ended else "last tick"
        return (
            f"{self.task} attempt {self.attempt} in {self.node}/{self.slot}, process {self.pid}: "
            f"{self.began_s:.3f}, {end} {self.last_s:.3f}"
        )


# -- reading ---------------------------------------------------------------------------------------


def read_calls(who: str, lines: Iterable[str]) -> Iterator[Event]:
    """Return the events of one process's file, as recorder.py wrote it."""
    calls: dict[int, Any] = {}
    for kind, number, at_s, *rest in map(json.loads, lines):
        if kind == "call":
            calls[number] = at_s, *rest
            continue
        call_s, verb, items = calls.pop(number)
        yield from (
            Event(who, call_s, at_s, verb, item, word)
            for item, word in zip(items, rest[0], strict=True)
        )
    for call_s, verb, items in calls.values():
        yield from (Event(who, call_s, inf, verb, item, "") for item in items)


def read_ticks(lines: Iterable[str]) -> list[Run]:
    """Return the runs of the ticks of app.py; each `start` is one."""
    runs: list[Run] = []
    going: dict[tuple[str, ...], Run] = {}
    for line in lines:
        event, task, attempt, node, slot, pid, at_s = line.split()
        key = task, attempt, node, slot, pid
        if event == "start":
            runs.append(Run(task, attempt, node, slot, int(pid), float(at_s), float(at_s)))
            going[key] = runs[-1]
        else:
            going[key].last_s = float(at_s)
            going[key].ended = event == "end"
    return runs


# -- at one moment ---------------------------------------------------------------------------------


class Span(NamedTuple):
    """Something that had a key for itself for some time."""

    key: str
    began_s: float
    ended_s: float
    what: object


def overlaps(spans: Iterable[Span]) -> list[tuple[Span, Span]]:
    """Return the pairs of spans that have the same key at the same moment."""
    found = []
    latest = dict[str, Span]()
    for span in sorted(spans, key=lambda span: span.began_s):
        before = latest.get(span.key)
        if before is not None and span.began_s < before.ended_s:
            found.append((before, span))
        if before is None or span.ended_s > before.ended_s:
            latest[span.key] = span
    return found


def check_leases(events: Iterable[Event]) -> list[str]:
    """Return slots that two leases had at one moment.

    A lease is certain from the reply of its commit to the call of its release, if that call is
    later. A lease that was written twice (its commit came again, late, after the release) is left
    out.
    """
    slots: dict[tuple[str, ...], str] = {}
    held: dict[tuple[str, ...], list[float]] = defaultdict(list)
    freed: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for event in events:
        key = (
            event.task,
            event.item.get("attempt", ""),
            event.item.get("node", ""),
            event.item.get("inc", ""),
        )
        if event.verb == "commit" and event.word == "held":
            held[key].append(event.back_s)
            slots[key] = event.item["slots"]
        elif event.verb == "release" and event.word == "freed":
            freed[key].append(event.call_s)
    spans = [
        Span(f"{key[2]}/{slot}", begun[0], min(freed[key]), f"task {key[0]} attempt {key[1]}")
        for key, begun in held.items()
        if len(begun) == 1 and key in freed and begun[0] < min(freed[key])
        for slot in slots[key].split(",")
    ]
    return [
        f"promise 2: two leases of slot {a.key}: {a.what} and {b.what}" for a, b in overlaps(spans)
    ]


def slots_of_runs(events: Iterable[Event]) -> dict[tuple[str, str, str, str], list[str]]:
    """Return all slots of each run (task, attempt, node, first slot of its place), as given or as claimed.

    A worker gives a run other slots than the slots of its place if another run still goes on there.
    """
    claimed = dict[tuple[str, str, str, str], list[str]]()
    given = dict[tuple[str, str, str, str], list[str]]()
    for event in events:
        if (event.verb, event.word) == ("give", "given"):
            key = event.task, event.item["attempt"], event.item["node"], event.item["slot"]
            given[key] = event.item["slots"].split(",")
        elif event.verb == "commit" and event.word in ("held", "yours", ""):
            slots = event.item["slots"].split(",")
            claimed[event.task, event.item["attempt"], event.item["node"], slots[0]] = slots
    return claimed | given


def check_runs(
    runs: Sequence[Run], slots: Mapping[tuple[str, str, str, str], Sequence[str]]
) -> list[str]:
    """Return slots with two runs at one moment, tasks that ran twice at one moment, attempts that
    were begun twice.

    slots: `slots_of_runs`; a run that is not among them has the slot that it names.
    """
    by_slot = [
        Span(f"{run.node}/{slot}", run.began_s, run.last_s, run)
        for run in runs
        for slot in slots.get((run.task, run.attempt, run.node, run.slot), [run.slot])
    ]
    by_task = [Span(run.task, run.began_s, run.last_s, run) for run in runs]
    found = [
        f"promise 2: two runs in slot {a.key}: {a.what}; {b.what}" for a, b in overlaps(by_slot)
    ]
    found += [
        f"two runs of task {a.key} at one moment: {a.what}; {b.what}" for a, b in overlaps(by_task)
    ]
    begun: dict[tuple[str, str], Run] = {}
    for run in runs:
        if (other := begun.setdefault((run.task, run.attempt), run)) is not run:
            found.append(f"promise 4: attempt begun twice: {other}; {run}")
    return found


# -- one task --------------------------------------------------------------------------------------


class State(NamedTuple):
    """A task as the model has it: `open` is pending, taken or placed; the attempt and place that
    counted last.
    """

    phase: str = "none"
    attempt: str = ""
    place: tuple[str, ...] = ()


def number(attempt: str) -> int:
    """Return the count in an attempt, 'N@LIFE'; 0 for none."""
    return int(attempt.partition("@")[0] or 0)


def after(state: State, event: Event, word: str) -> State | None:
    """Return the state after an event that got this word; None if the event cannot have got the word."""
    attempt = event.item.get("attempt", "")
    mine = state.phase == "running" and (state.attempt, state.place) == (attempt, event.place)
    newer = state.phase == "open" and number(attempt) > number(state.attempt)
    match event.verb, word:
        case "submit", "submitted":
            return State("open") if state.phase == "none" else None
        case "submit", "exists":
            return state if state.phase != "none" else None
        case "start", "ok":
            return State("running", attempt, event.place) if newer else None
        case ("start", "yours") | ("cancel", "asked"):
            return state if mine or (event.verb == "cancel" and state.phase == "running") else None
        case ("start", "refused") | ("finish", "stale") | ("requeue", "none"):
            return state if not mine else None
        case "finish", "ok":
            outcome = "cancelled" if event.item["outcome"] == "again" else event.item["outcome"]
            return State(outcome, attempt, event.place) if mine else None
        case "finish", "again":
            return State("open", attempt) if mine else None
        case "finish", "yours":
            return state if state == (event.item["outcome"], attempt, event.place) else None
        case "requeue", "pending":
            return State("open", attempt) if mine or newer else None
        case "requeue", "dead":
            return State("dead", attempt, event.place) if mine else None
        case "requeue", "cancelled":
            return State("cancelled", attempt, event.place) if mine or newer else None
        case "cancel", "cancelled":
            return State("cancelled", state.attempt) if state.phase == "open" else None
        case "cancel", "none":
            return state if state.phase in ("none", *FINAL) else None
        case "read", _:
            return state if state.phase == word else None
    return state  # a submit that was refused changes nothing


_EFFECTS: Final = {
    "submit": ("submitted",),
    "start": ("ok",),
    "finish": ("ok", "again"),
    "requeue": ("pending", "dead", "cancelled"),
    "cancel": ("cancelled",),
}


def check_task(events: Iterable[Event], final: str, end_s: float) -> str | None:
    """Return what is wrong with the history of one task that was read as `final` at the end; None
    if it can be.
    """
    about = [event for event in events if event.verb in _EFFECTS]
    known = [event for event in about if event.word]
    # a request that was made again and again while the server was away can take effect once: the
    # first stands for all
    unknown: dict[tuple[str, str], Event] = {}
    for event in sorted(
        (event for event in about if not event.word), key=lambda event: event.call_s
    ):
        unknown.setdefault((event.verb, str(sorted(event.item.items()))), event)
    read = Event("end", end_s, end_s, "read", {"id": ""}, final)
    history = sorted([*known, *unknown.values(), read], key=lambda event: event.call_s)
    if _in_order(history, frozenset(range(len(history))), State(), set()):
        return None
    return "no order of these makes every reply right:\n" + "\n".join(
        f"    {event}" for event in history
    )


def _in_order(
    history: Sequence[Event], left: frozenset[int], state: State, dead_ends: set[Any]
) -> bool:
    """Return whether the rest can follow, in some order that keeps each reply before later calls
    (Wing and Gong).
    """
    horizon_s = min((history[i].back_s for i in left if history[i].word), default=inf)
    if horizon_s == inf:
        return True
    if (left, state) in dead_ends:
        return False
    for i in sorted(left):
        event = history[i]
        if event.call_s > horizon_s:
            break
        for word in (event.word,) if event.word else _EFFECTS[event.verb]:
            then = after(state, event, word)
            if then is not None and _in_order(history, left - {i}, then, dead_ends):
                return True
    dead_ends.add((left, state))
    return False
