"""Celery's request of a task that runs here: it reports to the agent how the run ended.

All pools call these methods in the worker's main process, even if a run's pool process was lost or
killed by a time limit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from signal import SIGTERM, Signals
from typing import Final

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from billiard.exceptions import Terminated, WorkerLostError
from celery import Task
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded, TimeLimitExceeded
from celery.utils.imports import symbol_by_name
from celery.worker import state
from celery.worker.request import Request as CeleryRequest
from celery.worker.state import task_ready

from ...wire.tenant import submitting_for
from ..isolation.tie import NotBegun
from ..node.agent import Agent
from ..node.runs import Run
from .celery_types import Pool
from .isolated_pool import IsolatedPool
from .storing import is_of_backend, is_unstored, watch_backend_of, why_unstored

log = logging.getLogger("parsync.agent")


def watch(task: Task) -> bool:
    """Have a task's requests report to the agent, and watch its result backend.

    Returns False if they did so already.
    """
    watch_backend_of(task)
    before = symbol_by_name(task.Request)
    task.Request = request_class(before)
    return task.Request is not before


@cache
def request_class(base: type) -> type:
    """Return `base`, a class of Celery requests, extended by reports to the agent."""
    if getattr(base, "of_parsync", False):
        return base
    return type("ParsyncRequest", (ReportedRequest, base), {"__doc__": base.__doc__})


class ReportedRequest(CeleryRequest):
    """A request that reports how it ends if parsync placed its task.

    `request_class` puts this class before the task's own class.
    """

    of_parsync = True
    _acknowledged = False
    _put_back = False
    _dropped_by: Pool | None = None
    _agent: Agent | None = None
    _run: Run | None = None
    _tie = ""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        agent: Agent | None = self.app.parsync.agent
        place = self.request_dict.get("parsync")
        run = agent.node.runs.of_header(place) if agent else None
        if agent is None or run is None:
            return
        self._agent = agent
        self._run = run
        run.request = self
        # the ETA is for the task; Celery's worker would wait if it were in `self.eta`
        self.request_dict["eta"] = place.get("eta")
        # Celery derives a class from this one that overrides both without super(): the instance's
        # come before those
        self._celery_success = self.on_success  # type: ignore[has-type]
        self.on_success = self._on_success
        self._celery_execute = super().execute_using_pool
        self.execute_using_pool = self._execute

    @property
    def acknowledged(self) -> bool:
        """True if the broker will not deliver the request's message again.

        A placed request has no message. Celery reads this when the broker's connection is lost, to
        cancel the requests that come again, and in a cold shutdown, to cancel the requests that
        have not ended.
        """
        return self._acknowledged or (self._agent is not None and self._agent.node.broker_lost)

    @acknowledged.setter
    def acknowledged(self, acknowledged: bool) -> None:
        self._acknowledged = acknowledged

    def _execute(self, pool: Pool, **kwargs: object) -> object:
        """Run the task in the pool, isolated.

        The isolation is asked for only now: if the request waited for a process, the node may have
        another guard.
        """
        assert self._agent is not None
        assert self._run is not None
        isolation = self._agent.node.isolation.of(self._run.slots)
        self._tie = isolation.guard if isolation is not None else ""
        environment = self._agent.node.spec.devices.environment(self._run.place)
        return self._celery_execute(IsolatedPool(pool, isolation, environment), **kwargs)

    def _ended(self, outcome: str, failed: bool | None = None) -> None:
        if self._run is not None and self._agent is not None:
            self._run.failed = failed
            self._agent.reporter.ended(self._run, outcome)

    def drop(self, pool: Pool, signal: str = "SIGKILL") -> None:
        """End the run by a signal without reporting its end, because its task goes back.

        A later call may use a stronger signal.
        """
        self._dropped_by = pool
        if self.time_start and self._already_cancelled:
            pool.terminate_job(self.worker_pid, Signals[signal])
        elif self.time_start:
            self.cancel(pool, signal=signal, emit_retry=False)

    def on_accepted(self, pid: int, time_accepted: float) -> object:
        """Note that the pool has begun the run; kill it if it was dropped meanwhile.

        A thread calls this before it calls the task's function. Raises NotBegun if the task has
        gone back meanwhile; then the thread does not call the function.

        time_accepted: monotonic.
        """
        if (
            self._run is not None
            and self._agent is not None
            and not self._agent.node.runs.begin(self._run, time_accepted)
        ):
            raise NotBegun("its task has gone back")
        done = super().on_accepted(pid, time_accepted)
        if self._dropped_by is not None:
            try:
                self.drop(self._dropped_by)
            except NotImplementedError:  # a thread: the function is not called yet
                self._ended("lost")
                raise NotBegun("its task has gone back") from None
        return done

    def reject(self, requeue: bool = False) -> object:
        """Put the task back into parsync's queue where Celery would put back its message."""
        self._put_back = self._put_back or (requeue and not self._acknowledged)
        return super().reject(requeue=requeue)

    def _on_success(self, result: tuple[object, ...], **kwargs: object) -> object:
        """Report a success.

        `result` begins with True if the task failed, which Celery reports by `on_failure`.
        """
        try:
            return self._celery_success(result, **kwargs)
        finally:
            if not result[0]:
                self._ended("succeeded", failed=False)

    def on_failure(
        self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False
    ) -> object:
        """Report everything that is not a success.

        If the process was lost, or killed by a cold shutdown, the task has not failed and goes
        back. If the task itself ended its process, the task has failed.
        """
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        if self._run is not None and self._goes_back(self._run, error):
            return None
        if self._run is not None and is_unstored(error):
            return_ok = False
            if is_of_backend(error):
                self._give_reason(why_unstored(error))
        try:
            with self._noting_unstored():
                return super().on_failure(
                    exc_info, send_failed_event=send_failed_event, return_ok=return_ok
                )
        finally:
            outcome = self._outcome(error)
            if outcome == "failed":
                self._give_reason(why_failed(error))
            self._ended(outcome, None if self._already_revoked else is_failure(error))

    def _give_reason(self, why: str) -> None:
        """Note why the run failed; the first reason counts."""
        if self._run is not None:
            self._run.flaw = self._run.flaw or why

    @contextmanager
    def _noting_unstored(self) -> Iterator[None]:
        """Have the results outbox tell the result that Celery fails to store in this block.

        What Celery publishes in the block, such as errbacks, inherits the tenant of the run.
        """
        try:
            with submitting_for(self.request_dict):
                yield
        except Exception as trouble:
            if self._run is not None and is_of_backend(trouble):
                log.warning("task %s: the results outbox has its result: %r", self.id, trouble)
                self._run.unstored = True
                self._give_reason(why_unstored(trouble))
                return
            raise

    def _announce_revoked(self, *args: object) -> None:
        """Store that the run was revoked, and send the event."""
        with self._noting_unstored():
            super()._announce_revoked(*args)
        self._already_revoked = True

    def _announce_cancelled(self, **kwargs: object) -> None:
        """Store that a run was cancelled, and send the event; the task goes back.

        The task goes back whatever the result backend says.
        """
        with self._noting_unstored():
            super()._announce_cancelled(**kwargs)
        self._already_cancelled = True

    def _goes_back(self, run: Run, error: BaseException) -> bool:
        """Report a run whose task goes back; return False if the run failed.

        The task of a run that was dropped, could not begin or lost its process goes back.
        """
        if self._already_cancelled:
            task_ready(self)
            self._ended("lost")
            return True
        if not isinstance(error, NotBegun) and not self._process_lost(error):
            return False
        task_ready(self)
        self.send_event("task-retried", exception=repr(error), traceback="")
        if isinstance(error, NotBegun):
            self._not_begun(run, error)
        else:
            log.warning("task %s lost its process (%s): it goes back", self.id, error)
            if self._agent is not None and (why := self._agent.node.isolation.why_lost(self._tie)):
                run.why = f"it was killed: {why}"
            self._ended("lost", failed=True)
        return True

    def _outcome(self, error: BaseException) -> str:
        by_task = ended_by_task(error)
        # a task that ends its process and asks to be run again: its starts are bounded
        if self._put_back:
            return "lost" if by_task else "again"
        return "failed" if by_task else outcome_of(error, self._already_revoked)

    def _not_begun(self, run: Run, error: NotBegun) -> None:
        """Report a run whose function was not called.

        Its start does not count, and its slots are shut for a while.
        """
        log.warning("task %s could not begin (%s): it goes back", self.id, error)
        run.why = f"it could not begin: {error}"
        run.unbegun = True
        if self._agent is not None:
            self._agent.node.isolation.not_begun(run.slots, run.why)
        self._ended("recalled")

    def _process_lost(self, error: BaseException) -> bool:
        if not isinstance(error, (WorkerLostError, SystemExit, KeyboardInterrupt)):
            return False
        if ended_by_task(error) and (
            state.should_terminate is None or state.should_terminate is False
        ):
            return False
        return not self._already_revoked and not self._success_was_stored()

    def on_timeout(self, soft: bool, timeout: float) -> object:
        """Report a hard time limit as a failure.

        In a cold shutdown the time limit does not count: the task goes back.
        """
        try:
            with self._noting_unstored():
                return super().on_timeout(soft, timeout)
        finally:
            if not soft:
                self._ended(self._outcome_of_timeout(timeout))

    def _outcome_of_timeout(self, timeout: float) -> str:
        """Return the outcome of a run whose hard time limit is over; note why if it failed."""
        if self._put_back:
            return "again"
        if state.should_terminate:
            return "lost"
        self._give_reason(f"its time limit of {timeout:g} s was over")
        return "failed"

    def revoked(self) -> bool:
        """Report a task that expired or was revoked before it ran as cancelled."""
        revoked = bool(super().revoked())
        if revoked:
            self._ended("cancelled")
        return revoked


