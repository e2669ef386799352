"""Compare the index of kinds with the queues of the kinds, and repair what differs: only damage
makes them differ.

The reads are not atomic, so what differs is a suspicion; the scripts judge it again.
"""

from typing import Any, Final, cast

from redis.exceptions import ResponseError

from ...model.ids import readable
from ...model.kind import Kind, KindLine
from ...model.limits import MAX_BATCH
from ...model.task import StoredState
from ...store.reads.tasks import GENERATIONS
from ...store.repair.repair import repair_keys, repair_task
from ...store.server.server_errors import is_damage
from ...store.store import Store
from ..process.guarded import guarded, unless_away

# Cancel tasks that wait past their expiry, and forget those that ended long ago.


def expire(store: Store) -> None:
    """Cancel what waits past its expiry, up to some thousands a pass; take judges the tasks that it
    takes as well.

    Repairs first the keys of the wrong type that workers write: their ACL has no DEL.
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
        with unless_away(store):  # the other shards expire theirs
            ended = store.run(store.commands.expire())
        if len(ended) < MAX_BATCH:
            break
    store.run(store.commands.rotate())


LOOKED_AT: Final = 200
"""About so many kinds are looked at in a pass, of `kinds` and of `changed` each."""


class KindDuty:
    """The kinds with a line, and those whose line changed once; each pass looks at some hundreds of
    a shard.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shard = 0
        self._cursors = [0, 0]

    def work(self) -> None:
        """Look at the next kinds of a shard; the next pass looks at the next shard, or goes on
        where this one ends.
        """
        looked = False
        with unless_away(self._store):
            self._look()
            looked = True
        if not (looked and any(self._cursors)):
            self._shard = (self._shard + 1) % self._store.keys.shards
            self._cursors = [0, 0]

    def _look(self) -> None:
        store = self._store
        client = cast(Any, self._store.client)
        kinds, changed = (store.keys.queue(name, self._shard) for name in ("kinds", "changed"))
        repair_keys(store, [kinds, changed])
        self._cursors[0], lines = client.hscan(kinds, self._cursors[0], count=LOOKED_AT)
        self._cursors[1], known = client.zscan(changed, self._cursors[1], count=LOOKED_AT)
        # bytes: a damaged one may be no text
        names = list(dict.fromkeys([*lines, *(name for name, _ in known)]))
        for at in range(0, len(names), LOOKED_AT):
            self._compare(names[at : at + LOOKED_AT])

    def _compare(self, kinds: list[bytes]) -> None:
        """Repair those of these kinds whose line is not what their queue says, and tasks that do
        not wait there.
        """
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
        for kind, line, version, count, first in zip(
            kinds, *(replies[at::4] for at in range(4)), strict=True
        ):
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
            known = version is not None and version <= latest
            if (version is not None and not known) or not _agree(
                line, known, count, first[0][1] if first else 0.0
            ):
                guarded(store, "repair_kind", store.run, store.commands.repair_kind(kind, shard))
        self._judge_firsts(firsts)

    def _judge_firsts(self, firsts: dict[bytes, str]) -> None:
        """Repair the first task of a kind if it does not wait, or if its kind is none, so that
        nobody would take it.
        """
        store = self._store
        states = store.states(list(firsts.values()))
        for (kind, id), state in zip(firsts.items(), states, strict=True):
            if state != StoredState.PENDING or not _is_kind(kind):
                guarded(store, "repair_task", repair_task, store, id, kind, self._shard)


def _agree(line: bytes | None, known: bool, count: int, first: float) -> bool:
    """Return whether a kind's line is what its queue says: nothing, or how many wait, and the order
    of the first.

    known: the version at which the line changed is one that there was.
    """
    if not line or not count or not known:
        return not line and not count
    try:
        found = KindLine.of(readable(line))
    except ValueError:
        return False
    return (found.count, found.first) == (count, first)


def _is_kind(raw: bytes) -> bool:
    try:
        Kind.of(readable(raw))
    except ValueError:
        return False
    return True
