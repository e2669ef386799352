"""Find damage in all keys of a cluster, and rebuild the damaged keys from the others.

docs/keys.md says which key is rebuilt from which. The leader repairs bit by bit
(scheduler/leader/damage.py), `parsync doctor repair` repairs at once. A dry run only finds damage.
Every function raises what `Runner.run` raises.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis.exceptions import ResponseError

from ...errors import DamagedState, InvalidInput
from ...model.account import is_account_change
from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ..reads.tasks import GENERATIONS
from ..reads.views import partitions_of
from ..scripts.calls import Call
from ..scripts.calls.repair import Damage, QueueCounts
from ..server.server_errors import AWAY, is_damage
from ..store import Store
from .lost_leases import now_ms, places_in, put_back_leases, runs_by_leases
from .recount import Finding, Recounter, repair_shares
from .repair import keep, repair_keys, repair_task
from .soundness import is_sound

INDEXES_OF_QUEUE: Final = ("later", "dead", "taken", "running")
QUEUE_KEYS_WITH_TYPE: Final = (
    "outbox",
    "expires",
    "shapes",
    "feasible",
    "names",
    "apps",
    "accounts",
    "policy",
    "events",
    *GENERATIONS,
)
"""Keys of a shard that are deleted if they have another type.

`repair_queue` checks further keys.
"""
SHARED_KEYS_WITH_TYPE: Final = (
    "schedulers",
    "leader",
    "dealt",
    "quarantine",
    "losses",
    "times",
    "bookings",
    "streaks",
    "policy",
    "shares",
    "events",
)
KINDS_PER_ROUND_TRIP: Final = 5
"""Queues of kinds that are checked in a row: other clients wait some milliseconds for each."""
MESSAGES_PER_LOOK: Final = 20
"""Messages that one call checks: each may have two million bytes."""


@dataclass(frozen=True, slots=True)
class Repairer:
    """Finds damage, and repairs the damage unless `dry`.

    partitions: the number of partitions. tell: is called with each finding.
    """

    store: Store
    partitions: int
    tell: Callable[[Finding], object]
    dry: bool = False

    def repair_numbers(self, levels: Sequence[int]) -> list[QueueCounts | None]:
        """Repair the numbers of all shards, and delete keys that have another type.

        levels: for each shard, a number of submissions that it has had, see
        `RepairCalls.repair_queue`. Returns the counts of each shard, None for a shard that is away.
        """
        store = self.store
        shards = range(self.store.keys.shards)
        shared_keys = map(store.keys.shared, SHARED_KEYS_WITH_TYPE)
        queue_keys = (key for name in QUEUE_KEYS_WITH_TYPE for key in store.keys.queues(name))
        present = self._discard([*shared_keys, *queue_keys])
        if store.keys.shared("shares") in present:
            repair_shares(store, self.tell, self.dry)
        answers = store.run_each(
            [store.commands.repair_queue(shard, levels[shard], self.dry) for shard in shards]
        )
        counts_by_shard: list[QueueCounts | None] = []
        for answer in answers:
            if isinstance(answer, Exception) and not (store.several and isinstance(answer, AWAY)):
                raise answer
            counts_by_shard.append(answer if isinstance(answer, QueueCounts) else None)
        for shard, counts in enumerate(counts_by_shard):
            if counts is None or not counts.damage:
                continue
            self._report(counts.damage)
            if not self.dry:
                level = levels[shard]
                keep(
                    store, [d for d in counts.damage if level_lost(store, shard, level, d) is None]
                )
        return counts_by_shard

    def repair_partition(self, p: int) -> None:
        """Repair a partition: put back lost leases before slots become free."""
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
        self._report(damaged)

    def check_partition(self, p: int, pause: Callable[[], None]) -> None:
        """Check a partition piece by piece, and repair it if a piece is not sound.

        So no call is long. pause: is called after each piece.
        """
        if not is_sound(self.store, p, pause):
            self.repair_partition(p)
        else:
            self._discard([self.store.keys.partition(p, "events")])

    def look_over(
        self, shard: int, indexes: Sequence[str | bytes], cursor: int = 0, most: int = MAX_BATCH
    ) -> "ShardDamage":
        """Check some entries of a shard, and repair tasks that contradict other keys.

        indexes: see `RepairCalls.look_over`. A dry look reports a queue of another type and goes on
        with the other indexes. Other keys of another type are reported by `repair_numbers`.
        """
        store = self.store
        replies = []
        for index in indexes:
            call = store.commands.look_over(shard, index, cursor, most)
            try:
                replies.append(store.run(call))
            except DamagedState as error:
                if not self.dry:
                    raise
                self._report_queue(error)
        if not replies:
            return ShardDamage(0, 0, 0)
        suspects = [suspect for looked in replies for suspect in looked.suspects]
        if suspects:
            self._repair_tasks(shard, suspects)
        return ShardDamage(
            replies[-1].cursor,
            sum(looked.looked for looked in replies),
            max(a.highest for a in replies),
        )

    def look_over_all(
        self,
        shard: int,
        most: int = MAX_BATCH,
        more_kinds: Iterable[bytes] = (),
        messages: bool = True,
        more_accounts: Sequence[bytes] = (),
    ) -> Iterator["ShardDamage"]:
        """Check all entries of a shard, step by step.

        Entries of indexes come first, because they tell of tasks without a line. more_kinds: kinds
        that have a queue, which the index of kinds may not list. messages: check the messages, too.
        more_accounts: accounts with holders, which may have no line.
        """
        kinds = list(dict.fromkeys([*self.kinds(shard), *more_kinds]))
        for start in range(0, len(kinds), KINDS_PER_ROUND_TRIP):
            chunk = kinds[start : start + KINDS_PER_ROUND_TRIP]
            yield self.look_over(shard, [b"pending " + kind for kind in chunk], most=most)
        for kind in kinds:
            yield from self._whole(shard, b"pending " + kind, most, skip=True)
        for index in (*INDEXES_OF_QUEUE, "tasks", *GENERATIONS):
            yield from self._whole(shard, index, most)
        recounter = Recounter(self.store, self.tell, self.dry)
        cursor = recounter.recount_page(shard, 0, most)
        while cursor:
            cursor = recounter.recount_page(shard, cursor, most)
        recounter.recount(shard, more_accounts)
        if messages:
            yield from self._whole(shard, "messages", MESSAGES_PER_LOOK)

    def kinds(self, shard: int) -> list[bytes]:
        """Return the kinds of which tasks wait in a shard, or waited lately."""
        client: Any = self.store.client
        kinds = dict[bytes, None]()
        for name, scan in (("kinds", client.hscan_iter), ("changed", client.zscan_iter)):
            try:
                kinds |= {
                    kind: None
                    for kind, _ in scan(self.store.keys.queue(name, shard), count=MAX_BATCH)
                }
            except ResponseError as error:
                if not (self.dry and is_damage(error)):  # repair_numbers reports the key
                    raise
        return [kind for kind in kinds if not is_account_change(kind)]

    def _whole(
        self, shard: int, index: str | bytes, most: int, skip: bool = False
    ) -> Iterator["ShardDamage"]:
        """Check a whole index.

        skip: the first `most` entries were checked before, so check the index only if it has more
        entries.
        """
        if skip and self._size(shard, cast(bytes, index)) <= most:
            return
        cursor = 0
        while True:
            look = self.look_over(shard, [index], cursor, most)
            yield look
            if not (cursor := look.cursor):
                return

    def _size(self, shard: int, index: bytes) -> int:
        key = self.store.keys.prefix("pending:", shard).encode() + index.removeprefix(b"pending ")
        try:
            return int(self.store.read("zcard", key))
        except DamagedState:
            return 0

    def _report_queue(self, damage: DamagedState) -> None:
        """Report the queue of a kind that a script could not read.

        The script's message is 'KEY is a TYPE, not a TYPE'. A key has spaces if its kind has.
        """
        message = str(damage).rpartition("; ")[0].partition(": ")[2]
        key, is_queue, types = message.partition(" is a ")
        if is_queue:
            self.tell(Finding(key, f"is a {types}", ""))

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
                changed = store.run(store.commands.repair_kind(kind, shard))
                done = "made anew" if changed else "sound"
            else:
                try:
                    done = repair_task(store, id, kind, shard, runs.get(readable(id), ""))
                except InvalidInput as error:
                    # No call takes this id. The other suspects are repaired all the same.
                    advice = "left: delete it with redis-cli"
                    self.tell(Finding(f"{where} {readable(id):.100}", str(error), advice))
                    continue
            if done != "sound":
                flaw = (
                    "its record and the indexes of the queue contradict each other"
                    if id
                    else "its line and its queue contradict each other"
                )
                named = readable(id or kind)[:200]
                done_text = f"it is {done} now" if id and done else done
                self.tell(Finding(f"{where} {named}", flaw, done_text))

    def _discard(self, keys: Sequence[str]) -> set[str]:
        """Delete those of these keys that have another type; return those that were there."""
        types = self.store.pipe_each([("type", key) for key in keys])
        present = set[str]()
        for key, type_or_error in zip(keys, types, strict=True):
            if isinstance(type_or_error, Exception):
                continue
            if readable(type_or_error) != "none":
                present.add(key)
            flaw = self.store.keys.wrong_type(key, readable(type_or_error))
            if flaw and (self.dry or repair_keys(self.store, [key])):
                self.tell(Finding(key, flaw, "" if self.dry else "deleted"))
        return present

    def _report(self, damaged: Sequence[Damage]) -> None:
        for key, field, data in damaged:
            if field:
                flaw = f"not what the other keys say: {readable(data)!r:.100}"
                done = "made anew"
            else:
                flaw = readable(data).removeprefix("PSRECORD ")
                done = "deleted, and made anew"
            self.tell(Finding(f"{key} {field}".rstrip(), flaw, "" if self.dry else done))


def level_lost(store: Store, shard: int, level: int, damage: Damage) -> int | None:
    """Return the number of submissions that a repair has replaced, if it was below `level`.

    Such a number is no damage: a script wrote the number, and the server has lost later writes.
    Returns None for any other damage. level: a number of submissions that the shard has had.
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
class ShardDamage:
    """A look at some entries of a shard.

    cursor: where the next look begins, 0 at the end. count: the number of entries. highest: the
    largest number of a submission (LIFE) that the entries have.
    """

    cursor: int
    count: int
    highest: int


