"""Keep runs that Celery has taken and that have not begun, when its consumer closes."""

from __future__ import annotations

from typing import TypeGuard, cast

from ..node.runs import Runs
from ..node.worker_port import RunRequest
from .celery_types import Pool, PoolJob, PoolProcess, Request


def is_forgotten(pool: Pool, request: RunRequest) -> bool:
    """Return True if Celery has forgotten a request that has not begun, now that its consumer
    closes.

    Celery throws away tasks that its rate limits hold back, and those that wait in a pool of
    processes, except what a process was handed: see `keep_handed_over`. Tasks that wait for a
    thread will run.
    """
    if cast(Request, request)._apply_result is None:
        return True
    return bool(pool.uses_semaphore) and not _in_pool(_job(request))


def keep_handed_over(pool: Pool, runs: Runs) -> None:
    """Have a pool of processes keep the runs that a process was handed, when Celery throws away
    what waits.

    Celery calls `flush` when a consumer closes: at the end, or because its connection was lost. It
    forgets every task that no process has reported to have begun. Those in a process' pipe run all
    the same: they would run twice, and the process would wait half a minute for somebody to take
    its result. Celery before 5.6 forgets those that run, too, and Celery before 5.7 that their
    processes are busy.

    A process may die before it reads its task. The task then waits for another one, and is not
    kept. Its `_write_to` tells nothing then: Celery sets it to the successor of the dead process if
    that has the same descriptor.
    """
    if not pool.uses_semaphore:
        return
    celery_flush = pool.flush

    def flush() -> None:
        jobs = [
            job
            for run in runs.going()
            if run.request and (job := _job(run.request)) and _handed_over(job)
        ]
        handed = [(job, job._write_to) for job in jobs if job not in pool._pool.outbound_buffer]
        for job, _ in handed:
            job.discard = _nothing
        try:
            celery_flush()
        finally:
            for job, process in handed:
                del job.discard
                if _lives(process) and job._write_to is process:
                    job._cache[job._job] = job
                    pool._pool._busy_workers.add(process.inqW_fd)
                else:
                    job.discard()

    pool.flush = flush


def _job(request: RunRequest) -> PoolJob | None:
    """Return the pool's job of a request, None if the pool does not have it yet, or has thrown it
    away.
    """
    celery_request = cast(Request, request)
    return celery_request._apply_result() if celery_request._apply_result else None


def _in_pool(job: PoolJob | None) -> bool:
    return job is not None and job._job in job._cache


def _handed_over(job: PoolJob) -> bool:
    return _in_pool(job) and _lives(job._write_to)


def _lives(process: PoolProcess | None) -> TypeGuard[PoolProcess]:
    return process is not None and process._is_alive()


def _nothing() -> None:
    """Discard nothing."""
