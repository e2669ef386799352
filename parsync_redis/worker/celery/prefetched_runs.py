"""Keeps runs that a pool process was handed and has not begun, when a consumer closes."""

from __future__ import annotations

from typing import TypeGuard, cast

from ..node.runs import Runs
from ..node.worker_port import RunRequest
from .celery_types import Pool, PoolJob, PoolProcess, Request


def is_forgotten(pool: Pool, request: RunRequest) -> bool:
    """Return whether Celery has forgotten a request that has not begun.

    The consumer closes now.

    Celery throws away the tasks that its rate limits hold back, and the tasks that wait in a pool
    of processes. Tasks that a process was handed are kept (`keep_handed_over`). Tasks that wait for
    a thread will run.
    """
    if cast(Request, request)._apply_result is None:
        return True
    return bool(pool.uses_semaphore) and not _in_pool(_job(request))


def keep_handed_over(pool: Pool, runs: Runs) -> None:
    """Have a pool of processes keep the runs that its processes were handed.

    Celery calls `flush` when a consumer closes: at the end, or because its connection was lost.
    `flush` forgets every task that no process has reported to have begun. A task in the pipe of a
    process runs all the same. So it would run twice, and the process would wait half a minute until
    its result is taken. Celery before 5.6 also forgets running tasks, and Celery before 5.7 forgets
    that their processes are busy.

    A process may die before it reads its task. The task then waits for another process, and is not
    kept. Its `_write_to` does not show that: Celery sets `_write_to` to the successor of the dead
    process if the successor has the same descriptor.
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
    """Return the pool's job of a request, None if the pool has no job of it."""
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
