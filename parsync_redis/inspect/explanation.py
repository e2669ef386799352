"""Explain one task, or one that is only planned: what keeps each node, who holds what is short, when it may start."""

from collections.abc import Sequence
from typing import Final

from ..model.amount import shown_amount
from ..model.explanation import Choice, Explanation, Forecast, Holding, NodeClass, Outlook
from ..model.ids import encode_id, readable
from ..model.kind import Kind, split_kind
from ..model.needs import Resources, are_needs
from ..model.status import TaskStatus
from ..model.task import FINAL, WAITING, TaskState
from ..placement.classes import classify
from ..placement.facts import Holder, NodeFacts
from ..placement.fits import fits
from ..placement.forecast import MOST_AHEAD, WaitingTasks, forecast_end, forecast_start, has_room_now
from ..placement.now import clock_text
from ..placement.reasons import find_fitting
from ..store.demand import read_lines
from ..store.store import Store
from ..store.times import read_times
from .waiting import Looker

MOST_NODES: Final = 100
"""Nodes whose holders are read for a forecast."""

MOST_HOLDERS: Final = 20
"""Holders that an explanation names."""

MOST_RIVALS: Final = 10
"""Kinds that may come before a task on its nodes, for a forecast."""

MOST_COMPARED: Final = 20_000
"""Kinds times nodes that are compared for a forecast."""

LAST: Final = 10**12 - 1
"""The order of the last task of a priority."""


def explain_task(store: Store, id: str) -> Explanation:
    """Explain a task by its encoded id, as the cluster is now. Raises ServerUnreachable."""
    (record,) = store.records([id])
    task = TaskStatus.of(record)
    if task.state is TaskState.GONE:
        why = task.why or "it was never submitted, or its record has expired"
        return Explanation(task.id, "", "", Outlook.GONE, why)
    if task.phase != WAITING:
        return _explain_placed(task, choices_of(store, [id])[0])
    order = record.line.order if record.line else 0
    return _Explainer(store).explain(task, order)


def explain_plan(store: Store, name: str, needs: Resources, priority: int, strategy: str = "") -> Explanation:
    """Explain what would become of a task if it were submitted now. Raises ServerUnreachable."""
    times = dict.fromkeys(("submitted", "ready"))
    task = TaskStatus("", TaskState.PENDING, name, needs=needs.text, priority=priority, strategy=strategy, times=times)
    return _Explainer(store).explain(task, (9 - priority) * 10**12 + LAST)


def choices_of(store: Store, ids: Sequence[str]) -> list[Choice | None]:
    """Return why each task has its place, if a scheduler noted it; one round trip, none without ids."""
    asked = [(store.keys.queue(kind, store.keys.shard_of(id)), id) for id in ids for kind in ("choices", "choices_1")]
    texts = store.pipe([("hget", key, id) for key, id in asked]) if asked else []
    found = [Choice.of(readable(text)) if text else None for text in texts]
    return [newer or older for newer, older in zip(found[::2], found[1::2], strict=True)]


def _explain_placed(task: TaskStatus, choice: Choice | None) -> Explanation:
    outlook = Outlook.ENDED if task.state in FINAL else Outlook.PLACED
    where = f"{task.node}/{task.slot}" if task.node else "no node"
    since_ms = task.times.get("started") or task.times["placed"] or 0
    if outlook is Outlook.PLACED:
        why = f"it is {task.phase} on {where} since {clock_text(since_ms)}"
    else:
        ran = f"; it ran on {where}" if task.node else ""
        why = f"it is {task.phase}{ran}" + (f": {task.why}" if task.why else "")
    who = (task.id, task.name, task.needs)
    return Explanation(*who, outlook, why, task.priority, task.node, history=task.history, choice=choice)


