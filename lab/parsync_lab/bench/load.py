"""A load generator: it submits tasks in an open loop, so that a late submit counts as delay."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Event
from typing import Any, Final

from parsync_redis.client import ParsyncClient
from parsync_redis.model.ids import shard_of

from .figures import Pace

GENERATOR_POLL_S: Final = 0.01
MAX_TASKS_PER_SUBMIT: Final = 2000
"""The maximum number of tasks in a call of submit_many, which sends 500 a round trip."""

BENCH_TASK: Final = "bench.hold"

SubmitNumbers = Callable[[Sequence[int]], None]
"""A function that submits the tasks of these numbers."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a generator: the number of submitted tasks, and the largest lateness in s."""

    submitted: int
    late_s: float


TASKS_OF_ONE_SHARD: Final = 100
"""The number of consecutive tasks of one shard, as a client makes the ids of a batch."""


def task_id(number: int, shards: int = 1) -> str:
    """Return the id of task `number` in a queue with `shards` shards."""
    if shards == 1:
        return f"b{number}"
    shard = number // TASKS_OF_ONE_SHARD % shards
    return next(
        id for id in (f"b{number}-{salt}" for salt in count()) if shard_of(id, shards) == shard
    )


def through_client(
    url: str, cluster: str, kinds: Sequence[Mapping[str, Any]]
) -> Callable[[], SubmitNumbers]:
    """Return a connector whose generators submit with `ParsyncClient.submit_many`.

    Task `number` is of kind `number` modulo the number of kinds.
    """

    def connect() -> SubmitNumbers:
        client = ParsyncClient.from_url(url, cluster)
        client.check()

        def submit(numbers: Sequence[int]) -> None:
            shards = client.store.keys.shards
            client.submit_many(
                {"name": BENCH_TASK, "id": task_id(n, shards), **kinds[n % len(kinds)]}
                for n in numbers
            )

        return submit

    return connect


def generator(
    connect: Callable[[], SubmitNumbers], pace: Pace, begin_s: float
) -> Callable[[Event, Callable[[Any], None]], Sent]:
    """Return the job of a generator: task k is due k / rate seconds after `begin_s` (monotonic).

    The job ends `pace.seconds` after the beginning, or on a stop. Due tasks that are not submitted
    by then are left out.
    """

    def job(stop: Event, tell: Callable[[Any], None]) -> Sent:
        submit = connect()
        sent = 0
        late_s = 0.0
        while sent < pace.total and not stop.is_set():
            elapsed_s = time.monotonic() - begin_s
            if elapsed_s > pace.seconds + 1.0:
                break
            due = min(pace.due(elapsed_s), sent + MAX_TASKS_PER_SUBMIT)
            if due == sent:
                stop.wait(GENERATOR_POLL_S)
                continue
            submit([pace.number(position) for position in range(sent, due)])
            late_s = max(late_s, time.monotonic() - begin_s - pace.due_s(pace.number(sent)))
            sent = due
        return Sent(sent, late_s)

    return job
