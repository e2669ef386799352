"""The reporter reports in its thread how runs ended, and frees their slots.

The reporter sends many outcomes at a time, and sends them again until the server has them.

An outcome is sent at once. A slot is freed when no process that was started in it lives any more on
this machine.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Final

from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...model.limits import MAX_BATCH
from ...model.place import HowLost
from ...store.scripts.calls import Call, Commands
from ...store.server.server_errors import Backoff
from ...store.store import Store
from ..duty import Duty
from ..isolation.machine import Isolation
from .failures import Failures
from .runs import Run, Runs

log = logging.getLogger("parsync.agent")

OCCUPIED_CHECK_S: Final = 0.2
"""Interval at which an occupied slot is checked, in seconds."""
LAST_TRIES: Final = 7
"""Number of tries with which a stopping worker asks a silent server: some three seconds in all."""
KILLED_PROCESS_S: Final = 1.0
"""Seconds that a killed process may take to end; the log names a process that lives longer."""


class Reporter(Duty):
    """Reports outcomes to Redis, frees slots, and takes the runs out of the table.

    start_next: a function that reports runs together with the start of waiting runs; this thread
        reports the runs that the function leaves.
    nudge: starts the waiting runs, now that slots are free.
    tell: reports failures in a row, if that is due.
    """

    def __init__(
        self,
        store: Store,
        runs: Runs,
        isolation: Isolation | None = None,
        ran: Callable[[str, float], object] = lambda name, seconds: None,
        failures: Failures | None = None,
    ) -> None:
        super().__init__("parsync-report")
        self._store = store
        self._runs = runs
        self._isolation = isolation or Isolation()
        self._ran = ran
        self._failures = failures
        self._collector = 0
        self._collected = list[Run]()
        self.start_next: Callable[[Store, list[Run]], None] | None = None
        self.nudge: Callable[[], object] = lambda: None
        self.tell: Callable[[Store], object] = lambda store: None
        self._occupied: list[Run] = []
        self._ended: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._backoff = Backoff(log, "outcomes wait for the server")
        self._closing = False

    def ended(self, run: Run, outcome: str, only_unbegun: bool = False) -> None:
        """Report that a run has ended; only the first outcome counts. Any thread may call this.

        outcome: succeeded, failed, cancelled, again, lost (its process), refused or recalled. A run
        that was lost because the agent recalled it is *recalled*: its task goes back, and the start
        does not count.
        only_unbegun: report nothing if the pool has begun the run.
        """
        if outcome == "lost" and run.ending == "recalled":
            outcome = "recalled"
        if not self._runs.end(run, outcome, only_unbegun):
            return
        seconds = time.monotonic() - (run.began_s or run.handed_s)
        if run.began_s and outcome not in ("lost", "refused", "recalled"):
            self._ran(run.name, seconds)
        if run.handed_s and run.failed is not None and self._failures is not None:
            self._failures.ended(run, seconds)
        if threading.get_ident() == self._collector:
            self._collected.append(run)
        else:
            self._ended.put(run)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep the runs that end in this thread until `collected` is called.

        The runs that are left at the end of the block are sent.
        """
        self._collector = threading.get_ident()
        try:
            yield
        finally:
            self._collector = 0
            self.put(self.collected())

    def collected(self) -> list[Run]:
        """Return the runs that have ended in the collecting thread, which reports them."""
        collected = self._collected
        self._collected = []
        return collected

    def put(self, runs: Iterable[Run]) -> None:
        """Have the thread report runs that have ended, and free their slots.

        The thread sends no outcome that is already reported.
        """
        for run in runs:
            self._ended.put(run)

    def report_again(self, run: Run, before: Run) -> None:
        """Report again how an attempt has ended here.

        The server has lost the outcome, and the attempt must not run a second time.
        """
        log.warning(
            "task %s attempt %s has ended here (%s), and the server has lost that: it is told "
            "again",
            run.place.task,
            run.place.attempt,
            before.outcome,
        )
        run.flaw = before.flaw
        run.unstored = before.unstored
        run.why = before.why
        run.ending = before.ending
        run.delay_ms = before.delay_ms
        run.unbegun = before.unbegun
        self.ended(run, before.outcome)

    def reported(self, runs: Sequence[Run], replies: Iterable[Sequence[str]]) -> None:
        """Note that outcomes were sent; the thread frees the slots.

        replies: the replies to the calls of `outcomes`. Stale outcomes count as not reported. This
        sends nothing to the server, because the caller has starts to hand over.
        """
        late = stale_runs(runs, [word for words in replies for word in words])
        for run in runs:
            run.is_reported = not any(run is late_run for late_run in late)
        self.put(run for run in runs if run.is_reported)

    def _tell_late(self, store: Store, late: list[Run]) -> None:
        """Report stale outcomes once more, if the server has only lost that their runs had started.

        A failover may lose the write of a start and keep the lease. The attempt is this process's
        all the same.
        """
        if not late:
            return
        answers = store.run(store.commands.start([run.place for run in late]))
        begun = [
            run for run, (word, _) in zip(late, answers, strict=True) if word in ("ok", "yours")
        ]
        words = store.run(outcomes(store.commands, begun)[0]) if begun else []
        if begun:
            log.warning(
                "the server had lost that %d tasks have started here: their outcomes "
                "are told again",
                len(begun),
            )
        if stale := len(late) - len(begun) + words.count("stale"):
            log.warning("%d outcomes came too late: their tasks were given to others", stale)

    def close(self) -> None:
        """Report the last outcomes, for some seconds at most, and end the thread."""
        self._closing = True
        self._ended.put(None)

    def work(self) -> None:
        """Report until closed."""
        store = self._store.with_own_connections()
        last = False
        while not last:
            runs: list[Run | None] = []
            with suppress(queue.Empty):
                must_check = self._occupied or (self._failures is not None and self._failures.holds)
                runs.append(self._ended.get(timeout=OCCUPIED_CHECK_S if must_check else None))
            while len(runs) < MAX_BATCH and not self._ended.empty():
                runs.append(self._ended.get())
            last = None in runs
            if self.start_next is not None and self._runs.waiting() and not self._closing:
                unreported = [run for run in runs if run is not None and not run.is_reported]
                ended = [run for run in runs if run is not None and run.is_reported]
                try:
                    self.start_next(store, unreported)
                except Exception:
                    log.exception("what waits could not be started: unexpected")
                runs = [*ended, *(run for run in unreported if not run.is_reported)]
            try:
                self._persist(store, self._occupied + [run for run in runs if run is not None])
            except Exception:
                # the next turn has the runs
                log.exception("slots could not be looked at: unexpected")
            if self._failures is not None and self._failures.due:
                self.tell(store)

    def _persist(self, store: Store, runs: list[Run]) -> None:
        """Report runs until the server has accepted them.

        With several servers, the runs of a server that is away wait for the next turn.
        """
        self._occupied = runs
        tries = 0
        while self._occupied:
            try:
                trouble = self._report(store, self._occupied)
            except Exception as error:
                trouble = error
            if trouble is None:
                self._backoff.well()
                break
            if not isinstance(trouble, ParsyncError | RedisError | OSError):
                # the runs wait all the same
                log.exception("outcomes could not be reported: unexpected", exc_info=trouble)
            tries += 1
            pause_s = self._backoff.pause_s(trouble)
            if (self._closing and tries >= LAST_TRIES) or (store.several and not self._closing):
                break
            time.sleep(pause_s)
        for run in self._occupied:
            if run.is_reported:
                self._look(run)

    def _report(self, store: Store, runs: list[Run]) -> Exception | None:
        """Send outcomes, then free slots: a free slot has no running task.

        Return the first error. There are two round trips, because a server that has lost its
        scripts may execute the second half of a round trip and not the first. Each shard has a call
        of its own for outcomes, so that a primary that is away keeps back its own outcomes only.
        """
        free = [run for run in runs if self._may_free(run)]
        groups = store.keys.by_shard(
            [run for run in runs if not run.is_reported], lambda run: run.place.task
        )
        trouble = _first_error(answers := report_apart(store, [group for _, group in groups]))
        for (_, group), words in zip(groups, answers, strict=True):
            if isinstance(words, Exception):
                continue
            try:
                self._tell_late(store, stale_runs(group, words))
            except (ParsyncError, RedisError, OSError) as error:
                trouble = trouble or error
                continue
            for run in group:
                run.is_reported = True
        places: dict[int, list[Run]] = {}
        for run in free:
            if run.is_reported and self._runs.may_free(run):
                places.setdefault(run.place.partition, []).append(run)
        calls = [
            store.commands.release(p, [run.place for run in group]) for p, group in places.items()
        ]
        replies = store.run_each(calls)
        freed = [
            run
            for group, reply in zip(places.values(), replies, strict=True)
            if _is_well(reply)
            for run in group
        ]
        self._runs.drop(freed)
        if freed and self._runs.waiting():
            self.nudge()
        self._occupied = [run for run in runs if all(run is not freed_run for freed_run in freed)]
        return trouble or _first_error(replies)

    def _may_free(self, run: Run) -> bool:
        """Return True if nothing lives in the slots of a run that has ended."""
        return not self._runs.used_by_others(run) and self._isolation.free(run.slots)

    def _look(self, run: Run) -> None:
        """Log once that the slots of an ended run stay held though no other run is there."""
        now_s = time.monotonic()
        if self._runs.used_by_others(run):
            run.left_s = 0.0
        elif not run.left_s:
            run.left_s = now_s
        elif 0 < run.left_s < now_s - KILLED_PROCESS_S:
            run.left_s = -1
            log.warning(
                "task %s has ended, but slots %s of node %s stay held: what it started lives on "
                "(processes %s)",
                run.place.task,
                sorted(run.slots),
                run.place.node,
                self._isolation.living(run.slots),
            )


