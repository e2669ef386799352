"""Forecasts when a waiting task starts, from what its nodes hold and how long such tasks run.

People read a range, not one moment: run times of one name may differ a thousandfold, and their mean
promises too much. So the queue and the nodes are played until the task starts, many times, each
time with other run times that the learnt ones allow. The leader's bookings need one moment, and
only for nodes without a queue: `expected_start_ms`.
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
"""No forecast is made for a task that has more tasks before it."""

DRAWS: Final = 100
"""Maximum number of times that the queue is played."""

LEAST_DRAWS: Final = 40
"""Minimum number of times that the queue is played."""

MOST_PLAYED: Final = 20_000
"""Approximate maximum of tasks played in all draws.

The more tasks wait ahead, the fewer draws are made.
"""


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """A task that holds a node, and when the task is expected to end (server time).

    until_ms: None if nobody knows the end.
    """

    holder: Holder
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class WaitingTasks:
    """A task that waits, or the tasks of one kind before it.

    nodes: open nodes that could hold these tasks.
    orders: the tasks' orders in the queue, ascending; () for the task itself.
    """

    name: str
    needs: Resources
    nodes: Sequence[NodeFacts]
    orders: Sequence[float] = ()


@dataclass(slots=True)
class _Room:
    """The room on a node: the number of free slots, and the amounts left, in thousandths."""

    free: int
    amounts_left: dict[str, int]

    def holds(self, needs: Resources) -> dict[str, int] | None:
        """Return the amounts that a task would hold here; None if there is no room."""
        return hold(self.amounts_left, needs.amounts) if self.free >= needs.slots else None

    def change(self, slots: int, amounts: Mapping[str, int], sign: int) -> None:
        """Put slots and amounts back (sign 1), or take them (-1)."""
        self.free += sign * slots
        for name, amount in amounts.items():
            if name in self.amounts_left or undeclared(name):
                self.amounts_left[name] = (
                    self.amounts_left.get(name, undeclared(name)) + sign * amount
                )


_End = tuple[float, int, Holder]
"""The end of a task (server time, ms), a number that breaks ties, and what the task holds."""


def _rooms(nodes: Iterable[NodeFacts], holders: Iterable[Holder]) -> dict[str, _Room]:
    """Return what each node has left of what it can give now, computed from its holders.

    The free slots in a node's facts were read at another moment, so a task that ended in between
    would be in neither.
    """
    rooms = {node.name: _Room(node.given.slots, dict(node.given.amounts)) for node in nodes}
    for holder in holders:
        if holder.node in rooms:
            rooms[holder.node].change(holder.slots, holder.resources, -1)
    return rooms


def expected_start_ms(
    needs: Resources, nodes: Sequence[NodeFacts], ends_of_tasks: Sequence[ExpectedEnd], now_ms: int
) -> int | None:
    """Return when the first of these nodes is expected to have room (server time); None if unknown.

    nodes: those that could hold the task.
    ends_of_tasks: all tasks on them, read at one moment of each node.
    """
    rooms = _rooms(nodes, (task.holder for task in ends_of_tasks))
    ends: list[_End] = [
        (max(task.until_ms, now_ms), number, task.holder)
        for number, task in enumerate(ends_of_tasks)
        if task.until_ms is not None and task.holder.node in rooms
    ]
    start_ms = _play(
        WaitingTasks("", needs, nodes), (), rooms, ends, now_ms, lambda name, node: None
    )
    return None if start_ms is None else int(start_ms)


def has_room_now(
    task: WaitingTasks,
    ahead: Sequence[WaitingTasks],
    holders: Sequence[tuple[Holder, str]],
    nodes: Sequence[str],
) -> bool:
    """Return whether a node of `nodes` has room for a task beside all that goes before it.

    holders: the tasks on the nodes, each with its task's name.
    """
    nodes_by_name = {node.name: node for waiting in (*ahead, task) for node in waiting.nodes}
    rooms = _rooms([nodes_by_name[name] for name in nodes], (holder for holder, _ in holders))
    return _play(task, ahead, rooms, [], 0, lambda name, node: None) is not None


def forecast_start(
    task: WaitingTasks,
    ahead: Sequence[WaitingTasks],
    holders: Sequence[tuple[Holder, str]],
    times: LearntTimes,
    now_ms: int,
    seed: str,
) -> Forecast | str:
    """Forecast when a task starts; a text that says why this is not known, if it is not.

    The forecast counts on no further submission that goes before the task.

    ahead: the tasks before it, by kind.
    holders: all tasks on the nodes of `task` and `ahead`, each with its name, read at one moment of
        each node.
    times: must have as many runs of each name as tasks of that name are ahead, else a rare long run
        among them would never have been seen.
    seed: the same seed gives the same forecast, so that a page that is loaded again says the same.
    """
    if not task.nodes:
        return "no node that could hold it takes new tasks"
    nodes = {node.name: node for waiting in (*ahead, task) for node in waiting.nodes}
    if any(holder.ended and holder.node in nodes for holder, _ in holders):
        return "slots of a task that has ended are not free yet"
    rooms = _rooms(nodes.values(), (holder for holder, _ in holders))
    number = sum(len(waiting.orders) for waiting in ahead)
    names_on_nodes = {(name, holder.node) for holder, name in holders if holder.node in nodes}
    names_on_nodes |= {(waiting.name, node.name) for waiting in ahead for node in waiting.nodes}
    runs = Counter[str]()
    for waiting in ahead:
        runs[waiting.name] += len(waiting.orders)
    least = {
        name: max(MIN_LEARNT_RUNS, min(runs[name], HALVE_ABOVE // 4)) for name, _ in names_on_nodes
    }
    learnt = {
        (name, node): times.enough_of(name, nodes[node].offer, least[name])
        for name, node in names_on_nodes
    }
    if rare_names := sorted(
        {name for (name, _), learnt_times in learnt.items() if learnt_times is None}
    ):
        also = f", and too few of {len(rare_names) - 1} more names" if len(rare_names) > 1 else ""
        rare_name = rare_names[0] or "a task that holds a node"
        return f"fewer than {least[rare_names[0]]} runs of {rare_name} are known{also}"
    starts: list[float] = []
    dice = random.Random(seed)
    for _ in range(max(LEAST_DRAWS, min(DRAWS, MOST_PLAYED // (number + len(holders) + 1)))):
        drawn = {
            id(learnt_times): PossibleTimes(learnt_times, dice)
            for learnt_times in learnt.values()
            if learnt_times is not None
        }
        times_of = {key: drawn[id(learnt_times)] for key, learnt_times in learnt.items()}
        ends: list[_End] = []
        for tie_breaker, (holder, name) in enumerate(holders):
            if holder.node in nodes:
                ran_ms = now_ms - holder.since_ms
                end_ms = holder.since_ms + times_of[name, holder.node].draw_ms(ran_ms)
                ends.append((end_ms, tie_breaker, holder))
        start_ms = _play(task, ahead, _copy(rooms), ends, now_ms, partial(_draw_ms, times_of))
        if start_ms is None:
            return "the tasks that are known do not leave it enough room"
        starts.append(start_ms)
    return _forecast(starts)


def _draw_ms(times: Mapping[tuple[str, str], PossibleTimes], name: str, node: str) -> float:
    """Return a run time of a task of this name on this node."""
    return times[name, node].draw_ms()


def forecast_end(
    name: str, holder: Holder, offer: Resources, times: LearntTimes, now_ms: int
) -> Forecast | None:
    """Forecast when a task that holds a node of this offer ends.

    Returns None if too little is known of the task's name.
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
    """Return a copy that can be changed."""
    return {
        name: replace(room, amounts_left=dict(room.amounts_left)) for name, room in rooms.items()
    }


def _play(
    task: WaitingTasks,
    ahead: Sequence[WaitingTasks],
    rooms: dict[str, _Room],
    ends: list[_End],
    now_ms: float,
    run_ms: Callable[[str, str], float | None],
) -> float | None:
    """Return when the task starts if all that waits and ends is played until then; None for never.

    Room that comes free on a node goes to the first task in the queue that fits. The function
    changes `rooms` and `ends`. run_ms: how long a task of a name runs on a node; None for ever.
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
