"""The explanation of one task, submitted or only planned.

The explanation says what keeps each node from the task, which tasks hold what is short, and when
the task may start.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import AccessDenied
from ..model.account_views import goes_first_by_use
from ..model.explanation import Choice, Explanation, Forecast, Holding, NodeClass, Outlook
from ..model.human import clock_text
from ..model.ids import encode_id, readable
from ..model.kind import Kind, split_kind
from ..model.needs import Resources, are_needs
from ..model.order import ORDERS_OF_PRIORITY, PATIENCE_MS, order_of
from ..model.status import TaskStatus
from ..model.task import FINAL, TaskState
from ..model.used_share import shares_held, shares_of_work
from ..placement.account_reasons import account_shown
from ..placement.facts import Holder, NodeFacts
from ..placement.forecast import (
    MOST_AHEAD,
    WaitingTasks,
    forecast_end,
    forecast_start,
    has_room_now,
)
from ..placement.now import classify
from ..placement.reasons import find_fitting, room_on
from ..placement.remedies import can_hold, find_remedies
from ..store.reads.accounts import read_account_lines
from ..store.reads.demand import read_lines
from ..store.reads.live_nodes import open_amounts
from ..store.reads.schedulers import look_for_cluster
from ..store.reads.times import read_times
from ..store.store import Store
from .tenancy import read_noted_shares
from .waiting import ClusterReading

MOST_FORECAST_NODES: Final = 100
"""Maximum number of nodes whose holders are read for a forecast."""

MOST_HOLDERS: Final = 20
"""Maximum number of holders that an explanation names."""

MOST_FORECAST_HOLDERS: Final = 5 * MOST_HOLDERS
"""Maximum number of holders whose ends are forecast; the first to end are named."""

MOST_RIVALS: Final = 10
"""Maximum number of kinds before a task on its nodes; beyond, there is no forecast."""

NOT_COUNTED: Final = (
    "the tasks before it are not counted: their kinds and the nodes are too many to compare"
)


def explain_task(store: Store, id: str) -> Explanation:
    """Explain a task by its encoded id, with the cluster as it is now. Raises ServerUnreachable."""
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
    last = record.line.options.get("last", "") if record.line else ""
    return _Explainer(store).explain(task, order, last)


def explain_plan(
    store: Store,
    name: str,
    needs: Resources,
    priority: int,
    strategy: str = "",
    tenant: str = "",
    limits: str = "",
    prefer: str = "",
) -> Explanation:
    """Explain what would happen to a task that is submitted now. Raises ServerUnreachable."""
    times = dict.fromkeys(("submitted", "ready"))
    task = TaskStatus(
        "",
        TaskState.WAITING,
        name,
        needs=needs.text,
        priority=priority,
        strategy=strategy,
        times=times,
        tenant=tenant,
        limits=limits,
        prefer=prefer,
    )
    explainer = _Explainer(store)
    return explainer.explain(task, order_of(priority, 100 * (explainer.now_ms + PATIENCE_MS)))


def choices_of(store: Store, ids: Sequence[str]) -> list[Choice | None]:
    """Return why each task has its place; None if no scheduler noted a reason.

    Costs one round trip, none without ids.
    """
    entries = [
        (store.keys.queue(kind, store.keys.shard_of(id)), id)
        for id in ids
        for kind in ("choices", "choices_1")
    ]
    texts = store.pipe([("hget", key, id) for key, id in entries]) if entries else []
    choices = [Choice.of(readable(text)) if text else None for text in texts]
    return [newer or older for newer, older in zip(choices[::2], choices[1::2], strict=True)]


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
        *who,
        outlook,
        why,
        task.priority,
        task.node,
        history=task.history,
        choice=choice,
        tenant=task.tenant,
        limits=task.limits,
        prefer=task.prefer,
    )


class _Explainer:
    """Explains tasks from one reading of the cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._times = read_times(store)
        self._reading = ClusterReading(store, times=self._times)
        self.now_ms = self._reading.now_ms
        self._names: dict[str, str] = {}  # id -> name of the tasks that hold slots

    def explain(self, task: TaskStatus, order: int, last: str = "") -> Explanation:
        """Explain a waiting task. last: the node that the task avoids, '' for none."""
        reading = self._reading
        now_ms = self._reading.now_ms
        why = reading.why(task)
        if not are_needs(task.needs):
            return Explanation(
                task.id, task.name, task.needs, Outlook.NEVER, why, task.priority, now_ms=now_ms
            )
        needs = reading.settled(task.needs)
        facts = reading.facts(split_kind(task.kind))
        classes = classify(needs, facts)
        able = not classes or can_hold(classes[0])
        by_name = {node.name: node for node in facts}
        nearest_first = [
            by_name[name]
            for node_class in classes
            if can_hold(node_class)
            for name in node_class.nodes
        ]
        open_now = [node for node in nearest_first if node.open_to_task]
        waiting = WaitingTasks(task.name, needs, open_now)
        open_nodes = {node.name for node in waiting.nodes}
        position = self._position(order, nearest_first)
        before, overtaking = position or ([], 0)
        alike = sum(count for _, kind, count in before if kind.needs == task.needs)
        if overtaking:
            go_first = "1 task goes" if overtaking == 1 else f"{overtaking:,} tasks go"
            why += f"; {go_first} first only by a higher priority than {task.priority}"
        if turn := self._first_by_use(task):
            why += f"; {turn}"
        start: Forecast | str = NOT_COUNTED if able else "no node could hold it"
        if able and position is not None:
            start = self._forecast(waiting, before, task)
        ready_ms = task.times.get("ready") or 0
        if isinstance(start, Forecast):
            start = start.not_before(ready_ms)
        outlook = Outlook.WAITS if able else Outlook.NEVER
        if (fault := reading.fault_of(task)) is not None:
            start = fault.why
        elif (block := reading.accounts.block_of(task.kind)) is not None:
            start = f"{account_shown(block.account)} keeps it waiting"
        elif start == Forecast(now_ms, now_ms, now_ms):
            outlook = Outlook.NOW
        nearest = classes[0].nodes[0] if classes else ""
        holders: tuple[Holding, ...] = ()
        if nearest in open_nodes and outlook is Outlook.WAITS:
            holders = self._named_holders(self._holders_of([nearest]))
        forecast = start if isinstance(start, Forecast) else None
        candidates = None
        if classes and not classes[0].obstacles:
            from ..placement.ranked_nodes import rank_for  # numpy is slow to import

            counts = reading.accounts.held_by_keys(task.kind)
            with_room = classes[0].nodes
            candidates = rank_for(task, last, needs, facts, with_room, self._times, counts)
            best = candidates.nodes[0].node
            why = why.replace(room_on(classes[0].nodes[0]), room_on(best))
        return Explanation(
            task.id,
            task.name,
            task.needs,
            outlook,
            why,
            task.priority,
            classes=tuple(classes),
            nearest=nearest,
            holders=holders,
            ahead=None if position is None else sum(count for _, _, count in before),
            ahead_alike=None if position is None else alike,
            now_ms=now_ms,
            start=forecast,
            no_forecast="" if isinstance(start, Forecast) else start,
            remedies=self._remedies(task, needs, classes, by_name),
            history=task.history,
            tenant=task.tenant,
            limits=task.limits,
            prefer=task.prefer,
            candidates=candidates,
        )

    def _first_by_use(self, task: TaskStatus) -> str:
        """Return which tenant goes first because it has used less; '' for none.

        Nothing is read for a task without a tenant, or for a policy without a half-life.
        """
        accounts = self._reading.accounts
        if not task.tenant or accounts.block_of(task.kind) is not None:
            return ""
        try:
            policy = accounts.policy
        except AccessDenied:  # a login of an earlier version
            return ""
        if not policy.longest_half_life_s:
            return ""
        lines = read_account_lines(self._store)
        waiting = {split_kind(kind).tenant for _, kind, _ in read_lines(self._store)}
        shares = shares_held(lines, *open_amounts(self._reading.states.values()))
        noted = read_noted_shares(self._store, policy)
        shares = shares_of_work(shares, noted.work(policy))
        used = noted.at(self.now_ms, policy)
        return goes_first_by_use(policy, task.tenant, waiting, lines, shares, used)

    def _remedies(
        self,
        task: TaskStatus,
        needs: Resources,
        classes: Sequence[NodeClass],
        nodes: Mapping[str, NodeFacts],
    ) -> tuple[str, ...]:
        """Return what would let a task run.

        Each remedy is enough once the tasks before the task are gone.
        """
        fault = self._reading.fault_of(task)
        is_due = (task.times.get("ready") or 0) <= self._reading.now_ms
        firsts = [node_class.nodes[0] for node_class in classes[:MOST_FORECAST_NODES] if is_due]
        held_slots = Counter[str]()
        for holder in self._reading.holders_of(firsts):
            held_slots[holder.node] += holder.slots
        remedies = (
            find_remedies(task.name, needs, classes[:MOST_FORECAST_NODES], nodes, held_slots)
            if is_due
            else ()
        )
        if fault is None:
            return remedies
        return tuple(f"{fault.repair}, and {remedy}" for remedy in remedies) or (fault.repair,)

    def _position(
        self, order: int, nodes: Sequence[NodeFacts]
    ) -> tuple[list[tuple[str, Kind, int]], int] | None:
        """Return the waiting tasks before a task, and how many go first only by their priority.

        The waiting tasks are (key, kind, count) by kind and shard. Only tasks count that could be
        placed on one of `nodes`, the nodes that fit the task. A task goes first only by its
        priority if it should start later. Returns None if the count costs too much.
        """
        lines = [
            (shard, split_kind(kind), line)
            for shard, kind, line in read_lines(self._store)
            if line.first < order
        ]
        rivals = self._reading.competing({kind for _, kind, _ in lines}, nodes)
        if rivals is None:
            return None
        priority, start_by = divmod(order, ORDERS_OF_PRIORITY)
        before: list[tuple[str, Kind]] = []
        counts_before: list[tuple[Any, ...]] = []
        counts_later: list[tuple[Any, ...]] = []
        for shard, kind, line in lines:
            if kind not in rivals:
                continue
            key = self._store.keys.pending(kind.text, shard)
            before.append((key, kind))
            counts_before.append(("zcount", key, "-inf", f"({order}"))
            counts_later += [
                ("zcount", key, f"({first + start_by}", f"({first + ORDERS_OF_PRIORITY}")
                for higher in range(line.first // ORDERS_OF_PRIORITY, priority)
                for first in [higher * ORDERS_OF_PRIORITY]
            ]
        counts = self._store.pipe([*counts_before, *counts_later]) if counts_before else []
        counted = [
            (key, kind, count) for (key, kind), count in zip(before, counts, strict=False) if count
        ]
        return counted, sum(counts[len(before) :])

    def _forecast(
        self, waiting: WaitingTasks, before: Sequence[tuple[str, Kind, int]], task: TaskStatus
    ) -> Forecast | str:
        """Forecast when a task starts, at a bounded cost. A text says why there is no forecast."""
        now_ms = self._reading.now_ms
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
        forecast_nodes = [*names][:MOST_FORECAST_NODES]
        holders = self._holders_of(forecast_nodes)
        if has_room_now(waiting, ahead, holders, forecast_nodes):
            return Forecast(now_ms, now_ms, now_ms)
        if len(names) > MOST_FORECAST_NODES:
            return f"it or the tasks before it may go to more than {MOST_FORECAST_NODES} nodes"
        if len(holders) > MOST_AHEAD:
            return f"more than {MOST_AHEAD:,} tasks hold its nodes"
        return forecast_start(waiting, ahead, holders, self._times, now_ms, task.id or task.name)

    def _rivals(self, kind: Kind, queues: Sequence[tuple[str, int]]) -> WaitingTasks:
        """Return the first tasks of a kind.

        queues: (key, count) for each shard: the kind's key, and how many of its tasks to read.
        """
        replies = self._store.pipe(
            [("zrange", key, 0, count - 1, False, True) for key, count in queues]
        )
        needs = self._reading.settled(kind.needs)
        facts = find_fitting(needs, self._reading.facts(kind))
        nodes = [node for node in facts if node.open_to_task]
        return WaitingTasks(
            kind.name, needs, nodes, sorted(order for reply in replies for _, order in reply)
        )

    def _holders_of(self, nodes: Sequence[str]) -> list[tuple[Holder, str]]:
        """Return the tasks that hold slots of the nodes, as (holder, name of its task)."""
        holders = self._reading.holders_of(nodes)
        ids = [encode_id(holder.task) for holder in holders if holder.task not in self._names]
        tasks = self._store.statuses(ids) if ids else []
        self._names |= {task.id: task.name for task in tasks}
        return [(holder, self._names.get(holder.task, "")) for holder in holders]

    def _named_holders(self, holders: Sequence[tuple[Holder, str]]) -> tuple[Holding, ...]:
        """Return the running holders for people. The holder that likely ends first comes first."""
        holdings: list[Holding] = []
        running = [(holder, name) for holder, name in holders if not holder.ended]
        running.sort(key=lambda task: task[0].since_ms)
        for holder, name in running[:MOST_FORECAST_HOLDERS]:
            offer = self._reading.states[holder.node].node.offer
            until = forecast_end(name, holder, offer, self._times, self._reading.now_ms)
            holdings.append(Holding(holder.node, holder.task, name, holder.since_ms, until))
        holdings.sort(
            key=lambda holding: (
                holding.until is None,
                holding.until.p50_ms if holding.until else 0,
                holding.since_ms,
                holding.task,
            )
        )
        return tuple(holdings[:MOST_HOLDERS])