class _DryStore(Store):
    """A store that repairs nothing: a call that meets damage fails."""

    def _repair(self, call: Call[Any], message: str) -> bool:
        return False


def repair_all(
    store: Store,
    dry: bool = False,
    partitions: Iterable[int] = (),
    kinds: Mapping[int, Sequence[bytes]] | None = None,
    messages: bool = True,
    accounts: Mapping[int, Sequence[bytes]] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> list[Finding]:
    """Find all damage in a cluster, and repair it unless `dry`. Returns the findings.

    With several servers, a shard whose server is away is left out. Raises ServerUnreachable if the
    server of a partition is away. A dry run cannot see behind a key of another type.
    partitions: partitions to look at besides those of the cluster's settings. kinds: shard -> kinds
    that have a queue, besides those that the index of kinds lists. messages: check each message;
    False for a login that may only count messages. accounts: shard -> accounts with holders,
    besides those that have a line. say: is called with a text about the progress.
    """
    findings: list[Finding] = []
    if dry:
        looker = _DryStore(store.client, store.keys.cluster)
        looker.keys = store.keys
        looker.commands = store.commands
        store = looker
    repairer = Repairer(store, partitions_of(store.config()), findings.append, dry)
    levels = [0] * store.keys.shards
    for shard, counts in enumerate(repairer.repair_numbers(levels)):
        if counts is not None:
            try:
                highest = 0
                entries = 0
                kinds_of_shard = (kinds or {}).get(shard, ())
                accounts_of_shard = (accounts or {}).get(shard, ())
                for look in repairer.look_over_all(
                    shard, MAX_BATCH, kinds_of_shard, messages, accounts_of_shard
                ):
                    highest = max(highest, look.highest)
                    entries += look.count
                    say(f"shard {shard} of {store.keys.shards}: {entries} entries were looked at")
                levels[shard] = highest if highest > counts.submitted else 0
                if not messages and counts.messages > counts.tasks:
                    flaw = f"there are {counts.messages} messages, of {counts.tasks} tasks"
                    findings.append(Finding(store.keys.queue("messages", shard), flaw, ""))
            except (DamagedState, ResponseError) as error:
                if not dry:
                    raise
                findings.append(
                    Finding(
                        store.keys.queue("tasks", shard), f"it cannot be looked at: {error}", ""
                    )
                )
    if any(levels):
        repairer.repair_numbers(levels)
    for p in sorted({*range(repairer.partitions), *partitions}):
        say(f"partition {p} of {repairer.partitions}")
        if dry:
            repairer.check_partition(p, lambda: None)
        else:
            repairer.repair_partition(p)
    return findings