def report_apart(store: Store, groups: Sequence[list[Run]]) -> list[list[str] | Exception]:
    """Report groups of runs, each of one shard, in one round trip.

    Returns for each group the words of the reply, or the error.
    """
    calls_by_group = [outcomes(store.commands, group) for group in groups]
    replies = iter(store.run_each([*chain.from_iterable(calls_by_group)]))
    answers: list[list[str] | Exception] = []
    for calls in calls_by_group:
        group_replies = [*islice(replies, len(calls))]
        answers.append(_first_error(group_replies) or [*chain.from_iterable(group_replies)])
    return answers


def _is_well(reply: object) -> bool:
    return not isinstance(reply, Exception)


def _first_error(replies: Iterable[object]) -> Exception | None:
    return next((reply for reply in replies if isinstance(reply, Exception)), None)


def stale_runs(runs: Sequence[Run], words: Sequence[str]) -> list[Run]:
    """Return the runs whose outcome was stale.

    words: the words of the replies to `outcomes`, in order.
    """
    return [run for run, word in zip(_finished(runs), words, strict=False) if word == "stale"]


def _finished(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.outcome not in ("refused", "lost", "recalled")]


def outcomes(commands: Commands, runs: list[Run]) -> list[Call[list[str]]]:
    """Return the calls that report how these runs ended.

    The first call has the runs that have finished, if there are any.
    """
    finished = [(run.place, _outcome(run), run.flaw) for run in _finished(runs)]
    lost = [(run.place, run.why) for run in runs if run.outcome == "lost"]
    calls = [commands.finish(finished)] if finished else []
    calls += [commands.requeue(lost)] if lost else []
    hows: tuple[HowLost, ...] = ("recalled", "unbegun")
    for how in hows:
        recalled = [
            run for run in runs if run.outcome == "recalled" and run.unbegun == (how == "unbegun")
        ]
        places = [(run.place, run.why) for run in recalled]
        delays_ms = [run.delay_ms for run in recalled]
        calls += [commands.requeue(places, how, delays_ms)] if recalled else []
    return calls


def _outcome(run: Run) -> str:
    """Return the outcome of a run, as `finish` names outcomes."""
    return (
        f"unstored {run.outcome}"
        if run.unstored and run.outcome in ("failed", "cancelled")
        else run.outcome
    )
