"""The duty to cancel expired tasks, and the duty to compare the index of kinds with their queues.

Only damage makes index and queues differ. The reads are not atomic, so a difference is a suspicion;
the scripts judge it again.
"""

from typing import Any, Final, cast

from redis.exceptions import ResponseError

from ...model.account import is_account_change
from ...model.ids import readable
from ...model.kind import Kind, KindLine
from ...model.limits import MAX_BATCH
from ...model.task import StoredState
from ...store.reads.tasks import GENERATIONS
from ...store.repair.repair import repair_keys, repair_task
from ...store.server.server_errors import is_damage
from ...store.store import Store
from ..process.guarded import guarded, unless_away


def expire(store: Store) -> None:
    """Cancel tasks that wait past their expiry, and forget tasks that ended long ago.

    A pass cancels some thousands; `take` judges the tasks that it takes as well. First the keys of
    the wrong type that workers write are repaired, because the workers' ACL has no DEL.
    """
    for shard in range(store.keys.shards):
        with unless_away(store):
            repair_keys(
                store,
                [
                    store.keys.queue(name, shard)
                    for name in ("dead", "names", "apps", "choices", "choices_1", *GENERATIONS)
                ],
            )
    for _ in range(10):
        ended: list[str] = []
        with unless_away(store):  # the tasks of other shards expire meanwhile
            ended = store.run(store.commands.expire())
        if len(ended) < MAX_BATCH:
            break
    store.run(store.commands.rotate())


KINDS_PER_PASS: Final = 200
"""Approximate number of kinds looked at in a pass, in `kinds` and in `changed` each."""


class KindDuty:
    """The kinds that have a line, and those whose line has changed.

    Each pass looks at some hundreds, in one shard.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shard = 0
        self._cursors = [0, 0]

    def work(self) -> None:
        """Look at the next kinds of a shard; after its last kind the next shard follows."""
        looked = False
        with unless_away(self._store):
            self._look()
            looked = True
        if not (looked and any(self._cursors)):
            self._shard = (self._shard + 1) % self._store.keys.shards
            self._cursors = [0, 0]

    def _look(self) -> None:
        """Repair the two keys of the present shard; compare its next kinds with their queues."""
        store = self._store
        client = cast(Any, self._store.client)
        kinds, changed = (store.keys.queue(name, self._shard) for name in ("kinds", "changed"))
        repair_keys(store, [kinds, changed])
        self._cursors[0], lines = client.hscan(kinds, self._cursors[0], count=KINDS_PER_PASS)
        self._cursors[1], versions = client.zscan(changed, self._cursors[1], count=KINDS_PER_PASS)
        # bytes, because a damaged name may be no text
        changed_kinds = [name for name, _ in versions if not is_account_change(name)]
        names = list(dict.fromkeys([*lines, *changed_kinds]))
        for start in range(0, len(names), KINDS_PER_PASS):
            self._compare(names[start : start + KINDS_PER_PASS])

    def _compare(self, kinds: list[bytes]) -> None:
        """Repair the kinds whose line does not agree with their queue, and misplaced tasks."""
        store = self._store
        keys = self._store.keys
        shard = self._shard
        prefix = keys.prefix("pending:", shard).encode()
        pipe: Any
        with store.client.pipeline(transaction=False) as pipe:
            for kind in kinds:
                pipe.hget(keys.queue("kinds", shard), kind)
                pipe.zscore(keys.queue("changed", shard), kind)
                pipe.zcard(prefix + kind)
                pipe.zrange(prefix + kind, 0, 0, False, True)
            pipe.hget(keys.queue("meta", shard), "version")
            *replies, current = pipe.execute(raise_on_error=False)
        latest = int(current or 0) if not isinstance(current, Exception) else 0
        firsts: dict[bytes, str] = {}
        columns = (replies[offset::4] for offset in range(4))
        for kind, line, version, count, first in zip(kinds, *columns, strict=True):
            if isinstance(count, Exception):
                if not isinstance(count, ResponseError) or not is_damage(count):
                    raise count
                guarded(
                    store, "repair_keys", repair_keys, store, [keys.pending(readable(kind), shard)]
                )
                count = 0
                first = []
            if count:
                firsts[kind] = readable(first[0][0]) if first else ""
            is_known = version is not None and version <= latest
            is_wrong = version is not None and version > latest
            order = first[0][1] if first else 0.0
            if is_wrong or not _agree(line, is_known, count, order):
                guarded(store, "repair_kind", store.run, store.commands.repair_kind(kind, shard))
        self._judge_firsts(firsts)

    def _judge_firsts(self, firsts: dict[bytes, str]) -> None:
        """Repair the first task of a kind, if it does not wait or nobody can take the kind."""
        store = self._store
        states = store.states(list(firsts.values()))
        for (kind, id), state in zip(firsts.items(), states, strict=True):
            if state != StoredState.PENDING or not _is_kind(kind):
                guarded(store, "repair_task", repair_task, store, id, kind, self._shard)


def _agree(line: bytes | None, is_known: bool, count: int, first: float) -> bool:
    """Return whether a kind's line has its queue's count, and the order of its first task.

    is_known: the version at which the line changed is not above the present version.
    """
    if not line or not count or not is_known:
        return not line and not count
    try:
        kind_line = KindLine.of(readable(line))
    except ValueError:
        return False
    return (kind_line.count, kind_line.first) == (count, first)


def _is_kind(raw: bytes) -> bool:
    """Return whether a text is a kind."""
    try:
        Kind.of(readable(raw))
    except ValueError:
        return False
    return True
