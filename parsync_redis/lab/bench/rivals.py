"""The rivals without schedulers: *central* (central.py) and *queues* (plain Celery, a queue for each class of machine).

Both are given what is best for them: doorbells and messages are taken many at a time, and nothing renews a lease.
"""

import heapq
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

import numpy as np

from ...placement.strategy import Floats
from ...store.store import connect
from ...wire.message import make_message
from .central import PREFIX, scripts
from .load import TASK, Submit, task_id
from .ours import History, read_records
from .parameters import Parameters, System
from .processes import Processes
from .standins import AT_ONCE, POLL_S, NodePlan, batches, poll_every_s
from .wire import Wire, pack

CLASSES: Final = 5
"""Classes of machine, each with its queue."""

_ID: Final = re.compile(rb'"id": ?"b(\d+)"')
_QUEUE_STATE: Final = ("unacked", "unacked_index")


@dataclass(slots=True)
class Times:
    """What a stand-in for plain workers returns: number -> (begun, ended), monotonic seconds."""

    runs: list[tuple[int, float, float]] = field(default_factory=list)


def make_rival(url: str, asked: Parameters, processes: Processes) -> "Central | Queues":
    """The rival that is asked for."""
    return Central(url, asked, processes) if asked.system == System.CENTRAL else Queues(url, asked, processes)


def _loop(stop: Event, poll_s: float, turn: Callable[[float], None]) -> None:
    """Turns every `poll_s` until it is stopped; then one last turn, to which everything is over."""
    next_s = time.monotonic()
    while not stop.is_set():
        turn(time.monotonic())
        next_s = max(next_s + poll_s, time.monotonic())
        stop.wait(next_s - time.monotonic())
    turn(float("inf"))


class Central:
    """One script that takes the best free slot."""

    def __init__(self, url: str, asked: Parameters, processes: Processes) -> None:
        self.url, self.asked, self.processes = url, asked, processes
        self.client: Any = connect(url, timeout_s=60)
        self._scripts = {verb: self.client.register_script(text) for verb, text in scripts(asked.kinds).items()}

    def start(self, say: Callable[[str], None]) -> None:
        """Writes the nodes down and starts what stands in for them."""
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
                    pipe.hset(PREFIX + "mem", plan.name, dict(plan.offer.amounts)["mem"])
                    pipe.rpush(PREFIX + f"slots:{plan.name}", *slots)
                    pipe.zadd(PREFIX + "free", {plan.name: plan.score})
                if number % 500 == 499:
                    pipe.execute()
            pipe.execute()
        for which in range(self.asked.agents):
            self.processes.start("agents", self._agent(plans[which :: self.asked.agents]))

    def _agent(self, plans: Sequence[NodePlan]) -> Callable[[Event, Callable[[Any], None]], int]:
        def job(stop: Event, tell: Callable[[Any], None]) -> int:
            wire, client = Wire(self.url), connect(self.url, timeout_s=60)
            bells = pack([("RPOP", f"{PREFIX}inbox:{plan.name}", AT_ONCE) for plan in plans])
            start, finish = (client.register_script(scripts(self.asked.kinds)[verb]) for verb in ("start", "finish"))
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

            _loop(stop, poll_every_s(len(plans)), turn)
            return ended

        return job

    def connect(self) -> Callable[[], Submit]:
        """Generators send the very messages that we send."""
        kinds = self.asked.task_kinds()

        def connect_one() -> Submit:
            submit = connect(self.url, timeout_s=60).register_script(scripts(self.asked.kinds)["submit"])

            def send(numbers: Sequence[int]) -> None:
                for some in batches(numbers):
                    args: list[Any] = []
                    for number in some:
                        kind, id = kinds[number % len(kinds)], task_id(number)
                        labels, mem = _labels(kind.get("require", {})), kind.get("resources", {}).get("mem", 0)
                        args += (id, make_message(TASK, (), None, id), labels, mem)
                    submit(args=args)

            return send

        return connect_one

    def stats(self) -> list[dict[str, str]]:
        """Nobody says anything of himself."""
        return []

    def open(self) -> int:
        """How many submitted tasks are not final."""
        return int(self.client.get(PREFIX + "open") or 0)

    def end(self, numbers: Sequence[int]) -> tuple[History, dict[str, Any]]:
        """Stops the stand-ins; what became of the tasks."""
        ended = sum(self.processes.finish("agents"))
        states, times = read_records(self.url, lambda n: f"{PREFIX}task:{task_id(n)}", numbers)
        if self.asked.kinds == 1:
            free = self.client.zcard(PREFIX + "free")
        else:
            free = sum(self.client.llen(f"{PREFIX}slots:{plan.name}") for plan in self.asked.node_plans())
        said = {
            "lost": sum(state != (b"succeeded", b"1") for state in states),
            "ran_twice": max(0, ended - len(numbers)),
            "leaked_slots": self.asked.slots - free,
            "bitmap_mismatches": 0,
            "counter_mismatches": self.open(),
            "facts": 0,
            "first_facts": [],
        }
        return History(times[0], times[1], times[2], times[3], said), {"placed": len(numbers)}