_EXITED: Final = re.compile(r"exitcode (\d+)")
_NOT_BY_TASK: Final = (int(SIGTERM), 155)
"""Exit codes of pool processes that SIGTERM or their limit of tasks (EX_RECYCLE) ended."""


def ended_by_task(error: BaseException) -> bool:
    """Return whether the task ended its process, by sys.exit or os._exit.

    A signal is not the task's doing.
    """
    if not isinstance(error, WorkerLostError):
        return False
    exited = _EXITED.search(str(error))
    return getattr(error, "by_task", False) or (
        exited is not None and int(exited[1]) not in _NOT_BY_TASK
    )


def outcome_of(error: BaseException, revoked: bool) -> str:
    """Return the outcome of a run that ended with this exception, as `finish` names it."""
    if revoked or isinstance(error, Terminated):
        return "cancelled"
    if isinstance(error, Retry) or (isinstance(error, Reject) and error.requeue):
        return "again"
    if isinstance(error, Ignore):
        return "succeeded"
    return "succeeded" if isinstance(error, WorkerLostError) else "failed"


def why_failed(error: BaseException) -> str:
    """Return why a task has failed, without the text of its error.

    Only those who may read the result may read that text.
    """
    if isinstance(error, WorkerLostError):
        return "it ended its own process"
    return f"it raised {type(error).__name__}"


def is_failure(error: BaseException) -> bool | None:
    """Return whether a function failed that ended with this exception.

    None if the exception says nothing about the node. A retry because of an exception is a failure.
    A retry without an exception is none, as with Ignore.
    """
    if isinstance(error, Retry):
        return bool(error.exc or error.excs)
    if isinstance(error, (Reject, Terminated, SoftTimeLimitExceeded, TimeLimitExceeded)):
        return None
    return not isinstance(error, Ignore)
