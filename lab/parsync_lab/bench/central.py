"""The rival *central*: no schedulers; a script in Redis (central_scripts.py) takes the best free
slot.

It gets the best conditions: agents take many doorbells at a time, and nothing renews a lease.
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

from .central_scripts import PREFIX, scripts
from .load import TASK, Submit, task_id
from .ours import CHUNK, TaskTimes
from .parameters import BenchParameters
from .processes import Processes
from .standins import AT_ONCE, NodePlan, batches, poll_every_s, turn_until
from .wire import Wire, pack

_STAMPS: Final = ("state", "starts", "submitted_ms", "placed_ms", "started_ms", "finished_ms")


def read_records(url: str, numbers: Sequence[int]) -> tuple[list[Any], list[Floats]]:
    """Return (state, starts) of each task, and its four times as arrays."""
    wire = Wire(url)
    states: list[Any] = []
    times: list[Any] = []
    for at in range(0, len(numbers), CHUNK):
        some = numbers[at : at + CHUNK]
        rows = wire.ask(
            pack([("HMGET", f"{PREFIX}task:{task_id(n)}", *_STAMPS) for n in some]), len(some)
        )
        states += [(row[0], row[1]) for row in rows]
        times += [[float(value or "nan") for value in row[2:]] for row in rows]
    wire.close()
    found = np.array(times, dtype=float).reshape(len(numbers), 4)
    return states, [found[:, column] for column in range(4)]


class Central:
    """One script that takes the best free slot."""

    def __init__(self, url: str, asked: BenchParameters, processes: Processes) -> None:
        self.url = url
        self.asked = asked
        self.processes = processes
        self.client: Any = connect(url, timeout_s=60)
        self._scripts = {
            verb: self.client.register_script(text) for verb, text in scripts(asked.kinds).items()
        }

    def start(self, say: Callable[[str], None]) -> None:
        """Write the nodes to Redis and start their stand-ins."""
        plans = self.asked.node_plans()
        for script in self._scripts.values():
            script.registered_client.script_load(script.script)
        pipe: Any
        with self.client.pipeline(transaction=False) as pipe:
            for number, plan in enumerate(plans):
                slots = [f"{plan.name}/{slot}" for slot in range(plan.offer.slots)]
                pipe.hset(PREFIX + "scores", plan.name, plan.score)
                if self.asked.kinds == 1:
                    pipe.zadd(PREFIX + "free", dict.fromkeys(slots, plan.score))
                else:
                    pipe.hset(PREFIX + "labels", plan.name, _labels(dict(plan.offer.labels)))
                    pipe.hset(
                        PREFIX + "mem", plan.name, dict(plan.offer.amounts)["mem"] // THOUSANDTHS
                    )
                    pipe.rpush(PREFIX + f"slots:{plan.name}", *slots)
                    pipe.zadd(PREFIX + "free", {plan.name: plan.score})
                if number % 500 == 499:
                    pipe.execute()
            pipe.execute()
        for which in range(self.asked.agents):
            self.processes.start("agents", self._agent(plans[which :: self.asked.agents]))

    def _agent(self, plans: Sequence[NodePlan]) -> Callable[[Event, Callable[[Any], None]], int]:
        def job(stop: Event, tell: Callable[[Any], None]) -> int:
            wire = Wire(self.url)
            client = connect(self.url, timeout_s=60)
            bells = pack([("RPOP", f"{PREFIX}inbox:{plan.name}", AT_ONCE) for plan in plans])
            start, finish = (
                client.register_script(scripts(self.asked.kinds)[verb])
                for verb in ("start", "finish")
            )
            held: list[tuple[float, bytes]] = []
            ended = 0

            def turn(now_s: float) -> None:
                nonlocal ended
                rung = [id for ids in wire.ask(bells, len(plans)) for id in ids or ()]
                for some in batches(rung):
                    start(args=list(some))
                    end_s = time.monotonic() + self.asked.duration_s
                    for id in some:
                        heapq.heappush(held, (end_s, id))
                over = []
                while held and held[0][0] <= now_s:
                    over.append(heapq.heappop(held)[1])
                for some in batches(over):
                    finish(args=list(some))
                ended += len(over)

            turn_until(stop, poll_every_s(len(plans)), turn)
            return ended

        return job

    def connect(self) -> Callable[[], Submit]:
        """Return a generator's connection; it sends the same messages as parsync."""
        kinds = self.asked.task_kinds()

        def connect_one() -> Submit:
            submit = connect(self.url, timeout_s=60).register_script(
                scripts(self.asked.kinds)["submit"]
            )

            def send(numbers: Sequence[int]) -> None:
                for some in batches(numbers):
                    args: list[Any] = []
                    for number in some:
                        kind = kinds[number % len(kinds)]
                        id = task_id(number)
                        labels = _labels(kind.get("require", {}))
                        mem = kind.get("resources", {}).get("mem", 0)
                        args += (id, make_message(TASK, (), None, id), labels, mem)
                    submit(args=args)

            return send

        return connect_one

    def stats(self) -> list[dict[str, str]]:
        """Return []: there are no schedulers."""
        return []

    def open(self) -> int:
        """Count the submitted tasks that are not final."""
        return int(self.client.get(PREFIX + "open") or 0)

    def end(self, numbers: Sequence[int]) -> tuple[TaskTimes, dict[str, Any]]:
        """Stop the stand-ins; return the tasks' times and counts."""
        ended = sum(self.processes.finish("agents"))
        states, times = read_records(self.url, numbers)
        if self.asked.kinds == 1:
            free = self.client.zcard(PREFIX + "free")
        else:
            free = sum(
                self.client.llen(f"{PREFIX}slots:{plan.name}") for plan in self.asked.node_plans()
            )
        said = {
            "lost": sum(state != (b"succeeded", b"1") for state in states),
            "ran_twice": max(0, ended - len(numbers)),
            "leaked_slots": self.asked.slots - free,
            "bitmap_mismatches": 0,
            "counter_mismatches": self.open(),
            "facts": 0,
            "first_facts": [],
        }
        return TaskTimes(times[0], times[1], times[2], times[3], said), {"placed": len(numbers)}


def _labels(labels: Any) -> str:
    return " ".join(f"{name}:{value}" for name, value in sorted(labels.items()))
