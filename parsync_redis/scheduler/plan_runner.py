"""Carry out a plan: one round trip of calls, whose replies go back to the core; and what is read beside them."""

from collections.abc import Callable
from typing import Any, Final, cast

from redis.exceptions import ResponseError

from ..model.apps import KnownTasks
from ..model.ids import readable
from ..model.node import read_nodes
from ..model.replies import Judged, Snapshot, Took
from ..store.calls import Call
from ..store.quarantine import quarantine
from ..store.repair import repair_partition
from ..store.server_errors import is_damage
from ..store.store import Store
from .core import CHANGES, Core
from .plan import Plan

MEANWHILE_S: Final = 0.005
"""The least time until delayed tasks that fall due are taken, so that one take covers all that fall due until then."""


class PlanRunner:
    """Carries out the plans of one core. due_s: when the next delayed task is due, on the scheduler's clock."""

    def __init__(self, store: Store, core: Core) -> None:
        self._store, self._core = store, core
        self.due_s = float("inf")

    def carry_out(self, plan: Plan, clock: Callable[[], float]) -> None:
        """Carry out a plan. `clock` is asked after the replies have come. Raises what `Runner.run_all` raises."""
        if plan.read_nodes:
            self._read_nodes(plan.read_nodes)
        replies = self._store.run_all(self._calls(plan))
        now_s = clock()
        for reply in replies:
            if isinstance(reply, Judged):
                self._core.on_judged(reply)
            elif isinstance(reply, Snapshot):
                self._core.on_snapshot(reply, now_s)
                if reply.damaged:
                    repair_partition(self._store, reply.partition)
            elif isinstance(reply, Took):
                self._on_took(reply, now_s)

    def _calls(self, plan: Plan) -> list[Call[Any]]:
        commands, core, calls = self._store.commands, self._core, list[Call[Any]]()
        if plan.confirm:
            calls.append(commands.confirm(plan.confirm))
        if plan.reasons:
            calls.append(commands.set_reason(plan.reasons))
        if plan.give_back:
            calls.append(commands.give_back(core.name, plan.give_back))
        calls += [commands.commit(p, claims) for p, claims in plan.commit.items()]
        for p in plan.read:
            waiter = core.name if p in plan.ask else ""
            calls.append(commands.read_partition(p, core.view.partitions[p].version, waiter))
        if plan.look:
            salt = f".{core.rng.integers(10**6)}"
            calls.append(commands.take(core.name, plan.take, plan.since, CHANGES, salt, plan.waits))
        return calls

    def _on_took(self, took: Took, now_s: float) -> None:
        self._core.on_took(took)
        self.due_s = float("inf")
        if took.due_ms is not None:
            self.due_s = now_s + max(MEANWHILE_S, (took.due_ms - took.now_ms) / 1000)
        for task, why in took.failed:
            quarantine(self._store, f"{self._store.keys.queue('tasks')} {task}", why, b"")

    def _read_nodes(self, partitions: list[int]) -> None:
        """Read each epoch before its nodes, so that the nodes are never older than the epoch says.

        Records that cannot be read are left out, and repaired.
        """
        keys = self._store.keys
        with self._store.client.pipeline(transaction=False) as pipe:
            for p in partitions:
                pipe.hget(keys.partition(p, "meta"), "epoch")
                pipe.hgetall(keys.partition(p, "nodes"))
            replies = pipe.execute(raise_on_error=False)
        for error in replies:
            if isinstance(error, Exception) and not is_damage(error):
                raise error
        for i, p in enumerate(partitions):
            epoch, records = replies[2 * i : 2 * i + 2]
            nodes, damaged = read_nodes(records if isinstance(records, dict) else {})
            if damaged or isinstance(epoch, Exception) or isinstance(records, Exception):
                repair_partition(self._store, p)
            self._core.on_nodes(p, nodes.values(), _number(epoch))
        self.read_names()

    def read_names(self) -> None:
        """Read the task names of digests that are new to this scheduler, once each."""
        if unread := sorted(self._core.view.unread()):
            try:
                texts = cast(list[bytes | None], self._store.client.hmget(self._store.keys.queue("names"), unread))
            except ResponseError as error:
                if not is_damage(error):
                    raise
                return  # the leader deletes the key, and the nodes register their names again
            for digest, text in zip(unread, texts, strict=True):
                if text is not None:
                    self._core.on_names(digest, KnownTasks(readable(text)).declared)


def _number(value: Any) -> int:
    """Return a number as Redis has it; 0 if it is none."""
    return int(value) if isinstance(value, bytes) and value.isdigit() and len(value) < 16 else 0
