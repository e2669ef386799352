"""Forecast when a waiting task starts, from what its nodes hold and how long such tasks run.

People read a range, not one moment: run times of one name may differ a thousandfold, and their mean
promises too much. So the queue and the nodes are played to the task's start many times, each time
with other run times that the learnt ones allow. The leader's bookings need one moment, and only of
nodes without a queue: `expected_start_ms`.
"""

import heapq
import random
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Final

from ..model.apart import undeclared
from ..model.devices import hold
from ..model.explanation import Forecast
from ..model.needs import Resources
from ..model.times import HALVE_ABOVE, MIN_LEARNT_RUNS, LearntTimes, PossibleTimes
from .facts import Holder, NodeFacts

MOST_AHEAD: Final = 1000
"""With more tasks before it, no forecast is made."""

DRAWS: Final = 100
"""How often the queue is played, at most."""

LEAST_DRAWS: Final = 40

MOST_PLAYED: Final = 20_000
"""Tasks that are played in all, about: the more tasks wait before it, the fewer draws there are."""


@dataclass(frozen=True, slots=True)
class Held:
    """A task that holds a node, and when it is expected to end (server time, ms); None if nobody
    knows.
    """

    holder: Holder
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class WaitingTasks:
    """A task that waits, or the tasks of one kind before it.

    nodes: those that could hold it and take new tasks. orders: of the tasks, in order; () for the
    task itself.
    """

    name: str
    needs: Resources
    nodes: Sequence[NodeFacts]
    orders: Sequence[float] = ()


@dataclass(slots=True)
class _Room:
    free: int
    left: dict[str, int]

    def holds(self, needs: Resources) -> dict[str, int] | None:
        """Return the amounts that a task would hold; None if there is no room."""
        return hold(self.left, needs.amounts) if self.free >= needs.slots else None

    def change(self, slots: int, amounts: Mapping[str, int], sign: int) -> None:
        self.free += sign * slots
        for name, amount in amounts.items():
            if name in self.left or undeclared(name):
                self.left[name] = self.left.get(name, undeclared(name)) + sign * amount


_End = tuple[float, int, Holder]
"""When a task ends (server time, ms), a number that no other end has, and the room that the task
holds.
"""


def _rooms(nodes: Iterable[NodeFacts], holders: Iterable[Holder]) -> dict[str, _Room]:
    """Return what nodes have left.

    It is reckoned from the holders, because the free slots in a node's facts were read at another
    moment: a task that ended in between would be in neither.
    """
    rooms = {node.name: _Room(node.offer.slots, dict(node.offer.amounts)) for node in nodes}
    for holder in holders:
        if holder.node in rooms:
            rooms[holder.node].change(holder.slots, holder.resources, -1)
    return rooms


def expected_start_ms(
    needs: Resources, nodes: Sequence[NodeFacts], held: Sequence[Held], now_ms: int
) -> int | None:
    """Return when the first of some nodes is expected to have room (server time); None if that
    cannot be said.

    nodes: those that could hold the task. held: all that holds them, read at one moment of each
    node.
    """
    rooms = _rooms(nodes, (task.holder for task in held))
    ends: list[_End] = [
        (max(task.until_ms, now_ms), number, task.holder)
        for number, task in enumerate(held)
        if task.until_ms is not None and task.holder.node in rooms
    ]
    start_ms = _play(
        WaitingTasks("", needs, nodes), (), rooms, ends, now_ms, lambda name, node: None
    )
    return None if start_ms is None else int(start_ms)


def has_room_now(
    task: WaitingTasks,
    ahead: Sequence[WaitingTasks],
    held: Sequence[tuple[Holder, str]],
    nodes: Sequence[str],
) -> bool:
    """Return whether some of the nodes, `nodes`, have room for a task beside all that comes before
    it.
    """
    every = {node.name: node for waiting in (*ahead, task) for node in waiting.nodes}
    rooms = _rooms([every[name] for name in nodes], (holder for holder, _ in held))
    return _play(task, ahead, rooms, [], 0, lambda name, node: None) is not None


