"""The execution of a plan: one round trip of calls, whose replies go back to the core.

Nodes and task names are read beside the plan.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Final, cast

from ...errors import ParsyncError
from ...model.apps import KnownTasks
from ...model.ids import readable
from ...model.node import read_nodes
from ...model.replies import Judged, Snapshot, Took
from ...store.repair.quarantine import quarantine
from ...store.repair.repair import repair_partition
from ...store.scripts.calls import Call
from ...store.server.server_errors import AWAY, Backoff, is_damage
from ...store.store import Store
from ..core.core import MAX_KINDS_PER_LOOK, Core
from ..core.plan import Plan
from .guarded import run_apart

log = logging.getLogger("parsync.scheduler")

DELAYED_PAUSE_S: Final = 0.005
"""Minimum time until a due delayed task is taken, so that one take covers several tasks."""


@dataclass(slots=True)
class _Step:
    """A call of a plan.

    where: the partition or shard of the call, as 'p0' or 'q0'.
    failed: the function to call if the server of the call is away.
    """

    call: Call[Any]
    where: str
    failed: Callable[[], object]


class PlanRunner:
    """Carries out the plans of one core, except what they confirm (taken_tasks.py).

    If one of several servers is away, only its own steps fail. If the only server is away, the
    whole plan fails. doubtful: shards where a step failed, so that they may have tasks in `taken`
    for this scheduler that the core does not know.
    """

    def __init__(self, store: Store, core: Core) -> None:
        self._store = store
        self._core = core
        # by shard, when its next delayed task is due, on the scheduler's clock
        self._due_s: dict[int, float] = {}
        # by shard, the time of its server when the scheduler's clock was 0, at the earliest
        self._server_ms: dict[int, float] = {}
        self.doubtful: set[int] = set()
        self._answering: set[int] = set()
        # the partitions and shards whose servers are away
        self._failing: dict[str, ParsyncError] = {}
        self._trouble = Backoff(
            log, f"scheduler {core.name} goes on without some partitions and shards"
        )

    @property
    def due_s(self) -> float:
        """When the next delayed task or token of a rate is due (monotonic); inf if none is."""
        tokens_s = (
            (self._core.token_due_ms(shard) - server_ms) / 1000
            for shard, server_ms in self._server_ms.items()
        )
        return min(chain(self._due_s.values(), tokens_s), default=float("inf"))

    def take_answering(self) -> set[int]:
        """Return the shards that were doubtful and answer again, each once."""
        answering = self._answering
        self._answering = set()
        return answering

    def wake_if_due(self, now_s: float) -> None:
        """Look at the shards where a delayed task is due, or the token of a rate."""
        for shard in [shard for shard, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[shard]
            self._core.on_wake(shard)
        for shard, server_ms in self._server_ms.items():
            due_ms = self._core.token_due_ms(shard)
            if (due_ms - server_ms) / 1000 <= now_s:
                self._core.on_time(shard, max(due_ms, 1000 * now_s + server_ms))

    def carry_out(self, plan: Plan, clock: Callable[[], float]) -> None:
        """Carry out a plan. Raises what `Runner.run_all` raises.

        clock: is asked after the replies have come.
        """
        if plan.read_nodes or plan.check_nodes:
            self._read_nodes(plan.read_nodes, plan.check_nodes)
        steps = self._steps(plan)
        replies = run_apart(self._store, [step.call for step in steps])
        now_s = clock()
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, ParsyncError):
                self._failing[step.where] = reply
                step.failed()
                continue
            self._failing.pop(step.where, None)
            if isinstance(reply, Judged):
                self._core.on_judged(reply, now_s)
            elif isinstance(reply, Snapshot):
                self._core.on_snapshot(reply, now_s)
                if reply.damaged:
                    repair_partition(self._store, reply.partition, "shut")
            elif isinstance(reply, Took):
                self._on_took(reply, now_s)
        self._judge_failures()

    def _steps(self, plan: Plan) -> list[_Step]:
        """Return the calls of a plan, in order."""
        commands = self._store.commands
        core = self._core
        steps = list[_Step]()
        for shard, reasons in plan.reasons.items():
            forget = partial(core.queue.forget_reasons, shard)
            steps.append(_Step(commands.set_reason(reasons, shard), f"q{shard}", forget))
        notes = [(task, choice.text) for task, choice in plan.choices.items()]
        for shard, notes_of_shard in self._store.keys.by_shard(notes, itemgetter(0)):
            steps.append(
                _Step(commands.note_choices(notes_of_shard, shard), f"q{shard}", lambda: None)
            )
        given_back = [(task, attempt, how, "") for task, attempt, how in plan.give_back]
        for shard, rows in self._store.keys.by_shard(given_back, itemgetter(0)):
            steps.append(
                _Step(
                    commands.give_back(core.name, rows),
                    f"q{shard}",
                    partial(self.doubtful.add, shard),
                )
            )
        for p, claims in plan.commit.items():
            steps.append(
                _Step(commands.commit(p, claims), f"p{p}", partial(core.on_unread, p, claims))
            )
        for p, node, inc, why in plan.suspect:
            log.warning("node %s refuses claims, so it becomes suspect if it is up: %s", node, why)
            steps.append(
                _Step(commands.set_node(p, node, "suspect", inc, why), f"p{p}", lambda: None)
            )
        for p in plan.read:
            waiter = core.name if p in plan.ask else ""
            read = commands.read_partition(p, core.view.partitions[p].since, waiter)
            steps.append(_Step(read, f"p{p}", partial(core.on_unread, p)))
        for shard, look in plan.shard_looks.items():
            salt = f".{core.rng.integers(10**6)}"
            take = commands.take(
                core.name, look.take, look.since, MAX_KINDS_PER_LOOK, salt, look.waits, shard
            )
            steps.append(_Step(take, f"q{shard}", partial(self._on_untaken, shard)))
        return steps

    def _on_untaken(self, shard: int) -> None:
        """Note that a shard did not answer to a take."""
        self.doubtful.add(shard)
        self._core.on_untaken(shard)

    def _judge_failures(self) -> None:
        """Log which servers are away; raise an error that does not mean a server that is away."""
        for where, error in [*self._failing.items()]:
            if not isinstance(error, AWAY):
                del self._failing[where]
                raise error
        if self._failing:
            self._trouble.pause_s(next(iter(self._failing.values())))
        else:
            self._trouble.well()

    def _on_took(self, took: Took, now_s: float) -> None:
        """Feed the reply to a take to the core.

        Note delayed tasks, and tasks that could not be read.
        """
        self._core.on_took(took)
        if took.shard in self.doubtful:
            self.doubtful.discard(took.shard)
            self._answering.add(took.shard)
        self._due_s.pop(took.shard, None)
        self._server_ms[took.shard] = took.now_ms - 1000 * now_s
        if took.due_ms is not None:
            self._due_s[took.shard] = now_s + max(
                DELAYED_PAUSE_S, (took.due_ms - took.now_ms) / 1000
            )
        for task, why in took.failed:
            quarantine(
                self._store, f"{self._store.keys.queue('tasks', took.shard)} {task}", why, b""
            )

    def _read_nodes(self, due: list[int], to_check: list[int]) -> None:
        """Read the nodes of these partitions, each epoch before the nodes.

        So the nodes are at least as new as the epoch. Records that cannot be read are left out, and
        repaired.

        due, to_check: as `read_nodes` and `check_nodes` of a plan.
        """
        keys = self._store.keys
        partitions = [*due, *to_check]
        reads: list[tuple[Any, ...]] = []
        for p in partitions:
            reads.append(("hget", keys.partition(p, "meta"), "epoch"))
            reads.append(("hgetall", keys.partition(p, "nodes")))
        replies = self._store.pipe_each(reads)
        for error in replies:
            if (
                isinstance(error, Exception)
                and not is_damage(error)
                and not isinstance(error, AWAY)
            ):
                raise error
        for p, epoch, records in zip(partitions, replies[::2], replies[1::2], strict=True):
            if isinstance(epoch, AWAY) or isinstance(records, AWAY):
                continue  # the read of the partition, which comes next, is away too
            nodes, damaged = read_nodes(records if isinstance(records, dict) else {})
            if damaged or isinstance(epoch, Exception) or isinstance(records, Exception):
                repair_partition(self._store, p, "shut")
            take_in = self._core.on_nodes if p in due else self._core.on_nodes_again
            take_in(p, [*nodes.values()], _number(epoch))
        self.read_names()

    def read_anew(self, name: str) -> None:
        """Read all of a partition or shard ('p0', 'q0'), because another server has it now.

        The other server may have lost some writes.
        """
        core = self._core
        number = int(name[1:])
        if name.startswith("p"):
            core.on_unread(number)
        else:
            core.queue.clear_shard(number)
            core.on_wake(number)
            self.doubtful.add(number)  # tasks that were given back may be taken again there

    def read_names(self) -> None:
        """Read the task names of digests that are new to this scheduler, each once."""
        if unread := sorted(self._core.view.unread()):
            shards = [
                shard
                for shard in range(self._store.keys.shards)
                if shard not in self._core.queue.away
            ]
            key = self._store.keys.queue("names", shards[0] if shards else 0)
            (texts,) = self._store.pipe_each([("hmget", key, unread)])
            if isinstance(texts, Exception):
                if not is_damage(texts) and not isinstance(texts, AWAY):
                    raise texts
                return  # the leader deletes a damaged key, and the nodes register their names again
            for digest, text in zip(unread, cast(list[bytes | None], texts), strict=True):
                if text is not None:
                    self._core.on_names(digest, KnownTasks(readable(text)).declared)


def _number(value: Any) -> int:
    """Return a number as Redis has it; 0 for anything else."""
    return int(value) if isinstance(value, bytes) and value.isdigit() and len(value) < 16 else 0
