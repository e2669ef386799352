"""The rival *queues*: plain Celery, with a queue for each class of machine.

It gets the best conditions: workers take many messages at a time, and nothing renews a lease.
"""

import heapq
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

import numpy as np

from parsync_redis.placement.strategy import Floats
from parsync_redis.store.server.connection import connect

from .load import BENCH_TASK, SubmitNumbers, task_id
from .ours import TaskTimes
from .parameters import BenchParameters
from .processes import Processes
from .standins import STAND_IN_POLL_S, batches, turn_until
from .wire import Wire, pack

MACHINE_CLASSES: Final = 5
"""The number of machine classes, each with a queue."""

_MESSAGE_ID: Final = re.compile(rb'"id": ?"b(\d+)"')
_QUEUE_STATE: Final = ("unacked", "unacked_index")


@dataclass(slots=True)
class WorkerRuns:
    """The runs of a stand-in for plain workers: (number, begun, ended), monotonic seconds."""

    runs: list[tuple[int, float, float]] = field(default_factory=list)


class Queues:
    """Plain Celery with a queue per machine class: the submitter chooses the class."""

    def __init__(self, url: str, parameters: BenchParameters, processes: Processes) -> None:
        self.url = url
        self.parameters = parameters
        self.processes = processes
        self.client: Any = connect(url, timeout_s=60)

    def start(self, say: Callable[[str], None]) -> None:
        """Start the stand-ins for workers; each has its share of the slots of every class."""
        for _ in range(self.parameters.agents):
            self.processes.start(
                "agents",
                self._agent(self.parameters.slots // MACHINE_CLASSES // self.parameters.agents),
            )

    def _agent(self, slots: int) -> Callable[[Event, Callable[[Any], None]], WorkerRuns]:
        """Return the job of workers with `slots` slots of each class.

        As with kombu, a message stays unacknowledged until its task has ended.
        """

        def job(stop: Event, tell: Callable[[Any], None]) -> WorkerRuns:
            wire = Wire(self.url)
            times = WorkerRuns()
            room = [slots] * MACHINE_CLASSES
            running: list[tuple[float, int, int, float]] = []

            def turn(now_s: float) -> None:
                asks = [
                    ("RPOP", _queue(c), max(1, room[c]))
                    for c in range(MACHINE_CLASSES)
                    if room[c] > 0
                ]
                classes = [c for c in range(MACHINE_CLASSES) if room[c] > 0]
                commands: list[Sequence[Any]] = []
                for c, messages in zip(
                    classes, wire.ask(pack(asks), len(asks)) if asks else (), strict=True
                ):
                    for message in messages or ():
                        match = _MESSAGE_ID.search(message)
                        assert match, message
                        number = int(match[1])
                        begun_s = time.monotonic()
                        commands += [
                            ("ZADD", "unacked_index", begun_s, number),
                            ("HSET", "unacked", number, message),
                        ]
                        heapq.heappush(
                            running, (begun_s + self.parameters.duration_s, number, c, begun_s)
                        )
                        room[c] -= 1
                while running and running[0][0] <= now_s:
                    _, number, c, begun_s = heapq.heappop(running)
                    commands += [("ZREM", "unacked_index", number), ("HDEL", "unacked", number)]
                    times.runs.append((number, begun_s, time.monotonic()))
                    room[c] += 1
                for batch in batches(commands, 1000):
                    wire.ask(pack(batch), len(batch))

            turn_until(stop, STAND_IN_POLL_S, turn)
            return times

        return job

    def connect(self) -> Callable[[], SubmitNumbers]:
        """Return a connector that publishes with Celery, one message at a time."""

        def connect_one() -> SubmitNumbers:
            from celery import Celery

            app = Celery("bench", broker=self.url, set_as_current=False)
            app.conf.update(task_ignore_result=True, task_serializer="json")
            producer = app.amqp.Producer(app.connection_for_write().default_channel)

            def send(numbers: Sequence[int]) -> None:
                for number in numbers:
                    app.send_task(
                        BENCH_TASK,
                        task_id=task_id(number),
                        queue=_queue(number % MACHINE_CLASSES),
                        producer=producer,
                    )

            return send

        return connect_one

    def stats(self) -> list[dict[str, str]]:
        """Return []: there are no schedulers."""
        return []

    def open(self) -> int:
        """Count the messages that wait or are not acknowledged."""
        waiting = sum(self.client.llen(_queue(c)) for c in range(MACHINE_CLASSES))
        return int(waiting + self.client.hlen("unacked"))

    def end(self, numbers: Sequence[int]) -> tuple[TaskTimes, dict[str, Any]]:
        """Stop the stand-ins; return the tasks' times and counts.

        A task counts as placed once a worker took its message.
        """
        runs = [run for times in self.processes.finish("agents") for run in times.runs]
        seconds, micros = self.client.time()
        offset_ms = seconds * 1e3 + micros / 1e3 - time.monotonic() * 1e3
        position_of = {number: position for position, number in enumerate(numbers)}
        begun = np.full(len(numbers), np.nan)
        ended = np.full(len(numbers), np.nan)
        for number, begun_s, ended_s in runs:
            begun[position_of[number]] = begun_s * 1e3 + offset_ms
            ended[position_of[number]] = ended_s * 1e3 + offset_ms
        audit = {
            "lost": int(np.count_nonzero(np.isnan(ended))),
            "ran_twice": len(runs) - len({number for number, _, _ in runs}),
            "leaked_slots": sum(self.client.exists(key) for key in _QUEUE_STATE),
            "bitmap_mismatches": 0,
            "counter_mismatches": 0,
            "facts": 0,
            "first_facts": [],
        }
        unknown: Floats = np.full(len(numbers), np.nan)
        return TaskTimes(unknown, begun, begun, ended, audit), {"placed": len(runs)}


def _queue(number: int) -> str:
    return f"bench-class-{number}"
