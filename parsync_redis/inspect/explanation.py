"""Explain one task, or one that is only planned: what keeps each node, who holds what is short,
when it may start.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import AccessDenied
from ..model.explanation import Choice, Explanation, Forecast, Holding, NodeClass, Outlook
from ..model.ids import encode_id, readable
from ..model.kind import Kind, split_kind
from ..model.needs import Resources, are_needs
from ..model.status import TaskStatus
from ..model.task import FINAL, TaskState
from ..placement.classes import classify
from ..placement.facts import Holder, NodeFacts
from ..placement.forecast import (
    MOST_AHEAD,
    WaitingTasks,
    forecast_end,
    forecast_start,
    has_room_now,
)
from ..placement.now import clock_text
from ..placement.reasons import find_fitting
from ..placement.remedies import can_hold, find_remedies
from ..store.reads.demand import read_lines
from ..store.reads.schedulers import look_for_cluster
from ..store.reads.times import read_times
from ..store.store import Store
from .waiting import Looker

MOST_NODES: Final = 100
"""Nodes whose holders are read for a forecast."""

MOST_HOLDERS: Final = 20
"""Holders that an explanation names."""

MOST_JUDGED: Final = 5 * MOST_HOLDERS
"""Holders whose ends are forecast, to find those that end first."""

MOST_RIVALS: Final = 10
"""Kinds that may come before a task on its nodes, for a forecast."""

NOT_COUNTED: Final = (
    "the tasks before it are not counted: their kinds and the nodes are too many to compare"
)

_BLOCK: Final = 10**12
"""An order is (9 - priority) times this, and the submission's number."""

LAST: Final = _BLOCK - 1
"""The order of the last task of a priority."""


def explain_task(store: Store, id: str) -> Explanation:
    """Explain a task by its encoded id, as the cluster is now. Raises ServerUnreachable."""
    (record,) = store.records([id])
    task = TaskStatus.of(record)
    if task.state is TaskState.GONE:
        why = task.why or str(
            look_for_cluster(store) or "it was never submitted, or its record has expired"
        )
        return Explanation(task.id, "", "", Outlook.GONE, why)
    if task.state is not TaskState.WAITING:
        return _explain_placed(task, choices_of(store, [id])[0])
    order = record.line.order if record.line else 0
    return _Explainer(store).explain(task, order)


def explain_plan(
    store: Store, name: str, needs: Resources, priority: int, strategy: str = ""
) -> Explanation:
    """Explain what would become of a task if it were submitted now. Raises ServerUnreachable."""
    times = dict.fromkeys(("submitted", "ready"))
    task = TaskStatus(
        "",
        TaskState.WAITING,
        name,
        needs=needs.text,
        priority=priority,
        strategy=strategy,
        times=times,
    )
    return _Explainer(store).explain(task, (9 - priority) * _BLOCK + LAST)


def choices_of(store: Store, ids: Sequence[str]) -> list[Choice | None]:
    """Return why each task has its place, if a scheduler noted it; one round trip, none without
    ids.
    """
    asked = [
        (store.keys.queue(kind, store.keys.shard_of(id)), id)
        for id in ids
        for kind in ("choices", "choices_1")
    ]
    texts = store.pipe([("hget", key, id) for key, id in asked]) if asked else []
    found = [Choice.of(readable(text)) if text else None for text in texts]
    return [newer or older for newer, older in zip(found[::2], found[1::2], strict=True)]


def _explain_placed(task: TaskStatus, choice: Choice | None) -> Explanation:
    outlook = Outlook.ENDED if task.state in FINAL else Outlook.PLACED
    where = f"{task.node}/{task.slot}" if task.node else "no node"
    since_ms = task.times.get("started") or task.times["placed"] or 0
    if outlook is Outlook.PLACED:
        why = f"it is {task.state} on {where} since {clock_text(since_ms)}"
    else:
        ran = f"; it ran on {where}" if task.node else ""
        why = f"it is {task.state}{ran}" + (f": {task.why}" if task.why else "")
    who = (task.id, task.name, task.needs)
    return Explanation(
        *who, outlook, why, task.priority, task.node, history=task.history, choice=choice
    )


