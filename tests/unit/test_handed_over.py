"""A task that a pool process has got is kept when Celery drops the pool's waiting tasks, as its
consumer closes.
"""

from types import SimpleNamespace
from weakref import ref

import pytest
from billiard.pool import ApplyResult

from parsync_redis.model.place import Place
from parsync_redis.worker.celery.prefetched_runs import is_forgotten, keep_handed_over
from parsync_redis.worker.node.runs import Run, Runs


@pytest.mark.parametrize("forgets_all", [False, True], ids=["Celery 5.6", "Celery 5.4 and 5.5"])
def test_a_waiting_run_is_forgotten_and_a_run_handed_to_a_process_is_not(forgets_all: bool) -> None:
    runs = Runs()
    cache: dict[int, object] = {}
    jobs = {
        name: ApplyResult(cache, None)
        for name in ("waits", "handed", "handed to the dead", "put back", "dies")
    }
    jobs["handed"]._write_to = SimpleNamespace(_is_alive=lambda: True, inqW_fd=7)
    # the new process has the descriptor of the dead process
    jobs["put back"]._write_to = SimpleNamespace(_is_alive=lambda: True, inqW_fd=8)
    jobs["dies"]._write_to = SimpleNamespace(_is_alive=lambda: True, inqW_fd=6)
    jobs["handed to the dead"]._write_to = SimpleNamespace(_is_alive=lambda: False)
    requests = {
        name: SimpleNamespace(time_start=None, _apply_result=ref(job)) for name, job in jobs.items()
    }
    for slot, (name, request) in enumerate(requests.items()):
        assert runs.enter(Run(Place(name, "1@1", 0, "n1", (slot,), 1, 0), request=request))
    busy = {7, 9}  # descriptor 9 belongs to the process that is dead
    waiting = [jobs["put back"]]
    pool = SimpleNamespace(
        uses_semaphore=True, _pool=SimpleNamespace(_busy_workers=busy, outbound_buffer=waiting)
    )

    def flush() -> None:
        busy.clear()
        waiting.clear()
        # a successor of its process
        jobs["dies"]._write_to = SimpleNamespace(_is_alive=lambda: True, inqW_fd=6)
        for job in jobs.values():
            job.discard()
        if forgets_all:
            cache.clear()

    pool.flush = flush
    keep_handed_over(pool, runs)
    pool.flush()
    assert [name for name, r in requests.items() if is_forgotten(pool, r)] == [
        "waits",
        "handed to the dead",
        "put back",
        "dies",
    ]
    assert busy == {7}
    jobs["handed"].discard()
    assert not cache, "what is kept can be thrown away later"
