"""The rival *central*: instead of schedulers a script (central_scripts.py) takes the best slot.

The rival gets the best conditions: agents take many doorbells at a time, and nothing renews a
lease.
"""

import heapq
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, Final

import numpy as np

from parsync_redis.model.amount import THOUSANDTHS
from parsync_redis.placement.strategy import Floats
from parsync_redis.store.server.connection import connect
from parsync_redis.wire.message import make_message

from .central_scripts import CENTRAL_PREFIX, scripts
from .load import BENCH_TASK, SubmitNumbers, task_id
from .ours import TASKS_PER_READ, TaskTimes
from .parameters import BenchParameters
from .processes import Processes
from .standins import DOORBELLS_PER_POP, NodePlan, batches, poll_every_s, turn_until
from .wire import Wire, pack

_STAMPS: Final = ("state", "starts", "submitted_ms", "placed_ms", "started_ms", "finished_ms")


def read_records(url: str, numbers: Sequence[int]) -> tuple[list[Any], list[Floats]]:
    """Return (state, starts) of each task, and its four times as arrays."""
    wire = Wire(url)
    states: list[Any] = []
    times: list[Any] = []
    for first in range(0, len(numbers), TASKS_PER_READ):
        batch = numbers[first : first + TASKS_PER_READ]
        rows = wire.ask(
            pack([("HMGET", f"{CENTRAL_PREFIX}task:{task_id(n)}", *_STAMPS) for n in batch]),
            len(batch),
        )
        states += [(row[0], row[1]) for row in rows]
        times += [[float(value or "nan") for value in row[2:]] for row in rows]
    wire.close()
    times_ms = np.array(times, dtype=float).reshape(len(numbers), 4)
    return states, [times_ms[:, column] for column in range(4)]


class Central:
    """The contender *central*: one script takes the best free slot."""

    def __init__(self, url: str, parameters: BenchParameters, processes: Processes) -> None:
        self.url = url
        self.parameters = parameters
        self.processes = processes
        self.client: Any = connect(url, timeout_s=60)
        self._scripts = {
            verb: self.client.register_script(text)
            for verb, text in scripts(parameters.kinds).items()
        }

    def start(self, say: Callable[[str], None]) -> None:
        """Write the nodes to Redis and start their stand-ins."""
        plans = self.parameters.node_plans()
        for script in self._scripts.values():
            script.registered_client.script_load(script.script)
        pipe: Any
        with self.client.pipeline(transaction=False) as pipe:
            for number, plan in enumerate(plans):
                slots = [f"{plan.name}/{slot}" for slot in range(plan.offer.slots)]
                pipe.hset(CENTRAL_PREFIX + "scores", plan.name, plan.score)
                if self.parameters.kinds == 1:
                    pipe.zadd(CENTRAL_PREFIX + "free", dict.fromkeys(slots, plan.score))
                else:
                    pipe.hset(
                        CENTRAL_PREFIX + "labels", plan.name, _labels(dict(plan.offer.labels))
                    )
                    pipe.hset(
                        CENTRAL_PREFIX + "mem",
                        plan.name,
                        dict(plan.offer.amounts)["mem"] // THOUSANDTHS,
                    )
                    pipe.rpush(CENTRAL_PREFIX + f"slots:{plan.name}", *slots)
                    pipe.zadd(CENTRAL_PREFIX + "free", {plan.name: plan.score})
                if number % 500 == 499:
                    pipe.execute()
            pipe.execute()
        for agent in range(self.parameters.agents):
            self.processes.start("agents", self._agent(plans[agent :: self.parameters.agents]))

    def _agent(self, plans: Sequence[NodePlan]) -> Callable[[Event, Callable[[Any], None]], int]:
        def job(stop: Event, tell: Callable[[Any], None]) -> int:
            wire = Wire(self.url)
            client = connect(self.url, timeout_s=60)
            bells = pack(
                [
                    ("RPOP", f"{CENTRAL_PREFIX}inbox:{plan.name}", DOORBELLS_PER_POP)
                    for plan in plans
                ]
            )
            start, finish = (
                client.register_script(scripts(self.parameters.kinds)[verb])
                for verb in ("start", "finish")
            )
            running: list[tuple[float, bytes]] = []
            ended = 0

            def turn(now_s: float) -> None:
                nonlocal ended
                rung = [id for ids in wire.ask(bells, len(plans)) for id in ids or ()]
                for batch in batches(rung):
                    start(args=list(batch))
                    end_s = time.monotonic() + self.parameters.duration_s
                    for id in batch:
                        heapq.heappush(running, (end_s, id))
                over = []
                while running and running[0][0] <= now_s:
                    over.append(heapq.heappop(running)[1])
                for batch in batches(over):
                    finish(args=list(batch))
                ended += len(over)

            turn_until(stop, poll_every_s(len(plans)), turn)
            return ended

        return job

    def connect(self) -> Callable[[], SubmitNumbers]:
        """Return a generator's connection; it sends the same messages as parsync."""
        kinds = self.parameters.task_kinds()

        def connect_one() -> SubmitNumbers:
            submit = connect(self.url, timeout_s=60).register_script(
                scripts(self.parameters.kinds)["submit"]
            )

            def send(numbers: Sequence[int]) -> None:
                for batch in batches(numbers):
                    args: list[Any] = []
                    for number in batch:
                        kind = kinds[number % len(kinds)]
                        id = task_id(number)
                        labels = _labels(kind.get("require", {}))
                        mem = kind.get("resources", {}).get("mem", 0)
                        args += (id, make_message(BENCH_TASK, (), None, id), labels, mem)
                    submit(args=args)

            return send

        return connect_one

    def stats(self) -> list[dict[str, str]]:
        """Return []: there are no schedulers."""
        return []

    def open(self) -> int:
        """Count the submitted tasks that are not final."""
        return int(self.client.get(CENTRAL_PREFIX + "open") or 0)

    def end(self, numbers: Sequence[int]) -> tuple[TaskTimes, dict[str, Any]]:
        """Stop the stand-ins; return the tasks' times and counts."""
        ended = sum(self.processes.finish("agents"))
        states, times = read_records(self.url, numbers)
        if self.parameters.kinds == 1:
            free = self.client.zcard(CENTRAL_PREFIX + "free")
        else:
            free = sum(
                self.client.llen(f"{CENTRAL_PREFIX}slots:{plan.name}")
                for plan in self.parameters.node_plans()
            )
        audit = {
            "lost": sum(state != (b"succeeded", b"1") for state in states),
            "ran_twice": max(0, ended - len(numbers)),
            "leaked_slots": self.parameters.slots - free,
            "bitmap_mismatches": 0,
            "counter_mismatches": self.open(),
            "facts": 0,
            "first_facts": [],
        }
        return TaskTimes(times[0], times[1], times[2], times[3], audit), {"placed": len(numbers)}


def _labels(labels: Any) -> str:
    return " ".join(f"{name}:{value}" for name, value in sorted(labels.items()))
