"""Explain one task, or one that is only planned: what keeps each node, who holds what is short, when it may start."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..model.explanation import Choice, Explanation, Holding, NodeClass, Outlook
from ..model.ids import encode_id, readable
from ..model.kind import Kind, split_kind
from ..model.needs import Resources, are_needs
from ..model.status import TaskStatus
from ..model.task import FINAL, WAITING, TaskState
from ..placement.classes import classify
from ..placement.facts import Holder, NodeFacts
from ..placement.forecast import Held, expected_start_ms
from ..placement.now import clock_text
from ..placement.remedies import can_hold, find_remedies
from ..store.demand import read_lines
from ..store.members import look_for_cluster
from ..store.store import Store
from ..store.times import read_times
from .waiting import Looker

MOST_NODES: Final = 100
"""Nodes whose holders are read for a forecast."""

MOST_HOLDERS: Final = 20
"""Holders that an explanation names."""

_BLOCK: Final = 10**12
"""An order is (9 - priority) times this, and the submission's number."""

LAST: Final = _BLOCK - 1
"""The order of the last task of a priority."""


def explain_task(store: Store, id: str) -> Explanation:
    """Explain a task by its encoded id, as the cluster is now. Raises ServerUnreachable."""
    (record,) = store.records([id])
    task = TaskStatus.of(record)
    if task.state is TaskState.GONE:
        why = task.why or str(look_for_cluster(store) or "it was never submitted, or its record has expired")
        return Explanation(task.id, "", "", Outlook.GONE, why)
    if task.phase != WAITING:
        return _explain_placed(task, choices_of(store, [id])[0])
    order = record.line.order if record.line else 0
    return _Explainer(store).explain(task, order)


def explain_plan(store: Store, name: str, needs: Resources, priority: int, strategy: str = "") -> Explanation:
    """Explain what would become of a task if it were submitted now. Raises ServerUnreachable."""
    times = dict.fromkeys(("submitted", "ready"))
    task = TaskStatus("", TaskState.PENDING, name, needs=needs.text, priority=priority, strategy=strategy, times=times)
    return _Explainer(store).explain(task, (9 - priority) * _BLOCK + LAST)


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
        able = not classes or can_hold(classes[0])
        by_name = {node.name: node for node in facts}
        nearest_first = [by_name[name] for some in classes if can_hold(some) for name in some.nodes]
        ahead, alike, overtaking = self._position(task.needs, order, nearest_first)
        if overtaking:
            go_first = "1 task goes" if overtaking == 1 else f"{overtaking:,} tasks go"
            why += f"; {go_first} first that came later, by a higher priority than {task.priority}"
        fitting = [node for node in nearest_first if node.open and not (node.booked or node.held)][:MOST_NODES]
        held = self._held([node.name for node in fitting])
        run_ms = self._mean_ms(task.name)
        begins_ms = max(now_ms, task.times.get("ready") or 0)
        expected_ms = expected_start_ms(needs, fitting, held, alike, run_ms, begins_ms)
        outlook = Outlook.WAITS if able else Outlook.NEVER
        if able and expected_ms == now_ms and looker.fault is None:
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
            holders=self._named([one for one in held if one.holder.node == nearest and outlook is Outlook.WAITS]),
            ahead=ahead,
            ahead_alike=alike,
            now_ms=now_ms,
            expected_ms=None if looker.fault else expected_ms,
            remedies=self._remedies(task, needs, classes, by_name),
            history=task.history,
        )

    def _remedies(
        self, task: TaskStatus, needs: Resources, classes: Sequence[NodeClass], nodes: Mapping[str, NodeFacts]
    ) -> tuple[str, ...]:
        """Return what would let a task run: commands and acts, each of them enough by itself."""
        fault = self._looker.fault
        is_due = (task.times.get("ready") or 0) <= self._looker.now_ms
        firsts = [node_class.nodes[0] for node_class in classes[:MOST_NODES] if is_due]
        held = Counter[str]()
        for holder in self._looker.holders_of(firsts):
            held[holder.node] += holder.slots
        remedies = find_remedies(task.name, needs, classes[:MOST_NODES], nodes, held) if is_due else ()
        if fault is None:
            return remedies
        return tuple(f"{fault.repair}, and {remedy}" for remedy in remedies) or (fault.repair,)

    def _position(self, needs: str, order: int, nodes: Sequence[NodeFacts]) -> tuple[int, int, int]:
        """Return how many waiting tasks come before one, how many of them have equal needs, how many came later.

        Only those count that could be placed on one of the nodes that fit the task. Those that came later have a higher
        priority.
        """
        lines = [(shard, split_kind(kind), line) for shard, kind, line in read_lines(self._store) if line.first < order]
        rivals = self._looker.competing({kind for _, kind, _ in lines}, nodes)
        priority, number = divmod(order, _BLOCK)
        before: list[Kind] = []
        of_before: list[tuple[Any, ...]] = []
        of_later: list[tuple[Any, ...]] = []
        for shard, kind, line in lines:
            if kind not in rivals:
                continue
            key = self._store.keys.pending(kind.text, shard)
            before.append(kind)
            of_before.append(("zcount", key, "-inf", f"({order}"))
            blocks = [block * _BLOCK for block in range(line.first // _BLOCK, priority)]
            of_later += [("zcount", key, f"({block + number}", f"({block + _BLOCK}") for block in blocks]
        counts = self._store.pipe([*of_before, *of_later]) if of_before else []
        alike = [count for kind, count in zip(before, counts, strict=False) if kind.needs == needs]
        return sum(counts[: len(before)]), sum(alike), sum(counts[len(before) :])

    def _held(self, nodes: Sequence[str]) -> list[Held]:
        """Return what holds some nodes, with the expected ends by the run times of its tasks' names."""
        holders = self._looker.holders_of(nodes)
        ids = [encode_id(holder.task) for holder in holders]
        self._names |= {task.id: task.name for task in (self._store.statuses(ids) if ids else [])}
        return [Held(holder, self._until_ms(holder)) for holder in holders]

    def _until_ms(self, holder: Holder) -> int | None:
        node = self._looker.states[holder.node].node
        times = self._times.of(self._names.get(holder.task, ""), node.offer)
        return times.end_ms(holder.since_ms, self._looker.now_ms) if times else None

    def _mean_ms(self, name: str) -> float | None:
        times = self._times.get(name)
        return times.mean_ms if times else None

    def _named(self, held: Sequence[Held]) -> tuple[Holding, ...]:
        """Return some holders for people, the one that ends first in front."""
        found = [
            Holding(one.node, one.task, self._names.get(one.task, ""), one.since_ms, until_ms)
            for one, until_ms in ((some.holder, some.until_ms) for some in held)
        ]
        found.sort(key=lambda one: (one.until_ms is None, one.until_ms or 0, one.since_ms, one.task))
        return tuple(found[:MOST_HOLDERS])