def forecast_start(
    task: WaitingTasks,
    ahead: Sequence[WaitingTasks],
    held: Sequence[tuple[Holder, str]],
    times: LearntTimes,
    now_ms: int,
    seed: str,
) -> Forecast | str:
    """Forecast when a task starts, if no task is submitted that comes before it; a text if that is
    not known, and why.

    ahead: the tasks that come before it, by kind. held: all that holds the nodes of the task and of
    those, read at one moment of each node, each with its task's name. times: of each name must have
    as many runs as tasks of the name come before: a rare long run among them would otherwise be one
    that nobody has seen. seed: a page that is loaded again then says the same.
    """
    if not task.nodes:
        return "no node that could hold it takes new tasks"
    nodes = {node.name: node for waiting in (*ahead, task) for node in waiting.nodes}
    if any(holder.ended and holder.node in nodes for holder, _ in held):
        return "slots of a task that has ended are not free yet"
    rooms = _rooms(nodes.values(), (holder for holder, _ in held))
    number = sum(len(waiting.orders) for waiting in ahead)
    asked = {(name, holder.node) for holder, name in held if holder.node in nodes}
    asked |= {(waiting.name, node.name) for waiting in ahead for node in waiting.nodes}
    runs = Counter[str]()
    for waiting in ahead:
        runs[waiting.name] += len(waiting.orders)
    least = {name: max(MIN_LEARNT_RUNS, min(runs[name], HALVE_ABOVE // 4)) for name, _ in asked}
    learnt = {
        (name, node): times.enough_of(name, nodes[node].offer, least[name]) for name, node in asked
    }
    if few := sorted({name for (name, _), known in learnt.items() if known is None}):
        also = f", and too few of {len(few) - 1} more names" if len(few) > 1 else ""
        return (
            f"fewer than {least[few[0]]} runs of {few[0] or 'a task that holds a node'} are "
            f"known{also}"
        )
    starts: list[float] = []
    dice = random.Random(seed)
    for _ in range(max(LEAST_DRAWS, min(DRAWS, MOST_PLAYED // (number + len(held) + 1)))):
        drawn = {
            id(known): PossibleTimes(known, dice) for known in learnt.values() if known is not None
        }
        of = {(name, node): drawn[id(known)] for (name, node), known in learnt.items()}
        ends: list[_End] = [
            (holder.since_ms + of[name, holder.node].draw_ms(now_ms - holder.since_ms), at, holder)
            for at, (holder, name) in enumerate(held)
            if holder.node in nodes
        ]
        start_ms = _play(task, ahead, _copy(rooms), ends, now_ms, partial(_draw_ms, of))
        if start_ms is None:
            return "the tasks that are known do not leave it enough room"
        starts.append(start_ms)
    return _forecast(starts)


def _draw_ms(times: Mapping[tuple[str, str], PossibleTimes], name: str, node: str) -> float:
    return times[name, node].draw_ms()


def forecast_end(
    name: str, holder: Holder, offer: Resources, times: LearntTimes, now_ms: int
) -> Forecast | None:
    """Forecast when a task ends that holds a node of this offer; None if too little is known of its
    name.
    """
    learnt = times.enough_of(name, offer, MIN_LEARNT_RUNS)
    if learnt is None:
        return None
    dice = random.Random(holder.task)
    ran_ms = now_ms - holder.since_ms
    return _forecast(
        [holder.since_ms + PossibleTimes(learnt, dice).draw_ms(ran_ms) for _ in range(DRAWS)]
    )


def _forecast(moments: Sequence[float]) -> Forecast:
    """Return the moments that 5, 50 and 95 of 100 draws do not exceed."""
    ordered = sorted(moments)
    return Forecast(*(round(ordered[ceil(part * len(ordered)) - 1]) for part in (0.05, 0.5, 0.95)))


def _copy(rooms: Mapping[str, _Room]) -> dict[str, _Room]:
    return {name: replace(room, left=dict(room.left)) for name, room in rooms.items()}


def _play(
    task: WaitingTasks,
    ahead: Sequence[WaitingTasks],
    rooms: dict[str, _Room],
    ends: list[_End],
    now_ms: float,
    run_ms: Callable[[str, str], float | None],
) -> float | None:
    """Play what waits and what ends until the task starts; return when it does, None if it never
    does.

    Whenever room comes free on a node, it goes to the first task in the order that it is enough
    for. rooms and ends are used up. run_ms: how long a task of a name runs on a node, None for
    ever.
    """
    able = [frozenset(node.name for node in waiting.nodes) for waiting in (*ahead, task)]
    queue = sorted(
        (waiting.orders[0], kind, 0) for kind, waiting in enumerate(ahead) if waiting.orders
    )
    heapq.heapify(ends)
    number = len(ends)
    changed = [*rooms]
    while True:
        for name in changed:
            room = rooms[name]
            position = 0
            while position < len(queue):
                _, kind, first = queue[position]
                waiting = ahead[kind]
                amounts = room.holds(waiting.needs) if name in able[kind] else None
                if amounts is None:
                    position += 1
                    continue
                room.change(waiting.needs.slots, amounts, -1)
                took_ms = run_ms(waiting.name, name)
                if took_ms is not None:
                    number += 1
                    holder = Holder(name, "", amounts, waiting.needs.slots)
                    heapq.heappush(ends, (now_ms + took_ms, number, holder))
                del queue[position]
                if first + 1 < len(waiting.orders):
                    insort(queue, (waiting.orders[first + 1], kind, first + 1))
            if name in able[-1] and room.holds(task.needs) is not None:
                return now_ms
        if not ends:
            return None
        end_ms, _, ended = heapq.heappop(ends)
        now_ms = max(now_ms, end_ms)
        rooms[ended.node].change(ended.slots, ended.resources, 1)
        changed = [ended.node]