class _Explainer:
    """The cluster as it was read at one moment."""

    def __init__(self, store: Store) -> None:
        self._store, self._looker = store, Looker(store)
        self._times = read_times(store)
        self._names: dict[str, str] = {}  # of the tasks that hold something, by id

    def explain(self, task: TaskStatus, order: int) -> Explanation:
        looker, now_ms = self._looker, self._looker.now_ms
        why = looker.why(task)
        if not are_needs(task.needs):
            return Explanation(task.id, task.name, task.needs, Outlook.NEVER, why, task.priority, now_ms=now_ms)
        needs = looker.settled(task.needs)
        facts = looker.facts(task.name, task.needs)
        classes = classify(needs, facts)
        able = not classes or _can(classes[0])
        by_name = {node.name: node for node in facts}
        nearest_first = [by_name[name] for some in classes if _can(some) for name in some.nodes]
        waiting = WaitingTasks(task.name, needs, [node for node in nearest_first if node.open and not node.booked])
        open_nodes = {node.name for node in waiting.nodes}
        before = self._before(order)
        alike = sum(count for _, kind, count in before if kind.needs == task.needs)
        start: Forecast | str = self._forecast(waiting, before, task) if able else "no node could hold it"
        ready_ms = task.times.get("ready") or 0
        if isinstance(start, Forecast):
            start = start.not_before(ready_ms)
        outlook = Outlook.WAITS if able else Outlook.NEVER
        if looker.no_scheduler:
            start = "no scheduler runs"
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
            holders=self._named(self._held([nearest])) if nearest in open_nodes and outlook is Outlook.WAITS else (),
            ahead=sum(count for _, _, count in before),
            ahead_alike=alike,
            now_ms=now_ms,
            start=start if isinstance(start, Forecast) else None,
            no_forecast="" if isinstance(start, Forecast) else start,
            remedies=_remedies(classes, looker.no_scheduler),
            history=task.history,
        )

    def _before(self, order: int) -> list[tuple[str, Kind, int]]:
        """Return the waiting tasks with a smaller order: the key of each kind in each shard, the kind, how many."""
        found = [(shard, kind) for shard, kind, line in read_lines(self._store) if line.first < order]
        keys = [self._store.keys.pending(kind, shard) for shard, kind in found]
        counts = self._store.pipe([("zcount", key, "-inf", f"({order}") for key in keys]) if keys else []
        return [
            (key, split_kind(kind), count) for key, (_, kind), count in zip(keys, found, counts, strict=True) if count
        ]

    def _forecast(
        self, waiting: WaitingTasks, before: Sequence[tuple[str, Kind, int]], task: TaskStatus
    ) -> Forecast | str:
        """Forecast when a task starts; a text if that is not known, and why. What one forecast costs has bounds."""
        now_ms = self._looker.now_ms
        near = waiting.nodes[:MOST_NODES]
        if len(before) * len(near) > MOST_COMPARED:
            return f"tasks of {len(before):,} kinds wait before it"
        rivals: dict[Kind, list[tuple[str, int]]] = {}
        number = 0
        for key, kind, count in before:
            if kind in rivals or (are_needs(kind.needs) and self._could_use(kind, near)):
                rivals.setdefault(kind, []).append((key, count))
                number += count
                if number > MOST_AHEAD:
                    return f"more than {MOST_AHEAD:,} tasks wait before it"
                if len(rivals) > MOST_RIVALS:
                    return f"tasks of more than {MOST_RIVALS} kinds wait before it"
        ahead = [self._rivals(kind, queues) for kind, queues in rivals.items()]
        names = dict.fromkeys(node.name for tasks in (waiting, *ahead) for node in tasks.nodes)
        held = self._held([*names][:MOST_NODES])
        if has_room_now(waiting, ahead, held, [*names][:MOST_NODES]):
            return Forecast(now_ms, now_ms, now_ms)
        if len(names) > MOST_NODES:
            return f"it or the tasks before it may go to more than {MOST_NODES} nodes"
        return forecast_start(waiting, ahead, held, self._times, now_ms, task.id or task.name)

    def _rivals(self, kind: Kind, queues: Sequence[tuple[str, int]]) -> WaitingTasks:
        """Return the first tasks of a kind. queues: its key in each shard, and how many tasks of it count."""
        replies = self._store.pipe([("zrange", key, 0, count - 1, False, True) for key, count in queues])
        needs = self._looker.settled(kind.needs)
        facts = find_fitting(needs, self._looker.facts(kind.name, kind.needs))
        nodes = [node for node in facts if node.open and not node.booked]
        return WaitingTasks(kind.name, needs, nodes, sorted(order for reply in replies for _, order in reply))

    def _could_use(self, kind: Kind, nodes: Sequence[NodeFacts]) -> bool:
        """Return whether a task of a kind could be placed on one of these nodes."""
        needs = self._looker.settled(kind.needs)
        return any(fits(node.offer, needs) for node in nodes)

    def _held(self, nodes: Sequence[str]) -> list[tuple[Holder, str]]:
        """Return what holds some nodes, each with its task's name."""
        holders = self._looker.holders_of(nodes)
        ids = [encode_id(holder.task) for holder in holders if holder.task not in self._names]
        self._names |= {task.id: task.name for task in (self._store.statuses(ids) if ids else [])}
        return [(holder, self._names.get(holder.task, "")) for holder in holders]

    def _named(self, held: Sequence[tuple[Holder, str]]) -> tuple[Holding, ...]:
        """Return some holders for people, the one that is likely to end first in front."""
        found: list[Holding] = []
        for holder, name in held:
            offer = self._looker.states[holder.node].node.offer
            until = forecast_end(name, holder, offer, self._times, self._looker.now_ms)
            found.append(Holding(holder.node, holder.task, name, holder.since_ms, until))
        found.sort(key=lambda one: (one.until is None, one.until.p50_ms if one.until else 0, one.since_ms, one.task))
        return tuple(found[:MOST_HOLDERS])


def _can(some: NodeClass) -> bool:
    """Return True if the nodes of a class could hold the task when they are empty."""
    return not any(obstacle.static for obstacle in some.obstacles)


def _remedies(classes: Sequence[NodeClass], no_scheduler: str) -> tuple[str, ...]:
    """Return what would let a task run: commands, or nodes to start, by the classes that lack least."""
    found = [no_scheduler] if no_scheduler else []
    if not classes:
        return (*found, "start a worker of the app with --parsync")
    nearest = classes[0]
    if not nearest.obstacles:
        return tuple(found)
    if not _can(nearest):
        lacks = ", ".join(o.why.removeprefix("lacks ") for o in nearest.obstacles if o.static)
        return (*found, f"start a node that has it, or ask for less: {nearest.nodes[0]} lacks {lacks}")
    for some in classes:
        for obstacle in some.obstacles if _can(some) else ():
            if obstacle.what in ("drained", "suspect"):
                found.append(f"parsync undrain {some.nodes[0]}")
            elif obstacle.what == "down":
                found.append(f"start the worker of node {some.nodes[0]} again")
            elif obstacle.rule == "free slots":
                found.append(f"{obstacle.short:g} more free slot{'s' if obstacle.short > 1 else ''} on {some.nodes[0]}")
            elif obstacle.rule == "free devices":
                found.append(f"{obstacle.short:g} more {obstacle.what} with enough left on {some.nodes[0]}")
            elif obstacle.rule == "free resources":
                more = shown_amount(round(obstacle.short * 1000))
                found.append(f"{more} more of {obstacle.what} free on {some.nodes[0]}")
    return tuple(dict.fromkeys(found))
