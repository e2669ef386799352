"""A node whose broker connection is cut while its consumer stops must listen again with the next connection."""

from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from billiard.pool import ApplyResult
from celery import Celery

from parsync_redis import Parsync
from parsync_redis.execution.inbox import Inbox, keep_handed_over
from parsync_redis.execution.runs import Run, Runs
from parsync_redis.store.commands import Place


class Cut:
    """What kombu has of an inbox whose connection is gone: closing it meets the same error."""

    channel = None

    def cancel(self) -> None:
        raise ConnectionError("cut")


@pytest.fixture
def consumer() -> Any:
    """Celery's consumer as it is after its connection was lost: without one."""
    app = Celery("cut", broker="redis://127.0.0.1:1/0")
    Parsync(app)
    agent = SimpleNamespace(spec=SimpleNamespace(name="n1"), runs=Runs(), told=[])
    agent.ended = lambda run, outcome: agent.told.append((run.place.task, outcome))
    controller = SimpleNamespace(parsync_agent=agent)
    return SimpleNamespace(
        controller=controller,
        connection=None,
        connection_errors=(),
        pool=SimpleNamespace(flush=lambda: None),
        task_buckets={},
    )


def test_a_cut_inbox_is_forgotten_so_that_it_is_consumed_again(consumer: Any) -> None:
    inbox = Inbox(consumer)
    inbox.consumers = [Cut()]
    inbox.stop(consumer)
    assert inbox.consumers is None


def test_what_waited_in_the_pool_of_a_cut_node_goes_back_and_what_a_process_was_handed_does_not(consumer: Any) -> None:
    inbox, agent, pool = Inbox(consumer), consumer.controller.parsync_agent, {}
    jobs = [ApplyResult(pool, None) for _ in range(3)]
    jobs[1]._write_to = SimpleNamespace(_is_alive=lambda: True)
    jobs[2]._write_to = SimpleNamespace(_is_alive=lambda: False)
    for name, job in zip(("waits", "handed", "handed to the dead"), jobs, strict=True):
        request = SimpleNamespace(time_start=None, _apply_result=ref(job))
        assert agent.runs.enter(Run(Place(name, "1@1", 0, "n1", len(agent.runs), 1, 0), request=request))
    consumer.pool.flush = lambda: [job.discard() for job in jobs]  # as Celery's: whatever has not said that it began
    keep_handed_over(consumer.pool, agent.runs)
    consumer.pool.flush()
    inbox.consumers = [Cut()]
    inbox.stop(consumer)
    assert agent.told == [("waits", "again"), ("handed to the dead", "again")]
    jobs[1].discard()
    assert not pool, "what is kept can be thrown away later"
