"""Celery's request of a task that runs here: it tells the agent how each run ended.

All pools call these in the worker's main process, also for a run whose pool process was lost or killed by a time limit.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from signal import SIGTERM
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import Terminated, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.imports import symbol_by_name
from celery.worker import state
from celery.worker.state import task_ready

from .isolation.tie import IsolatedPool, NotBegun

if TYPE_CHECKING:
    from .agent import Agent
    from .runs import Run

log = logging.getLogger("parsync.agent")


def watch(task: Any) -> bool:
    """Makes a task's requests tell the agent how they end; False if they did so already."""
    before = symbol_by_name(task.Request)
    task.Request = request_class(before)
    return task.Request is not before


@cache
def request_class(base: type) -> type:
    """`base`, a class of requests, of which those that parsync placed tell their agent how they end."""
    if getattr(base, "of_parsync", False):
        return base

    class ParsyncRequest(base):
        of_parsync = True
        _put_back = False
        _dropped_by: Any = None

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._agent: Agent | None = self.app.parsync.agent
            self._run: Run | None = self._agent.run_of(self.request_dict.get("parsync")) if self._agent else None
            if self._run is None:
                return
            self._run.request = self
            # Celery derives a class from this one that overrides on_success without super(): the instance goes first
            celery_success: Any = self.on_success  # type: ignore[has-type]

            def on_success(result: Any, **kwargs: Any) -> Any:
                try:
                    return celery_success(result, **kwargs)
                finally:
                    if not result[0]:
                        self._ended("succeeded")

            self.on_success = on_success
            celery_execute: Any = super().execute_using_pool

            def execute_using_pool(pool: Any, **kwargs: Any) -> Any:
                return celery_execute(self._isolated(pool), **kwargs)

            self.execute_using_pool = execute_using_pool

        def _isolated(self, pool: Any) -> Any:
            assert self._agent is not None
            assert self._run is not None
            return IsolatedPool(pool, self._agent.isolation.of(self._run.slots))

        def _ended(self, outcome: str) -> None:
            if self._run is not None and self._agent is not None:
                self._agent.ended(self._run, outcome)

        def drop(self, pool: Any) -> None:
            """Kills the run without a word to anybody: its task is another node's now."""
            self._dropped_by = pool
            if self.time_start:
                self.cancel(pool, signal="SIGKILL", emit_retry=False)

        def on_accepted(self, pid: int, time_accepted: float) -> Any:
            """A pool process has begun; one that was dropped meanwhile is killed at once."""
            done = super().on_accepted(pid, time_accepted)
            if self._dropped_by is not None:
                self.drop(self._dropped_by)
            return done

        def reject(self, requeue: bool = False) -> Any:
            """Where Celery would put the message back on its queue, the task goes back to parsync's."""
            self._put_back = self._put_back or (requeue and not self.acknowledged)
            return super().reject(requeue=requeue)

        def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
            """Called for whatever is not a success.

            A process that was lost, or killed by a cold shutdown, is no failure of the task: it goes back. A process
            that the task itself ended is one.
            """
            error = exc_info.exception
            error = error.exc if isinstance(error, ExceptionWithTraceback) else error
            if self._run is not None and self._already_cancelled:
                task_ready(self)
                return self._ended("lost")
            if self._run is not None and (isinstance(error, NotBegun) or self._process_lost(error)):
                task_ready(self)
                self.send_event("task-retried", exception=repr(error), traceback="")
                if isinstance(error, NotBegun):
                    return self._not_begun(self._run, error)
                log.warning("task %s lost its process (%s): it goes back", self.id, error)
                return self._ended("lost")
            return_ok = return_ok and not getattr(error, "unstored", False)
            try:
                return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
            finally:
                self._ended(self._outcome(error))

        def _outcome(self, error: BaseException) -> str:
            by_task = ended_by_task(error)
            if self._put_back:  # a task that ends its process and wants to be run again then: its starts are bounded
                return "lost" if by_task else "again"
            return "failed" if by_task else outcome_of(error, self._already_revoked)

        def _not_begun(self, run: Run, error: NotBegun) -> None:
            """Its function was not called: its start does not count, and its slots are shut for a while."""
            log.warning("task %s could not begin (%s): it goes back", self.id, error)
            run.why = f"it could not begin: {error}"
            if self._agent is not None:
                self._agent.isolation.not_begun(run.slots, run.why)
            self._ended("recalled")

        def _process_lost(self, error: BaseException) -> bool:
            if not isinstance(error, (WorkerLostError, SystemExit, KeyboardInterrupt)):
                return False
            if ended_by_task(error) and (state.should_terminate is None or state.should_terminate is False):
                return False
            return not self._already_revoked and not self._success_was_stored()

        def on_timeout(self, soft: bool, timeout: float) -> Any:
            """A hard time limit ends the run as failed; in a cold shutdown it does not count: it goes back."""
            try:
                return super().on_timeout(soft, timeout)
            finally:
                if not soft:
                    self._ended("again" if self._put_back else "lost" if state.should_terminate else "failed")

        def revoked(self) -> bool:
            """Expired or revoked before it ran: it ends as cancelled."""
            revoked = bool(super().revoked())
            if revoked:
                self._ended("cancelled")
            return revoked

    return ParsyncRequest


_EXITED = re.compile(r"exitcode (\d+)")
_NOT_BY_TASK = (int(SIGTERM), 155)
"""Exit codes of pool processes that were told to end: by SIGTERM, or by their limit of tasks (EX_RECYCLE)."""


def ended_by_task(error: BaseException) -> bool:
    """Whether a run ended because its task ended the process (sys.exit, os._exit); a signal is not the task's doing."""
    if not isinstance(error, WorkerLostError):
        return False
    exited = _EXITED.search(str(error))
    return getattr(error, "by_task", False) or (exited is not None and int(exited[1]) not in _NOT_BY_TASK)


def outcome_of(error: BaseException, revoked: bool) -> str:
    """The outcome of a run that ended with this exception, in the words of finish."""
    if revoked or isinstance(error, Terminated):
        return "cancelled"
    if isinstance(error, Retry) or (isinstance(error, Reject) and error.requeue):
        return "again"
    if isinstance(error, Ignore):
        return "succeeded"
    return "succeeded" if isinstance(error, WorkerLostError) else "failed"
