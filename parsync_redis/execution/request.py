"""Celery's request of a task that runs here: it tells the agent how each run ended.

All pools call these in the worker's main process, also for a run whose pool process was lost or killed by a time limit.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import Terminated, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.imports import symbol_by_name
from celery.worker import state
from celery.worker.state import task_ready

from .fence import FencedPool, NotBegun

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
                return celery_execute(self._fenced(pool), **kwargs)

            self.execute_using_pool = execute_using_pool

        def _fenced(self, pool: Any) -> Any:
            assert self._agent is not None
            assert self._run is not None
            fence = self._agent.fences.of(self._run.slots)
            return pool if fence is None else FencedPool(pool, fence)

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

            A process that was lost, or killed by a cold shutdown, is no failure of the task: it goes back.
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
            try:
                return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
            finally:
                self._ended("again" if self._put_back else outcome_of(error, self._already_revoked))

        def _not_begun(self, run: Run, error: NotBegun) -> None:
            """Its function was not called: its start does not count, and its slots are shut for a while."""
            log.warning("task %s could not begin (%s): it goes back", self.id, error)
            run.why = f"it could not begin: {error}"
            if self._agent is not None:
                self._agent.fences.not_begun(run.slots, run.why)
            self._ended("recalled")

        def _process_lost(self, error: BaseException) -> bool:
            lost = isinstance(error, (WorkerLostError, SystemExit, KeyboardInterrupt))
            return lost and not self._already_revoked and not self._success_was_stored()

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


def outcome_of(error: BaseException, revoked: bool) -> str:
    """The outcome of a run that ended with this exception, in the words of finish."""
    if revoked or isinstance(error, Terminated):
        return "cancelled"
    if isinstance(error, Retry) or (isinstance(error, Reject) and error.requeue):
        return "again"
    if isinstance(error, Ignore):
        return "succeeded"
    return "succeeded" if isinstance(error, WorkerLostError) else "failed"
