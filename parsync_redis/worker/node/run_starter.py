"""The starter starts tasks whose doorbells rang.

Without look-ahead it starts them at once, with look-ahead when a slot of the node is idle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.place import Place
from ...model.record import Record
from ...store.scripts.calls import Call
from ...store.store import Store
from .node_state import AgentState
from .reporter import Reporter, outcomes
from .runs import Run

log = logging.getLogger("parsync.agent")

Started = list[tuple[Run, bytes]]
"""Runs to hand to the worker, each with its message."""


class Starter:
    """Asks the server to start tasks. With look-ahead several threads do, one after another."""

    def __init__(self, store: Store, node: AgentState, reporter: Reporter) -> None:
        self._store = store
        self._node = node
        self._reporter = reporter
        self._turn = threading.Lock()

    def answer(self, bells: Iterable[Place]) -> Started:
        """Ask to start the tasks of doorbells; return the started runs with their messages."""
        if self._node.ahead.room:
            return self.start_next(self._store, bells)
        bells = list(bells)
        node = self._node
        entered = [self._entered(bell) for bell in bells]
        runs = [run for run in entered if run]
        if runs and node.hindrance(frozenset[int]().union(*(run.slots for run in runs))):
            hindered = [run for run in runs if node.hindrance(run.slots)]
            node.runs.drop(hindered)
            runs = [run for run in runs if run not in hindered]
        if not runs:
            return []
        answers = self._ask(self._store, [], runs, len(runs))
        started = [(run, message) for run, word, message in answers if word != "refused"]
        if len(started) < len(answers):  # a refused run kept the slots from later doorbells
            with _keeping(started):
                started += self.answer(
                    [bell for bell, run in zip(bells, entered, strict=True) if not run]
                )
        return started

    def _entered(self, bell: Place, waits: bool = False) -> Run | None:
        """Return the new run of a doorbell, entered into the table of runs.

        None if the run is there already, or the doorbell names another incarnation.
        """
        node = self._node
        run = Run(bell, waits=waits)
        is_ours = (bell.partition, bell.node, bell.inc) == (node.partition, node.name, node.inc)
        return run if is_ours and not node.leaving and node.runs.enter(run) else None

    def _ask(
        self, store: Store, ended: list[Run], runs: list[Run], most: int, slots: Iterable[int] = ()
    ) -> list[tuple[Run, str, bytes]]:
        """Report ended runs and ask to start others, in one round trip; return the answers.

        An attempt that has ended here before is not started again: its outcome is reported again,
        and its answer is "refused".

        ended: the runs to report.
        runs: the runs to start, of which `most` may start.
        slots: the slots that the started runs get, before the slots of ended runs are freed.
        """
        first = set(map(id, runs[:most]))  # on several shards, the tasks that are named first
        shares = [share for _, share in store.keys.by_shard(runs, _task_of)]
        starts = []
        for share in shares:
            may_start = sum(id(run) in first for run in share)
            starts.append(store.commands.start([run.place for run in share], may_start))
        reports = outcomes(store.commands, ended)
        # before a first attempt there is no other attempt
        later = [run for run in runs if not run.place.attempt.startswith("1@")]
        records = (
            [store.commands.read_tasks([run.place.task for run in later], extras=False)]
            if later
            else []
        )
        # Any: each call has a reply of its own
        calls: list[Call[Any]] = [*reports, *starts, *records]
        try:
            replies = store.run_each(calls)
        except BaseException:
            self._node.runs.drop(runs)  # their doorbells ring again
            raise
        report_replies = replies[: len(reports)]
        answers = replies[len(reports) : len(reports) + len(starts)]
        _note_redelivered(later, replies[len(reports) + len(starts) :])
        outcomes_of_runs: list[tuple[Run, str, bytes]] = []
        for share, answer in zip(shares, answers, strict=True):
            if isinstance(answer, Exception):
                tasks = ", ".join(run.place.task for run in share)
                log.warning(
                    "task %s could not ask to start: %s; its doorbell will ring again",
                    tasks,
                    answer,
                )
                self._node.runs.drop(share)
            else:
                outcomes_of_runs += [
                    (run, word, message) for run, (word, message) in zip(share, answer, strict=True)
                ]
        self._give(
            [run for run, word, _ in outcomes_of_runs if word in ("ok", "yours")], list(slots)
        )
        if not any(isinstance(words, Exception) for words in report_replies):
            self._reporter.reported(ended, report_replies)
        for number, (run, word, message) in enumerate(outcomes_of_runs):
            if word == "refused":
                log.info(
                    "task %s attempt %s may not start (%s)",
                    run.place.task,
                    run.place.attempt,
                    readable(message),
                )
                self._reporter.ended(run, "refused")
            elif run.before is not None and word != "wait":
                self._reporter.report_again(run, run.before)
                outcomes_of_runs[number] = run, "refused", b""
        return outcomes_of_runs

    def _give(self, runs: list[Run], slots: list[int]) -> None:
        """Give slots to runs that have started.

        A run of several slots or with amounts gets all of the slots.
        """
        if slots:
            slots_of_runs: list[tuple[Run, tuple[int, ...]]] = []
            for run in runs:
                run_slots = (_taken(slots, run.place.slot),) if run.is_simple else tuple(slots)
                slots_of_runs.append((run, run_slots))
            self._node.runs.give(slots_of_runs)

    # -- look-ahead --------------------------------------------------------------------------------

    def start_next(
        self, store: Store, bells: Iterable[Place] = (), ended: Iterable[Run] = ()
    ) -> Started:
        """Enter doorbells, report ended runs, and start waiting runs in idle slots.

        All happens in one round trip.

        The server chooses the tasks that come first in the queue's order. The caller reports the
        ended runs that this did not report, because nothing could start or the server is away.
        """
        node = self._node
        over = list(ended)
        with self._turn:
            now_s = time.monotonic()
            for bell in bells:
                before = len(node.runs.waiting())
                if run := self._entered(bell, waits=True):
                    run.due_s = now_s + node.ahead.due_s(before)
            started: Started = []
            with _keeping(started):
                while (
                    answers := self._start_chosen(store, over, started)
                ) and "refused" in answers:
                    over = []  # a refused run of another shard kept its slot from other runs
            return started

    def _start_chosen(self, store: Store, over: list[Run], started: Started) -> list[str]:
        """Report ended runs and start chosen runs; return the server's word for each."""
        try:
            runs, slots = self._chosen()
            if not runs:
                return []
            answers = self._ask(store, over, runs, len(slots) if runs[0].is_simple else 1, slots)
        finally:
            self._node.runs.give(())
        started += [(run, message) for run, word, message in answers if word in ("ok", "yours")]
        return [word for _, word, _ in answers]

    def _chosen(self) -> tuple[list[Run], list[int]]:
        """Return the runs that may start, and the idle slots for them.

        A run of several slots or with amounts comes alone.
        """
        node = self._node
        for run in node.runs.waiting():
            if run.unwanted or run.place.inc != node.inc or node.leaving:
                run.why = "it had not begun"
                self._reporter.ended(run, "recalled")
        waiting = node.runs.waiting()[:MAX_BATCH]
        slots = node.runs.idle(node.ahead.slots, reserve=True)
        if not waiting or not slots:
            return [], []
        if node.hindrance(slots):
            slots = [slot for slot in slots if not node.hindrance((slot,))]
        wide = next((run for run in waiting if not run.is_simple), None)
        if wide is not None:
            held_slots = set(wide.place.slots)
            slots = sorted(slots, key=lambda slot: slot not in held_slots)[: len(held_slots)]
            return ([wide], sorted(slots)) if len(slots) == len(held_slots) else ([], [])
        return (waiting, slots) if slots else ([], [])

    def hand_back(self, why: str) -> None:
        """Hand back waiting runs, whose tasks are placed elsewhere. Any thread may call this."""
        with self._turn:
            for run in self._node.runs.waiting():
                run.why = why
                self._reporter.ended(run, "recalled")


@contextmanager
def _keeping(started: Started) -> Iterator[None]:
    """Log an error instead of raising it once there are started runs to hand over."""
    try:
        yield
    except Exception:
        if not started:
            raise
        log.exception("no more tasks were started: unexpected")


def _taken(slots: list[int], own_slot: int) -> int:
    """Remove an idle slot from a list and return it: the run's own slot if it is there."""
    slot = own_slot if own_slot in slots else slots[0]
    slots.remove(slot)
    return slot


def _note_redelivered(runs: list[Run], replies: Iterable[list[Record] | Exception]) -> None:
    """Note for which runs an earlier run of the same message had begun.

    Nothing is noted for the tasks of a server that is away. The line of a task does not change from
    its take to its end, so a separate call may read the line.
    """
    for records in replies:
        if not isinstance(records, Exception):
            for run, record in zip(runs, records, strict=True):
                run.redelivered = record.line is not None and "redelivered" in record.line.options


def _task_of(run: Run) -> str:
    return run.place.task
