"""The place span of OpenTelemetry, in the trace of the task's submit.

The span lasts from when a task could be taken until its run begins.

The trace context travels in the headers that OpenTelemetry's instrumentation of Celery writes. The
worker has them, so no scheduler reads a message. For sampled traces only, the worker reads the
record of the task for its times, and a second later why a scheduler chose the node, which
schedulers note once in a gap.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...inspect.explanation import choices_of
from ...model.explanation import Choice
from ...model.ids import decode_id
from ...model.limits import MAX_BATCH
from ...model.place import Place
from ...model.status import TaskStatus
from ...store.store import Store

log = logging.getLogger("parsync.agent")

MAX_WAITING_SPANS: Final = 1000
"""Maximum number of runs that wait for their spans; further runs get no span."""
CHOICE_S: Final = 1.0
"""Time from the begin of a run until its scheduler has noted why it chose the place."""
SPANS_JOIN_S: Final = 5.0
"""Seconds for which a worker that stops waits for the last spans."""
NS: Final = 1_000_000
"""Nanoseconds of a millisecond: spans count in these."""


@dataclass(slots=True)
class BegunRun:
    """A run that has begun, and the trace to which it belongs.

    due_s: when the scheduler's choice is read (monotonic seconds).
    task: the task's record.
    """

    place: Place
    name: str
    retries: int
    context: Context
    due_s: float
    task: TaskStatus | None = None


class PlaceSpans(threading.Thread):
    """Makes the place spans of a worker, in a thread that begins with the first one.

    All times are the server's.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(name="parsync-spans", daemon=True)
        self._store = store
        self._said = False
        self._news: SimpleQueue[BegunRun | None] = SimpleQueue()

    def begin(self, place: Place, name: str, headers: Mapping[str, object]) -> None:
        """Note that a run begins.

        Anybody may write headers: if they cannot be read, there is no span.
        """
        try:
            context = sampled(headers)
        except Exception as error:
            self._complain(
                f"the trace in the headers of task {place.task} cannot be read: {error!r}"
            )
            return
        if context is None:
            return
        if self._news.qsize() >= MAX_WAITING_SPANS:
            self._complain(f"{MAX_WAITING_SPANS} runs wait for theirs")
            return
        retries = headers.get("retries")
        begun = BegunRun(
            place,
            name,
            retries if isinstance(retries, int) else 0,
            context,
            time.monotonic() + CHOICE_S,
        )
        self._news.put(begun)
        if self.ident is None:
            self.start()

    def close(self) -> None:
        """Make the spans that wait, and end the thread."""
        if self.ident is not None:
            self._news.put(None)
            self.join(SPANS_JOIN_S)

    def run(self) -> None:
        """Make spans until closed."""
        store = self._store.with_own_connections()
        waiting = list[BegunRun]()
        last = False
        while not last:
            begun_runs = self._next(
                max(0.0, waiting[0].due_s - time.monotonic()) if waiting else None
            )
            last = None in begun_runs
            try:
                waiting += read_tasks(store, [begun for begun in begun_runs if begun])
                now_s = time.monotonic()
                due = [begun for begun in waiting if last or begun.due_s <= now_s]
                waiting = waiting[len(due) :]
                for begun, choice in zip(
                    due, choices_of(store, [run.place.task for run in due]), strict=True
                ):
                    make_span(begun, choice)
            except (ParsyncError, RedisError, OSError) as error:
                self._complain(str(error))
            except Exception:
                log.exception("place spans: unexpected")  # an error of an exporter, for example

    def _next(self, pause_s: float | None) -> list[BegunRun | None]:
        """Return the runs that have begun; wait up to pause_s if there are none."""
        begun_runs: list[BegunRun | None] = []
        try:
            begun_runs.append(self._news.get(timeout=pause_s))
            while len(begun_runs) < MAX_BATCH:
                begun_runs.append(self._news.get_nowait())
        except Empty:
            pass
        return begun_runs

    def _complain(self, why: str) -> None:
        if not self._said:
            log.warning("some runs have no place span: %s", why)
        self._said = True


def sampled(headers: Mapping[str, object]) -> Context | None:
    """Return the trace context in a message's headers, None if no trace is recorded."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None  # the app has set no provider up in this process
    context = propagate.extract(headers)
    span_context = trace.get_current_span(context).get_span_context()
    return context if span_context.is_valid and span_context.trace_flags.sampled else None


def read_tasks(store: Store, begun_runs: Sequence[BegunRun]) -> Sequence[BegunRun]:
    """Read the records of runs that have just begun.

    A task that is another attempt's by now tells nothing.
    """
    for begun, task in zip(
        begun_runs,
        store.statuses([run.place.task for run in begun_runs]) if begun_runs else [],
        strict=True,
    ):
        if (task.attempt, task.node) == (begun.place.attempt_number, begun.place.node):
            begun.task = task
    return begun_runs


def make_span(begun: BegunRun, choice: Choice | None) -> None:
    """Make the span of a run."""
    place = begun.place
    task = begun.task
    times = task.times if task else {}
    placed_ms = place.since_ms
    ready_ms = times.get("ready") or placed_ms
    started_ms = times.get("started") or placed_ms
    facts: dict[str, str | int | float | list[int]] = {
        "celery.task_name": begun.name,
        "messaging.message.id": decode_id(place.task),
        "parsync.node": place.node,
        "parsync.slots": list(place.slots),
        "parsync.attempt": place.attempt,
        "parsync.retries": begun.retries,
        "parsync.waiting_ms": placed_ms - ready_ms,
        "parsync.starting_ms": started_ms - placed_ms,
    }
    if task:
        facts |= {"parsync.lost_starts": task.starts - 1, "parsync.scheduler": task.scheduler or ""}
    if task and choice and (choice.node, choice.scheduler) == (place.node, task.scheduler):
        facts |= {
            "parsync.view_age_ms": round(choice.age_s * 1000, 1),
            "parsync.strategy": choice.strategy,
        }
    tracer = trace.get_tracer("parsync_redis")
    span = tracer.start_span(
        f"place/{begun.name}", begun.context, attributes=facts, start_time=ready_ms * NS
    )
    span.add_event("placed", timestamp=placed_ms * NS)
    span.end(max(started_ms, ready_ms) * NS)