class _Explainer:
    """The cluster as it was read at one moment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looker = Looker(store)
        self._times = read_times(store)
        self._names: dict[str, str] = {}  # of the tasks that hold something, by id

    def explain(self, task: TaskStatus, order: int) -> Explanation:
        looker = self._looker
        now_ms = self._looker.now_ms
        why = looker.why(task)
        if not are_needs(task.needs):
            return Explanation(
                task.id, task.name, task.needs, Outlook.NEVER, why, task.priority, now_ms=now_ms
            )
        needs = looker.settled(task.needs)
        facts = looker.facts(task.name, task.needs)
        classes = classify(needs, facts)
        able = not classes or can_hold(classes[0])
        by_name = {node.name: node for node in facts}
        nearest_first = [by_name[name] for some in classes if can_hold(some) for name in some.nodes]
        open_now = [
            node for node in nearest_first if node.open and not (node.booked or node.held_back)
        ]
        waiting = WaitingTasks(task.name, needs, open_now)
        open_nodes = {node.name for node in waiting.nodes}
        position = self._position(order, nearest_first)
        before, overtaking = position or ([], 0)
        alike = sum(count for _, kind, count in before if kind.needs == task.needs)
        if overtaking:
            go_first = "1 task goes" if overtaking == 1 else f"{overtaking:,} tasks go"
            why += f"; {go_first} first that came later, by a higher priority than {task.priority}"
        start: Forecast | str = NOT_COUNTED if able else "no node could hold it"
        if able and position is not None:
            start = self._forecast(waiting, before, task)
        ready_ms = task.times.get("ready") or 0
        if isinstance(start, Forecast):
            start = start.not_before(ready_ms)
        outlook = Outlook.WAITS if able else Outlook.NEVER
        if (fault := looker.fault_of(task)) is not None:
            start = fault.why
        elif start == Forecast(now_ms, now_ms, now_ms):
            outlook = Outlook.NOW
        nearest = classes[0].nodes[0] if classes else ""
        return Explanation(
            task.id,
            task.name,
            task.needs,
            outlook,
            why,
            task.priority,
            classes=tuple(classes),
            nearest=nearest,
            holders=self._named(self._held([nearest]))
            if nearest in open_nodes and outlook is Outlook.WAITS
            else (),
            ahead=None if position is None else sum(count for _, _, count in before),
            ahead_alike=None if position is None else alike,
            now_ms=now_ms,
            start=start if isinstance(start, Forecast) else None,
            no_forecast="" if isinstance(start, Forecast) else start,
            remedies=self._remedies(task, needs, classes, by_name),
            history=task.history,
        )

    def _remedies(
        self,
        task: TaskStatus,
        needs: Resources,
        classes: Sequence[NodeClass],
        nodes: Mapping[str, NodeFacts],
    ) -> tuple[str, ...]:
        """Return what would let a task run: each act is enough once the tasks before it
        have gone.
        """
        fault = self._looker.fault_of(task)
        is_due = (task.times.get("ready") or 0) <= self._looker.now_ms
        firsts = [node_class.nodes[0] for node_class in classes[:MOST_NODES] if is_due]
        held_slots = Counter[str]()
        for holder in self._looker.holders_of(firsts):
            held_slots[holder.node] += holder.slots
        remedies = (
            find_remedies(task.name, needs, classes[:MOST_NODES], nodes, held_slots)
            if is_due
            else ()
        )
        if fault is None:
            return remedies
        return tuple(f"{fault.repair}, and {remedy}" for remedy in remedies) or (fault.repair,)

    def _position(
        self, order: int, nodes: Sequence[NodeFacts]
    ) -> tuple[list[tuple[str, Kind, int]], int] | None:
        """Return the waiting tasks that come before a task, and how many of them came later than
        it.

        The first: by kind and shard, the key, the kind, and how many. Only tasks count that could
        be placed on one of the nodes that fit the task. Those that came later have a higher
        priority. None if that costs too much.
        """
        lines = [
            (shard, split_kind(kind), line)
            for shard, kind, line in read_lines(self._store)
            if line.first < order
        ]
        rivals = self._looker.competing({kind for _, kind, _ in lines}, nodes)
        if rivals is None:
            return None
        priority, number = divmod(order, _BLOCK)
        before: list[tuple[str, Kind]] = []
        of_before: list[tuple[Any, ...]] = []
        of_later: list[tuple[Any, ...]] = []
        for shard, kind, line in lines:
            if kind not in rivals:
                continue
            key = self._store.keys.pending(kind.text, shard)
            before.append((key, kind))
            of_before.append(("zcount", key, "-inf", f"({order}"))
            blocks = [block * _BLOCK for block in range(line.first // _BLOCK, priority)]
            of_later += [
                ("zcount", key, f"({block + number}", f"({block + _BLOCK}") for block in blocks
            ]
        counts = self._store.pipe([*of_before, *of_later]) if of_before else []
        counted = [
            (key, kind, count) for (key, kind), count in zip(before, counts, strict=False) if count
        ]
        return counted, sum(counts[len(before) :])

    def _forecast(
        self, waiting: WaitingTasks, before: Sequence[tuple[str, Kind, int]], task: TaskStatus
    ) -> Forecast | str:
        """Forecast when a task starts; a text if that is not known, and why.

        One forecast has bounds of cost.
        """
        now_ms = self._looker.now_ms
        rivals: dict[Kind, list[tuple[str, int]]] = {}
        number = 0
        for key, kind, count in before:
            rivals.setdefault(kind, []).append((key, count))
            number += count
            if number > MOST_AHEAD:
                return f"more than {MOST_AHEAD:,} tasks wait before it"
            if len(rivals) > MOST_RIVALS:
                return f"tasks of more than {MOST_RIVALS} kinds wait before it"
        try:
            ahead = [self._rivals(kind, queues) for kind, queues in rivals.items()]
        except AccessDenied:  # a client may not read which tasks wait
            return "this login may not read the tasks before it"
        names = dict.fromkeys(node.name for tasks in (waiting, *ahead) for node in tasks.nodes)
        holders = self._held([*names][:MOST_NODES])
        if has_room_now(waiting, ahead, holders, [*names][:MOST_NODES]):
            return Forecast(now_ms, now_ms, now_ms)
        if len(names) > MOST_NODES:
            return f"it or the tasks before it may go to more than {MOST_NODES} nodes"
        if len(holders) > MOST_AHEAD:
            return f"more than {MOST_AHEAD:,} tasks hold its nodes"
        return forecast_start(waiting, ahead, holders, self._times, now_ms, task.id or task.name)

    def _rivals(self, kind: Kind, queues: Sequence[tuple[str, int]]) -> WaitingTasks:
        """Return the first tasks of a kind.

        queues: its key in each shard, and how many tasks of it count.
        """
        replies = self._store.pipe(
            [("zrange", key, 0, count - 1, False, True) for key, count in queues]
        )
        needs = self._looker.settled(kind.needs)
        facts = find_fitting(needs, self._looker.facts(kind.name, kind.needs))
        nodes = [node for node in facts if node.open and not (node.booked or node.held_back)]
        return WaitingTasks(
            kind.name, needs, nodes, sorted(order for reply in replies for _, order in reply)
        )

    def _held(self, nodes: Sequence[str]) -> list[tuple[Holder, str]]:
        """Return what holds some nodes, each with its task's name."""
        holders = self._looker.holders_of(nodes)
        ids = [encode_id(holder.task) for holder in holders if holder.task not in self._names]
        self._names |= {task.id: task.name for task in (self._store.statuses(ids) if ids else [])}
        return [(holder, self._names.get(holder.task, "")) for holder in holders]

    def _named(self, held: Sequence[tuple[Holder, str]]) -> tuple[Holding, ...]:
        """Return some holders for people, the one that is likely to end first in front."""
        found: list[Holding] = []
        running = [(holder, name) for holder, name in held if not holder.ended]
        for holder, name in sorted(running, key=lambda task: task[0].since_ms)[:MOST_JUDGED]:
            offer = self._looker.states[holder.node].node.offer
            until = forecast_end(name, holder, offer, self._times, self._looker.now_ms)
            found.append(Holding(holder.node, holder.task, name, holder.since_ms, until))
        found.sort(
            key=lambda one: (
                one.until is None,
                one.until.p50_ms if one.until else 0,
                one.since_ms,
                one.task,
            )
        )
        return tuple(found[:MOST_HOLDERS])