def _labels(labels: Any) -> str:
    return " ".join(f"{name}:{value}" for name, value in sorted(labels.items()))


class Queues:
    """Plain Celery: who submits chooses the class of machine; whichever machine of the class is free takes the next."""

    def __init__(self, url: str, asked: Parameters, processes: Processes) -> None:
        self.url, self.asked, self.processes = url, asked, processes
        self.client: Any = connect(url, timeout_s=60)

    def start(self, say: Callable[[str], None]) -> None:
        """Starts what stands in for workers; each has its share of the slots of every class."""
        for _ in range(self.asked.agents):
            self.processes.start("agents", self._agent(self.asked.slots // CLASSES // self.asked.agents))

    def _agent(self, slots: int) -> Callable[[Event, Callable[[Any], None]], Times]:
        """Workers with `slots` slots of each class; as kombu does, a message is unacked until its task has ended."""

        def job(stop: Event, tell: Callable[[Any], None]) -> Times:
            wire, made = Wire(self.url), Times()
            room = [slots] * CLASSES
            held: list[tuple[float, int, int, float]] = []

            def turn(now_s: float) -> None:
                asks = [("RPOP", _queue(c), max(1, room[c])) for c in range(CLASSES) if room[c] > 0]
                classes = [c for c in range(CLASSES) if room[c] > 0]
                commands: list[Sequence[Any]] = []
                for c, messages in zip(classes, wire.ask(pack(asks), len(asks)) if asks else (), strict=True):
                    for message in messages or ():
                        match = _ID.search(message)
                        assert match, message
                        number, begun_s = int(match[1]), time.monotonic()
                        commands += [("ZADD", "unacked_index", begun_s, number), ("HSET", "unacked", number, message)]
                        heapq.heappush(held, (begun_s + self.asked.duration_s, number, c, begun_s))
                        room[c] -= 1
                while held and held[0][0] <= now_s:
                    _, number, c, begun_s = heapq.heappop(held)
                    commands += [("ZREM", "unacked_index", number), ("HDEL", "unacked", number)]
                    made.runs.append((number, begun_s, time.monotonic()))
                    room[c] += 1
                for some in batches(commands, 1000):
                    wire.ask(pack(some), len(some))

            _loop(stop, POLL_S, turn)
            return made

        return job

    def connect(self) -> Callable[[], Submit]:
        """Generators publish with Celery, a message at a time, as apply_async does."""

        def connect_one() -> Submit:
            from celery import Celery

            app = Celery("bench", broker=self.url, set_as_current=False)
            app.conf.update(task_ignore_result=True, task_serializer="json")
            producer = app.amqp.Producer(app.connection_for_write().default_channel)

            def send(numbers: Sequence[int]) -> None:
                for number in numbers:
                    app.send_task(TASK, task_id=task_id(number), queue=_queue(number % CLASSES), producer=producer)

            return send

        return connect_one

    def stats(self) -> list[dict[str, str]]:
        """Nobody says anything of himself."""
        return []

    def open(self) -> int:
        """How many messages wait or are not acknowledged."""
        waiting = sum(self.client.llen(_queue(c)) for c in range(CLASSES))
        return int(waiting + self.client.hlen("unacked"))

    def end(self, numbers: Sequence[int]) -> tuple[History, dict[str, Any]]:
        """Stops the stand-ins; what became of the tasks. A task is placed when a worker has taken its message."""
        runs = [run for made in self.processes.finish("agents") for run in made.runs]
        seconds, micros = self.client.time()
        offset_ms = seconds * 1e3 + micros / 1e3 - time.monotonic() * 1e3
        at = {number: which for which, number in enumerate(numbers)}
        begun, ended = np.full(len(numbers), np.nan), np.full(len(numbers), np.nan)
        for number, begun_s, ended_s in runs:
            begun[at[number]], ended[at[number]] = begun_s * 1e3 + offset_ms, ended_s * 1e3 + offset_ms
        said = {
            "lost": int(np.count_nonzero(np.isnan(ended))),
            "ran_twice": len(runs) - len({number for number, _, _ in runs}),
            "leaked_slots": sum(self.client.exists(key) for key in _QUEUE_STATE),
            "bitmap_mismatches": 0,
            "counter_mismatches": 0,
            "facts": 0,
            "first_facts": [],
        }
        unknown: Floats = np.full(len(numbers), np.nan)
        return History(unknown, begun, begun, ended, said), {"placed": len(runs)}


def _queue(number: int) -> str:
    return f"bench-class-{number}"
