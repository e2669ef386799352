"""One typed function a script: it makes the call, and knows how to read the reply. Nothing here does I/O.

A call is run by `Store.run` or, many in one round trip, by `Store.run_all`. Text in replies is UTF-8; the bitmap stays
bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ..model.apps import KnownTasks
from ..model.claim import Claim, ClaimOutcome, Verdict
from ..model.limits import MAX_BATCH
from ..model.needs import is_resources
from ..model.node import Lease
from ..model.place import Loss, Place
from ..model.replies import Judged, Members, Snapshot, Took
from ..model.task import Strategy, Submission, Taken
from ..wire.keys import NUMBERS, TYPES, Keys
from .scripts import Script

T = TypeVar("T")
_WISHES: Final = frozenset(Strategy)
_VERDICTS: Final = {spelling: word for word in ClaimOutcome for spelling in (word, word.encode())}
Reply = Any  # what a script answers: bytes, integers, lists of them


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A script with its keys and arguments, and the reader of its reply."""

    script: Script
    keys: Sequence[str]
    args: Sequence[str | int | float | bytes]
    read: Callable[[Reply], T]


def _text(value: bytes | str | int | None) -> str:
    """Text of a reply, with escapes where damaged bytes are no text."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return "" if value is None else str(value)


def _words(reply: Reply) -> list[str]:
    try:
        return [word.decode() for word in reply]  # as nearly always
    except (AttributeError, UnicodeDecodeError):
        return [_text(word) for word in reply]


def _pairs(values: Sequence[Reply]) -> Iterable[tuple[Reply, Reply]]:
    return zip(values[::2], values[1::2], strict=True)


_SUBMIT = Script("submit", ("meta", "pending", "later", "shapes", "feasible", "names", "expires", "dead", "task*"))
_TAKE = Script("take", ("meta", "pending", "later", "taken", "outbox", "task:"))
_UNTAKE = Script("give_back", ("pending", "later", "taken", "task*"))
_SETTLE = Script("confirm", ("taken", "placed", "task*"))
_START = Script("start", ("taken", "placed", "task*"))
_FINISH = Script("finish", ("meta", "pending", "later", "placed", "outbox", "task*"))
_REQUEUE = Script("requeue", ("meta", "pending", "later", "taken", "placed", "outbox", "dead", "task:", "task*"))
_REVIVE = Script("revive", ("meta", "pending", "later", "outbox", "dead", "task*"))
_EXPIRE = Script("expire", ("pending", "later", "taken", "outbox", "expires", "task:"))
_PURGE = Script("purge", ("dead", "expires", "task*"))
_CANCEL = Script("cancel", ("pending", "later", "taken", "placed", "outbox", "task"))
_NOTE = Script("note", ("task*",))
_OFFER = Script("offer", ("shapes", "feasible", "names", "apps"))
_REGISTER_NODE = Script("register_node", ("meta", "slots", "free", "left", "nodes", "alive", "lost", "inbox"))
_COMMIT = Script("commit", ("meta", "slots", "free", "left", "nodes", "inbox*"))
_RELEASE = Script("release", ("meta", "slots", "free", "left", "nodes"))
_READ_PARTITION = Script("read_partition", ("meta", "free", "left"))
_RENEW = Script("renew", ("nodes", "alive"))
_RECLAIM = Script("reclaim", ("meta", "slots", "free", "nodes", "alive", "lost"))
_SET_NODE = Script("set_node", ("meta", "slots", "free", "nodes", "notes"))
_RING = Script("ring", ("slots", "inbox"))
_FORGET_NODE = Script("forget_node", ("meta", "slots", "free", "left", "nodes", "alive", "lost", "notes", "inbox"))
_CONFIGURE = Script("configure", ("config",))
_DEAL_NODE = Script("deal_node", ("dealt",))
_RENEW_SCHEDULER = Script("renew_scheduler", ("schedulers", "leader", "stats"))
_NOTE_LOSS = Script("note_loss", ("losses",))
_QUARANTINE = Script("quarantine", ("quarantine",))
_DISCARD = Script("discard", ("any",))
_MEND_PARTITION = Script("repair_partition", ("meta", "slots", "free", "left", "nodes", "alive", "lost", "notes"))
_MEND_TASK = Script("repair_task", ("pending", "later", "taken", "placed", "outbox", "task"))

ALL: Final = (
    _SUBMIT,
    _TAKE,
    _UNTAKE,
    _SETTLE,
    _START,
    _FINISH,
    _REQUEUE,
    _CANCEL,
    _NOTE,
    _OFFER,
    _REGISTER_NODE,
    _COMMIT,
    _RELEASE,
    _READ_PARTITION,
    _RENEW,
    _RECLAIM,
    _SET_NODE,
    _RING,
    _FORGET_NODE,
    _CONFIGURE,
    _DEAL_NODE,
    _RENEW_SCHEDULER,
    _NOTE_LOSS,
    _QUARANTINE,
    _DISCARD,
    _MEND_PARTITION,
    _MEND_TASK,
    _REVIVE,
    _EXPIRE,
    _PURGE,
)


class Commands:
    """The scripts of one cluster as functions that make calls."""

    def __init__(self, keys: Keys, retention_s: int = 86_400, max_starts: int = 3) -> None:
        self.keys, self.retention_s, self.max_starts = keys, retention_s, max_starts

    def _queue(self, *kinds: str) -> list[str]:
        return [self.keys.queue(kind) for kind in kinds]

    def _partition(self, number: int, *kinds: str) -> list[str]:
        return [self.keys.partition(number, kind) for kind in kinds]

    def _tasks(self, ids: Iterable[str]) -> list[str]:
        return [self.keys.task_prefix + id for id in ids]

    # -- the queue of tasks ------------------------------------------------------------------------------------------

    def submit(self, tasks: Sequence[Submission]) -> Call[list[str]]:
        """A word a task: submitted, exists, infeasible, unknown, next, stale. At most MAX_BATCH tasks."""
        args: list[str | int | bytes] = [len(tasks), self.keys.tick]
        for t in tasks:
            o = t.options
            args += (
                t.id,
                t.name,
                o.needs.text,
                o.strategy,
                o.priority,
                "" if t.delay_ms is None else t.delay_ms,
                "" if t.expiry_ms is None else t.expiry_ms,
                int(o.wait_for_capacity),
                t.after,
                "" if o.max_starts is None else o.max_starts,
                t.publication,
                t.message,
            )
        keys = self._queue("meta", "pending", "later", "shapes", "feasible", "names", "expires", "dead")
        return Call(_SUBMIT, keys + self._tasks(t.id for t in tasks), args, _words)

    def take(self, scheduler: str, limit: int, salt: str = "", waits: bool = False) -> Call[Took]:
        """Up to `limit` (at most MAX_BATCH) pending tasks become this scheduler's; those that have expired end.

        `salt` ends their attempts, '.482913': what hardly another take has. If the scheduler `waits` and there is none,
        the next task that comes wakes it; if it leaves some, another scheduler that waits is woken.
        """

        def read(reply: Reply) -> Took:
            rows = list(zip(*[iter(_words(reply[3:]))] * 6, strict=True))
            tasks = [
                Taken(id, attempt, needs, wish if wish in _WISHES else "", int(ready), name)
                for id, attempt, needs, wish, ready, name in rows
                if attempt
            ]
            failed = [(id, why) for id, attempt, why, *_ in rows if not attempt]
            return Took(int(reply[0]), int(reply[1]), tasks, failed, float(reply[2]) if reply[2] else None)

        keys = [*self._queue("meta", "pending", "later", "taken", "outbox"), self.keys.task_prefix]
        args: list[str | int] = [scheduler, min(limit, MAX_BATCH), salt, self.retention_s, self.keys.tick, int(waits)]
        return Call(_TAKE, keys, args, read)

    def give_back(
        self, scheduler: str, tasks: Sequence[tuple[str, str, str]], delay_ms: int | None = None
    ) -> Call[list[str]]:
        """Taken tasks go back: (id, attempt or '' for any, why); a word a task: pending, stale."""
        args: list[str | int] = [len(tasks), scheduler, "" if delay_ms is None else delay_ms]
        for task in tasks:
            args += task
        return Call(_UNTAKE, self._queue("pending", "later", "taken") + self._tasks(t[0] for t in tasks), args, _words)

    def confirm(self, places: Sequence[Place]) -> Call[list[str]]:
        """A word a task: placed, yours, stale."""
        args: list[str | int] = [len(places)]
        for p in places:
            args += (p.task, p.attempt, p.partition, p.node, p.slot, p.inc, p.since_ms)
        return Call(_SETTLE, self._queue("taken", "placed") + self._tasks(p.task for p in places), args, _words)

    def start(self, places: Sequence[Place]) -> Call[list[tuple[str, bytes]]]:
        """(ok or yours, the message to run) or (refused, the task's state) of each task."""
        args: list[str | int] = [len(places)]
        for p in places:
            args += (p.task, p.attempt, p.partition, p.node, p.slot, p.inc, p.since_ms)
        keys = self._queue("taken", "placed") + self._tasks(p.task for p in places)
        return Call(_START, keys, args, lambda r: [(_text(w), m) for w, m in zip(r[::2], r[1::2], strict=True)])

    def finish(self, outcomes: Sequence[tuple[Place, str, str]]) -> Call[list[str]]:
        """(place, outcome, why) each; a word a task: ok, again, yours, stale."""
        args: list[str | int] = [len(outcomes), self.keys.tick, self.retention_s]
        for p, outcome, why in outcomes:
            args += (p.task, p.attempt, p.node, p.slot, p.inc, outcome, why)
        keys = self._queue("meta", "pending", "later", "placed", "outbox")
        return Call(_FINISH, keys + self._tasks(p.task for p, _, _ in outcomes), args, _words)

    def requeue(
        self, lost: Sequence[tuple[Place, str]], how: Loss = "", delays_ms: Sequence[int | None] = ()
    ) -> Call[list[str]]:
        """(place, why) of each lost lease; a word a task: pending, dead, cancelled, none.

        how: "unstarted" touches only what is placed and has not started; "recalled" does not count a start that was.
        delays_ms: for how long each must not be taken again, None for at once; () for all at once.
        """
        args: list[str | int] = [len(lost), self.keys.tick, self.retention_s, self.max_starts]
        for (p, why), delay_ms in zip(lost, delays_ms or [None] * len(lost), strict=True):
            args += (p.task, p.attempt, p.node, p.slot, p.inc, why, how, "" if delay_ms is None else delay_ms)
        keys = [*self._queue("meta", "pending", "later", "taken", "placed", "outbox", "dead"), self.keys.task_prefix]
        return Call(_REQUEUE, keys + self._tasks(p.task for p, _ in lost), args, _words)

    def revive(self, ids: Sequence[str], why: str) -> Call[list[str]]:
        """Dead tasks go back to pending; a word a task: revived, or the state that it is in. At most MAX_BATCH."""
        keys = self._queue("meta", "pending", "later", "outbox", "dead")
        return Call(_REVIVE, keys + self._tasks(ids), [len(ids), self.keys.tick, why, *ids], _words)

    def expire(self, limit: int = MAX_BATCH) -> Call[list[str]]:
        """Cancels what waits past its expiry; the ids. It looks at `limit` of the expiries that have come."""
        keys = [*self._queue("pending", "later", "taken", "outbox", "expires"), self.keys.task_prefix]
        return Call(_EXPIRE, keys, [self.retention_s, limit], _words)

    def cancel(self, id: str, why: str = "cancelled", how: str = "SIGTERM") -> Call[list[str]]:
        """[cancelled], [asked] (it runs: ended by the signal `how`; "after" lets it end) or [none, state].

        how "waiting" leaves alone what has a place.
        """
        keys = [*self._queue("pending", "later", "taken", "placed", "outbox"), self.keys.task(id)]
        return Call(_CANCEL, keys, [id, self.retention_s, why, how], _words)

    def purge(self, state: str, ids: Sequence[str]) -> Call[list[str]]:
        """Deletes the records of tasks that are in this final state; a word a task: purged, or the state it is in."""
        keys = self._queue("dead", "expires") + self._tasks(ids)
        return Call(_PURGE, keys, [len(ids), state, *ids], _words)

    def repair_task(self, id: str, why: str) -> Call[str]:
        """Repairs a task of which record and indexes differ: sound (they do not), gone, pending, or its final state."""
        keys = [*self._queue("pending", "later", "taken", "placed", "outbox"), self.keys.task(id)]
        return Call(_MEND_TASK, keys, [id, self.retention_s, why], _text)

    def note(self, reasons: Sequence[tuple[str, str, str]]) -> Call[int]:
        """(id, attempt, why) of taken tasks that have found no place yet; how many were noted."""
        args: list[str | int] = [len(reasons)]
        for _, attempt, why in reasons:
            args += (attempt, why)
        return Call(_NOTE, self._tasks(id for id, _, _ in reasons), args, int)

    def offer(self, node: str, offer: str, tasks: KnownTasks | None = None) -> Call[int]:
        """Makes known to submit what a node offers ('' forgets it), and the tasks for which its digest stands."""
        known = ["", ""] if tasks is None else [tasks.digest, tasks.text]
        return Call(_OFFER, self._queue("shapes", "feasible", "names", "apps"), [node, offer, *known], int)

    # -- a partition -------------------------------------------------------------------------------------------------

    def register_node(self, p: int, node: str, known_inc: int, score: float, offer: str) -> Call[tuple[int, int]]:
        """(incarnation, first bit)."""
        kinds = ("meta", "slots", "free", "left", "nodes", "alive", "lost")
        keys = [*self._partition(p, *kinds), self.keys.inbox(p, node)]
        return Call(_REGISTER_NODE, keys, [node, known_inc, repr(score), offer], lambda r: (int(r[0]), int(r[1])))

    def commit(self, p: int, claims: Sequence[Claim]) -> Call[Judged]:
        """Judges claims that are all of partition p; at most MAX_BATCH."""
        inboxes: dict[str, int] = {}
        args: list[str | int] = [len(claims)]
        for c in claims:
            inbox = inboxes.setdefault(c.node, len(inboxes) + 1)
            args += (c.task, c.attempt, inbox, c.node, c.inc, ",".join(map(str, c.slots)), c.needs)

        def read(reply: Reply) -> Judged:
            verdicts = [Verdict(_VERDICTS[word], _text(detail)) for word, detail in _pairs(reply[2:])]
            return Judged(p, int(reply[0]), int(reply[1]), claims, verdicts)

        keys = self._partition(p, "meta", "slots", "free", "left", "nodes")
        return Call(_COMMIT, keys + [self.keys.inbox(p, node) for node in inboxes], args, read)

    def release(self, p: int, places: Sequence[Place]) -> Call[list[str]]:
        """Frees the leases of these places, all of partition p; a word each: freed, none."""
        args: list[str | int] = [len(places), self.keys.tick, p]
        for place in places:
            args += (place.node, place.slot, place.task, place.attempt, place.inc)
        return Call(_RELEASE, self._partition(p, "meta", "slots", "free", "left", "nodes"), args, _words)

    def read_partition(self, p: int, version: int = -1, waiter: str = "") -> Call[Snapshot]:
        """What changed since `version`; `waiter` asks to hear of the next freed slot."""

        def read(reply: Reply) -> Snapshot:
            if len(reply) == 2:
                return Snapshot(p, int(reply[0]), int(reply[1]), None, {})
            left = {_text(node): _text(amounts) for node, amounts in _pairs(reply[3:])}
            sound = {node: amounts for node, amounts in left.items() if is_resources(amounts)}
            bits = reply[2] if isinstance(reply[2], bytes) else str(reply[2]).encode("latin-1")
            return Snapshot(p, int(reply[0]), int(reply[1]), bits, sound, len(sound) < len(left))

        return Call(_READ_PARTITION, self._partition(p, "meta", "free", "left"), [version, waiter], read)

    def renew(self, p: int, node: str, inc: int) -> Call[list[str]]:
        """[ok, counter, state, drain], [superseded, inc] or [lapsed]."""
        return Call(_RENEW, self._partition(p, "nodes", "alive"), [node, inc], _words)

    def reclaim(
        self, p: int, node: str, inc: int = 0, moved: int | None = None, limit: int = MAX_BATCH
    ) -> Call[tuple[str, list[Lease]]]:
        """Marks a node down whose counter still is `moved`, or only lists; (down, moved or listed; lost leases)."""

        def read(reply: Reply) -> tuple[str, list[Lease]]:
            leases = [Lease.of(node, int(slot), _text(text)) for slot, text in _pairs(reply[1:])]
            return _text(reply[0]), leases

        keys = self._partition(p, "meta", "slots", "free", "nodes", "alive", "lost")
        return Call(_RECLAIM, keys, [node, inc, "" if moved is None else moved, limit], read)

    def set_node(self, p: int, node: str, word: str, inc: int | None = None, note: str = "") -> Call[list[str]]:
        """drain, over, undrain, suspect, trust or leaving (see lua/set_node.lua); [ok, state, drain] or [gone]."""
        keys = self._partition(p, "meta", "slots", "free", "nodes", "notes")
        return Call(_SET_NODE, keys, [node, "" if inc is None else inc, word, note], _words)

    def ring(self, place: Place) -> Call[str]:
        """Rings the doorbell of a lease again: rung, waiting or none."""
        p = place
        keys = [self.keys.partition(p.partition, "slots"), self.keys.inbox(p.partition, p.node)]
        return Call(_RING, keys, [p.node, p.slot, p.task, p.attempt, p.inc], _text)

    def forget_node(self, p: int, node: str, inc: int) -> Call[str]:
        """Removes the record of a node that is down and holds nothing: forgotten, held, up or gone."""
        kinds = ("meta", "slots", "free", "left", "nodes", "alive", "lost", "notes")
        return Call(_FORGET_NODE, [*self._partition(p, *kinds), self.keys.inbox(p, node)], [node, inc], _text)

    def repair_partition(self, p: int) -> Call[list[tuple[str, str, bytes]]]:
        """Takes out of partition p what cannot be read: (key, field or '' for all of it, text) of each."""

        def read(reply: Reply) -> list[tuple[str, str, bytes]]:
            return [(_text(key), _text(field), text) for key, field, text in zip(*[iter(reply)] * 3, strict=True)]

        kinds = ("meta", "slots", "free", "left", "nodes", "alive", "lost", "notes")
        return Call(_MEND_PARTITION, self._partition(p, *kinds), [], read)

    # -- the cluster -------------------------------------------------------------------------------------------------

    def configure(self, settings: Mapping[str, str | int]) -> Call[dict[str, str]]:
        """Writes the cluster's settings if it has none, and returns those that it has; with {} it only reads."""
        args = [word for pair in settings.items() for word in pair]
        return Call(
            _CONFIGURE, [self.keys.shared("config")], args, lambda reply: {_text(k): _text(v) for k, v in _pairs(reply)}
        )

    def quarantine(self, entry: bytes, most: int) -> Call[int]:
        """Keeps something damaged, see store/quarantine.py; b"" forgets all. How many are kept, `most` at most."""
        return Call(_QUARANTINE, [self.keys.shared("quarantine")], [most, entry], int)

    def discard(self, key: str, kind: str) -> Call[int]:
        """Deletes a key, of this kind, that is not what it must be; 1 if it was deleted."""
        return Call(_DISCARD, [key], [TYPES[kind], *NUMBERS.get(kind, ())], int)

    def note_loss(self, seen: str, keep_s: int) -> Call[int]:
        """Keeps that numbers went back: 'WHO NAME=WAS->IS ...'; 1 if it was not known."""
        return Call(_NOTE_LOSS, [self.keys.shared("losses")], [seen, keep_s], int)

    def deal_node(self, node: str, partitions: int, labels: str, slots: int, score: float) -> Call[int]:
        """The number of the partition that a node belongs to; slots 0 forgets the node."""
        return Call(_DEAL_NODE, [self.keys.shared("dealt")], [node, partitions, labels, slots, repr(score)], int)

    def renew_scheduler(
        self,
        me: str,
        seen_leader: str = "",
        lost: str = "",
        stats: Mapping[str, str | int | float] | None = None,
        stay: bool = True,
        at_most: int = 0,
    ) -> Call[Members]:
        """Moves this scheduler's counter, or leaves; see lua/renew_scheduler.lua for taking over and for the lost.

        at_most: joins only while there are fewer members; who is not among the reply's stands by. 0: in any case.
        """

        def read(reply: Reply) -> Members:
            return Members(_text(reply[0]), int(reply[1]), {_text(n): int(c) for n, c in _pairs(reply[2:])})

        args = [
            me,
            seen_leader,
            "stay" if stay else "",
            lost,
            at_most,
            *(w for pair in (stats or {}).items() for w in pair),
        ]
        keys = [self.keys.shared("schedulers"), self.keys.shared("leader"), self.keys.stats(me)]
        return Call(_RENEW_SCHEDULER, keys, args, read)
