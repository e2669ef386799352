"""Find what is damaged in the keys of a cluster, and rebuild it from what is left; docs/keys.md has
what from what.

The leader does it bit by bit (scheduler/leader/damage.py), `parsync doctor repair` at once. A dry
run only finds. Every function raises what `Runner.run` raises.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis.exceptions import ResponseError

from ...errors import DamagedState, InvalidInput
from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ..reads.tasks import GENERATIONS
from ..reads.views import partitions_of
from ..scripts.calls import Call
from ..scripts.calls.repair import Damage, QueueCounts
from ..server.server_errors import AWAY
from ..store import Store
from .lost_leases import now_ms, places_in, put_back_leases, runs_by_leases
from .repair import keep, repair_keys, repair_task
from .soundness import is_sound

INDEXES: Final = ("later", "dead", "taken", "running")
OTHERS: Final = ("outbox", "expires", "shapes", "feasible", "names", "apps", "events", *GENERATIONS)
"""Keys of a shard that are deleted if they have another type, besides those that `repair_queue`
looks at.
"""
SHARED: Final = (
    "schedulers",
    "leader",
    "dealt",
    "quarantine",
    "losses",
    "times",
    "bookings",
    "streaks",
    "events",
)
MESSAGES: Final = 20
"""So many messages are looked at in one call: each may have two million bytes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something damaged: where (the key, and behind a space its field), what is wrong, and what was
    done about it.
    """

    where: str
    what: str
    done: str


@dataclass(frozen=True, slots=True)
class Repairer:
    """Finds damage and repairs it, or with `dry` only finds it. tell: is told of each finding."""

    store: Store
    partitions: int
    tell: Callable[[Finding], object]
    dry: bool = False

    def repair_numbers(self, levels: Sequence[int]) -> list[QueueCounts | None]:
        """Repair the numbers of all shards, and delete keys that have another type; None for a
        shard that is away.

        levels: for each shard a number of submissions that there has been, see
        `RepairCalls.repair_queue`.
        """
        store = self.store
        shards = range(self.store.keys.shards)
        self._discard(
            [
                *map(store.keys.shared, SHARED),
                *(key for name in OTHERS for key in store.keys.queues(name)),
            ]
        )
        answers = store.run_each(
            [store.commands.repair_queue(shard, levels[shard], self.dry) for shard in shards]
        )
        found: list[QueueCounts | None] = []
        for answer in answers:
            if isinstance(answer, Exception) and not (store.several and isinstance(answer, AWAY)):
                raise answer
            found.append(answer if isinstance(answer, QueueCounts) else None)
        for shard, counts in enumerate(found):
            if counts is not None and counts.damage:
                self._told(counts.damage)
                if not self.dry:
                    keep(
                        store,
                        [
                            one
                            for one in counts.damage
                            if level_lost(store, shard, levels[shard], one) is None
                        ],
                    )
        return found

    def repair_partition(self, p: int) -> None:
        """Repair a partition: leases that are lost are put back before slots become free."""
        store = self.store
        commands = self.store.commands
        self._discard([store.keys.partition(p, "events")])
        damaged = store.run(commands.repair_partition(p, "look"))
        if damaged and not self.dry:
            keep(store, store.run(commands.repair_partition(p, "shut")))
            if places := places_in(store, p):
                put_back_leases(
                    store, places, runs_by_leases(store, self.partitions, now_ms(store))
                )
            keep(store, store.run(commands.repair_partition(p, "open")))
        self._told(damaged)

    def check_partition(self, p: int, rest: Callable[[], None]) -> None:
        """Look at a partition piece by piece, so that no call is long, and repair it if a piece is
        not sound.

        rest: called after each piece.
        """
        if not is_sound(self.store, p, rest):
            self.repair_partition(p)
        else:
            self._discard([self.store.keys.partition(p, "events")])

    def look_over(
        self, shard: int, what: Sequence[str | bytes], cursor: int = 0, most: int = MAX_BATCH
    ) -> "Seen":
        """Look at some tasks or entries of a shard, and repair those that contradict the rest; see
        `Seen`.
        """
        store = self.store
        answers = store.run_all(
            [store.commands.look_over(shard, one, cursor, most) for one in what]
        )
        suspects = [suspect for looked in answers for suspect in looked.suspects]
        if suspects:
            self._repair_tasks(shard, suspects)
        return Seen(
            answers[-1].cursor,
            sum(looked.looked for looked in answers),
            max(a.highest for a in answers),
        )

    def look_over_all(self, shard: int, most: int = MAX_BATCH) -> Iterator["Seen"]:
        """Look at all of a shard, step by step.

        Entries of indexes come first: they tell of tasks without a line.
        """
        kinds = self.kinds(shard)
        for at in range(0, len(kinds), 50):
            yield self.look_over(
                shard, [b"pending " + kind for kind in kinds[at : at + 50]], most=most
            )
        for kind in kinds:
            yield from self._whole(shard, b"pending " + kind, most, skip=True)
        for what in (*INDEXES, "tasks", "messages", *GENERATIONS):
            yield from self._whole(shard, what, MESSAGES if what == "messages" else most)

    def kinds(self, shard: int) -> list[bytes]:
        """Return the kinds of which tasks wait in a shard, or waited lately."""
        client: Any = self.store.client
        lines = client.hscan_iter(self.store.keys.queue("kinds", shard), count=MAX_BATCH)
        known = client.zscan_iter(self.store.keys.queue("changed", shard), count=MAX_BATCH)
        return list(dict.fromkeys([*(kind for kind, _ in lines), *(kind for kind, _ in known)]))

    def _whole(
        self, shard: int, what: str | bytes, most: int, skip: bool = False
    ) -> Iterator["Seen"]:
        """Look at a whole index.

        skip: its first entries were looked at; go on only if there are more than those.
        """
        if skip and self._size(shard, cast(bytes, what)) <= most:
            return
        cursor = 0
        while True:
            looks = self.look_over(shard, [what], cursor, most)
            yield looks
            if not (cursor := looks.cursor):
                return

    def _size(self, shard: int, what: bytes) -> int:
        key = self.store.keys.prefix("pending:", shard).encode() + what.removeprefix(b"pending ")
        return int(cast(Any, self.store.client).zcard(key))

    def _repair_tasks(self, shard: int, suspects: Sequence[tuple[bytes, bytes]]) -> None:
        store = self.store
        runs = dict[str, str]()
        if not self.dry:
            runs = runs_by_leases(store, self.partitions, now_ms(store))
        for id, kind in suspects:
            where = store.keys.queue("kinds" if not id else "tasks", shard)
            if self.dry:
                done = ""
            elif not id:
                done = (
                    "made anew" if store.run(store.commands.repair_kind(kind, shard)) else "sound"
                )
            else:
                try:
                    done = repair_task(store, id, kind, shard, runs.get(readable(id), ""))
                # an id that no call takes: the others are repaired all the same
                except InvalidInput as error:
                    self.tell(
                        Finding(
                            f"{where} {readable(id):.100}",
                            str(error),
                            "left: delete it with redis-cli",
                        )
                    )
                    continue
            if done != "sound":
                what = "its record and the indexes of the queue contradict each other"
                named = readable(id or kind)
                self.tell(
                    Finding(f"{where} {named}", what, f"it is {done} now" if id and done else done)
                )

    def _discard(self, keys: Sequence[str]) -> None:
        """Delete those of these keys that have another type."""
        for key, kind in zip(
            keys, self.store.pipe_each([("type", key) for key in keys]), strict=True
        ):
            wrong = (
                ""
                if isinstance(kind, Exception)
                else self.store.keys.wrong_type(key, readable(kind))
            )
            if wrong and (self.dry or repair_keys(self.store, [key])):
                self.tell(Finding(key, wrong, "" if self.dry else "deleted"))

    def _told(self, damaged: Sequence[Damage]) -> None:
        for key, field, data in damaged:
            what = (
                f"not what the other keys say: {readable(data)!r:.100}" if field else readable(data)
            )
            done = "" if self.dry else "made anew" if field else "deleted, and made anew"
            self.tell(Finding(f"{key} {field}".rstrip(), what.removeprefix("PSRECORD "), done))


def level_lost(store: Store, shard: int, level: int, damage: Damage) -> int | None:
    """Return the number of submissions that a repaired value was, if it is smaller than `level`,
    else None.

    Scripts wrote that number: it is no damage. The server has lost later writes.
    """
    key, field, data = damage
    text = data.replace(b"missing", b"0")
    if (
        (key, field) != (store.keys.queue("meta", shard), "submitted")
        or not text.isdigit()
        or len(text) > 15
    ):
        return None
    return int(text) if int(text) < level else None


@dataclass(frozen=True, slots=True)
class Seen:
    """Where the next look begins, 0 at the end; how many entries were looked at; the largest LIFE
    that was seen.
    """

    cursor: int
    count: int
    highest: int


class _Onlooker(Store):
    """A store that repairs nothing: a call that meets damage fails."""

    def _repair(self, call: Call[Any], told: str) -> bool:
        return False


def repair_all(store: Store, dry: bool = False) -> list[Finding]:
    """Find all that is damaged in a cluster, and repair it unless `dry`. Returns what was found.

    A shard whose server is away is left out. A dry run cannot look into what another type of key
    hides.
    """
    found: list[Finding] = []
    if dry:
        looker = _Onlooker(store.client, store.keys.cluster)
        looker.keys = store.keys
        looker.commands = store.commands
        store = looker
    repairer = Repairer(store, partitions_of(store.config()), found.append, dry)
    levels = [0] * store.keys.shards
    for shard, counts in enumerate(repairer.repair_numbers(levels)):
        if counts is not None:
            try:
                highest = max((looks.highest for looks in repairer.look_over_all(shard)), default=0)
                levels[shard] = highest if highest > counts.submitted else 0
            except (DamagedState, ResponseError) as error:
                if not dry:
                    raise
                found.append(
                    Finding(
                        store.keys.queue("tasks", shard), f"it cannot be looked at: {error}", ""
                    )
                )
    if any(levels):
        repairer.repair_numbers(levels)
    for p in range(repairer.partitions):
        repairer.repair_partition(p)
    return found
