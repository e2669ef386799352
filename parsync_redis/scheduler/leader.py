"""The leader's work: repairing what dead processes left. The scheduler that holds the leader lease does it; two at once
are harmless, because every step is judged by a script.

A task goes back before its slot is freed: pending is a fence, so that whatever the lost process still does with it
changes nothing. What a pass looks at is bounded; what it does not reach, the next pass does.
"""

import logging
import re
from collections.abc import Callable
from typing import Any, cast

from redis.exceptions import ResponseError

from ..errors import BrokenContract
from ..model.ids import readable
from ..model.limits import MAX_BATCH
from ..model.node import STANDS_STILL, Lease, deadline_s
from ..model.place import Place
from ..model.text import COUNTER, NODE, TERMS
from ..store.quarantine import quarantine
from ..store.repair import repair_keys, repair_partition, repair_task
from ..store.server_errors import is_damage
from ..store.store import Store
from .age_tracker import AgeTracker
from .lease_watch import LeaseWatch

log = logging.getLogger("parsync.leader")

FORGET_S = 3600.0
"""A node that is down and holds nothing is forgotten after an hour."""

TRIES = 3
"""A node that lets so many tasks wait for a lease, and starts none, is suspect."""

TRIES_LEASES = 5
"""Within so many leases."""

PROBATION_LEASES = 3
"""A suspect node that reads its inbox gets tasks again after so many leases."""


class Leader:
    """Judges nodes and schedulers by their counters and reclaims what the lost ones held."""

    def __init__(self, store: Store, partitions: int, lease_s: float) -> None:
        self.store, self.partitions = store, partitions
        self.nodes = LeaseWatch(lease_s)
        self.members = LeaseWatch(lease_s)
        self.owners = LeaseWatch(lease_s)
        self.down = LeaseWatch(FORGET_S)
        self.lost: list[str] = []
        self.lease_s = lease_s
        self.notes = AgeTracker(lease_s)
        self.unstarted = AgeTracker(lease_s / 2)
        self._failed: dict[tuple[int, str, int], list[float]] = {}
        self._cursor = 0

    def reset(self) -> None:
        """The server restarted or this process has just become leader: nobody is judged for one lease."""
        for lease_watch in (self.nodes, self.members, self.owners, self.down):
            lease_watch.reset()
        self.unstarted.reset()
        self._failed.clear()
        self.lost = []

    def work(self, clock: Callable[[], float], members: dict[str, int]) -> None:
        """One pass: nodes, drains and suspects, schedulers, what expires, tasks that have no lease or do not start.

        What was read was seen when it had come, not when it was asked for: `clock` is asked after each read.
        """
        self._part(self._nodes, clock)
        self._part(self._schedulers, clock, members)
        self._part(self._expire)
        self._part(self._audit, clock)

    def _part(self, do: Callable[..., None], *args: Any) -> None:
        """Does a part of a pass: damage that it meets is put away, and keeps no other part from being done."""
        try:
            do(*args)
        except (BrokenContract, ResponseError, ValueError) as error:
            if isinstance(error, ResponseError) and not is_damage(error):
                raise
            quarantine(self.store, f"a leader's {do.__name__.strip('_')}", str(error), b"")

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _nodes(self, clock: Callable[[], float]) -> None:
        store, keys = self.store, self.store.keys
        with store.client.pipeline(transaction=False) as pipe:
            for p in range(self.partitions):
                pipe.hgetall(keys.partition(p, "alive"))
                pipe.smembers(keys.partition(p, "lost"))
                pipe.hgetall(keys.partition(p, "notes"))
                pipe.hgetall(keys.partition(p, "nodes"))
            replies = [self._readable(reply, at // 4) for at, reply in enumerate(pipe.execute(raise_on_error=False))]
        now_s = clock()
        notes: dict[tuple[int, str], tuple[str, str]] = {}
        up: dict[Any, str] = {}
        down: dict[Any, str] = {}
        for p in range(self.partitions):
            counters, lost_here, noted, records = cast(Any, [reply or {} for reply in replies[4 * p : 4 * p + 4]])
            for name, text in counters.items():
                (down if text.endswith(b"down") else up)[p, readable(name)] = readable(text)
            if not all(map(COUNTER.match, counters.values())) or not agree(records, counters, noted):
                repair_partition(store, p)
            for lost in lost_here:
                self._part(self.reclaim, p, readable(lost))
            for name, text in noted.items():
                record = NODE.read(readable(records.get(name, b""))) or {"drain": ""}
                notes[p, readable(name)] = record["drain"], readable(text)
        self._part(self._heed, now_s, notes)
        up = {holder: text for holder, text in up.items() if COUNTER.read(text)}
        for holder in self.nodes.look(now_s, up):
            p, node = cast(tuple[int, str], holder)
            inc, moved = (int(word.partition("=")[2]) for word in up[holder].split())
            log.warning("node %s stood still for a lease: it is down", node)
            self._part(self.reclaim, p, node, inc, moved)
        for holder in self.down.look(now_s, down):
            p, node = cast(tuple[int, str], holder)
            self._part(self._forget, p, node, int(down[holder].split()[0].partition("=")[2]))

    def _readable(self, reply: Any, p: int) -> Any:
        """A reply; None for an error that says that a key of partition p is not what it must be: it is repaired."""
        if not isinstance(reply, Exception):
            return reply
        if not is_damage(reply):
            raise reply
        repair_partition(self.store, p)
        return None

    def reclaim(self, p: int, node: str, inc: int = 0, moved: int | None = None) -> None:
        """Marks a node down if its counter is still `moved`, and repairs every lease that nobody looks after."""
        call = self.store.commands.reclaim(p, node, inc, moved)
        _, leases = self.store.run(call)
        repaired: list[Lease] = []
        while leases != repaired:  # a damaged lease may stay: the next pass meets it again
            repair(self.store, p, leases, f"its node {node} was lost")
            repaired = leases
            _, leases = self.store.run(self.store.commands.reclaim(p, node))

    def _forget(self, p: int, node: str, inc: int) -> None:
        commands = self.store.commands
        if self.store.run(commands.forget_node(p, node, inc)) == "forgotten":
            self.store.run_all([commands.offer(node, ""), commands.deal_node(node, self.partitions, "", 0, 0.0)])
            log.info("node %s was down for long and is forgotten", node)

    # -- drains and suspects -----------------------------------------------------------------------------------------

    def _heed(self, now_s: float, notes: dict[tuple[int, str], tuple[str, str]]) -> None:
        """End drains whose deadline has passed, and probations of suspects: as long as this leader has seen them."""
        ages = self.notes.look(now_s, {(*node, *noted) for node, noted in notes.items()})
        for (p, node), (drain, note) in notes.items():
            age_s, limit_s = ages[p, node, drain, note], deadline_s(note)
            if drain == "1" and limit_s is not None and age_s >= limit_s:
                log.warning("the drain of node %s is over: what it still runs is ended and goes back", node)
                self.store.run(self.store.commands.set_node(p, node, "over", note=note))
            elif drain == "0" and not note.startswith(STANDS_STILL) and age_s >= PROBATION_LEASES * self.lease_s:
                self._trust(p, node)  # a node that stands still is trusted again by its own agent

    def _trust(self, p: int, node: str) -> None:
        """A suspect that has read its inbox may get tasks again; one that has not is still of no use."""
        if not self.store.client.llen(self.store.keys.inbox(p, node)):
            log.info("node %s reads its inbox: it gets tasks again", node)
            self.store.run(self.store.commands.set_node(p, node, "trust"))

    def _put_back(self, p: int, node: str, late: list[Place], now_s: float) -> None:
        """Tasks that waited on a node for a lease and did not start go back, and their slots are freed.

        Not while the node runs anything: a worker that runs its tasks itself (solo) answers its doorbells between them.
        """
        store, commands = self.store, self.store.commands
        record = store.nodes(p).get(node)
        leases = store.leases(p, [record]) if record else []
        if not leases or "running" in store.states([lease.task for lease in leases]):
            return
        why = f"{node} did not start it for a lease"
        words = store.run(commands.requeue([(place, why) for place in late], "unstarted"))
        back = [place for place, word in zip(late, words, strict=True) if word != "none"]
        store.run(commands.release(p, back))
        key = (p, node, late[0].inc)
        failed = [at for at in self._failed.pop(key, []) if now_s - at < TRIES_LEASES * self.lease_s]
        failed += [now_s] * len(back)
        if len(failed) < TRIES:
            self._failed[key] = failed
            return
        names = " ".join(place.task for place in back[:TRIES])
        log.warning("node %s lives, but did not start what it got (%s): it is suspect, and gets no more", node, names)
        why = f"alive, but {len(failed)} tasks in a row did not start there, the last: {names}"
        store.run(commands.set_node(p, node, "suspect", late[0].inc, why))

    # -- schedulers --------------------------------------------------------------------------------------------------

    def _schedulers(self, clock: Callable[[], float], members: dict[str, int]) -> None:
        held: dict[str, list[str]] = {}
        for task, owner in self.store.client.hscan_iter(self.store.keys.queue("taken"), count=1000):
            held.setdefault(readable(owner), []).append(readable(task))
        now_s = clock()
        orphans = {owner: "" for owner in held if owner not in members}
        for owner in self.owners.look(now_s, cast(dict[Any, Any], orphans)):
            give_back(self.store, cast(str, owner), held[cast(str, owner)], "its scheduler was lost")
        self.lost = []
        for member in self.members.look(now_s, cast(dict[Any, Any], members)):
            name = cast(str, member)
            log.warning("scheduler %s stood still for a lease: its tasks go back", name)
            give_back(self.store, name, held.get(name, []), "its scheduler was lost")
            self.lost.append(f"{name} {members[name]}")

    # -- what waits for too long -------------------------------------------------------------------------------------

    def _expire(self) -> None:
        """Cancels what waits past its expiry, up to some thousands a pass; what is taken is judged by take as well.

        Repairs `dead`, `names` and `apps` first, if their type is wrong: workers write them and may not delete them.
        """
        repair_keys(self.store, [self.store.keys.queue(kind) for kind in ("dead", "names", "apps")])
        for _ in range(10):
            if len(self.store.run(self.store.commands.expire())) < MAX_BATCH:
                break

    # -- the audit of places -----------------------------------------------------------------------------------------

    def _audit(self, clock: Callable[[], float]) -> None:
        """A placed or running task whose slot has another lease, or none, goes back; so does one that does not start.

        A few hundred tasks a pass.
        """
        store = self.store
        self.unstarted.begin(clock())
        cursor, some = store.client.hscan(store.keys.queue("placed"), self._cursor, count=MAX_BATCH)
        places = []
        for task, text in cast(dict[bytes, bytes], some).items():
            if _PLACE.fullmatch(text):
                places.append(parse_place(readable(task), text.decode()))
            else:
                quarantine(store, f"{store.keys.queue('placed')} {readable(task)}", "not a place", text)
                repair_task(store, readable(task))
        self._cursor = int(cursor)
        for at in range(0, len(places), MAX_BATCH):
            self._audit_some(places[at : at + MAX_BATCH], clock)
        if not self._cursor:
            self.unstarted.forget_unseen()

    def _audit_some(self, places: list[Place], clock: Callable[[], float]) -> None:
        store = self.store
        with store.client.pipeline(transaction=False) as pipe:
            for place in places:
                pipe.hget(store.keys.partition(place.partition, "slots"), f"{place.node}/{place.slot}")
                pipe.hmget(store.keys.task(place.task), "state", "attempt")
            replies = pipe.execute(raise_on_error=False)
        now_s, torn, late = clock(), [], dict[tuple[int, str], list[Place]]()
        for place, text, task in zip(places, replies[::2], replies[1::2], strict=True):
            if wrong := [reply for reply in (text, task) if isinstance(reply, Exception)]:
                if not is_damage(wrong[0]):
                    raise wrong[0]
                self._part(repair_task, store, place.task)
                continue
            state, attempt = task
            lease = _lease(place, text)
            if lease is None or (lease.task, lease.attempt, lease.inc) != (place.task, place.attempt, place.inc):
                torn.append((place, "its lease was gone"))
            elif state == b"running":
                self._failed.pop((place.partition, place.node, place.inc), None)
            elif (state, attempt) == (b"placed", place.attempt.encode()) and (
                self.unstarted.age_s(now_s, place) >= self.lease_s
            ):
                late.setdefault((place.partition, place.node), []).append(place)
        if torn:
            words = store.run(store.commands.requeue(torn))
            if back := [word for word in words if word != "none"]:
                log.warning("%d tasks had a place and no lease: %s", len(back), " ".join(sorted(set(back))))
            for (place, _), word in zip(torn, words, strict=True):
                if word == "none":
                    repair_task(store, place.task)
        for (p, node), waiting in late.items():
            self._put_back(p, node, waiting, now_s)


def agree(records: dict[bytes, bytes], counters: dict[bytes, bytes], notes: dict[bytes, bytes]) -> bool:
    """Whether records of nodes are such as stand beside these counters and notes, and beside each other.

    What of it is damaged repair_partition says; that finds nothing where one was read before a change and one after it.
    """
    spans = []
    for name, record in records.items():
        if not (match := NODE.match(record)):
            return False
        state, inc, drain, first, span = match.group("state", "inc", "drain", "first", "span")
        note = notes.get(name, b"")
        if (drain != b"0") != (TERMS.match(note) is not None) or (state == b"suspect" and (drain != b"0" or not note)):
            return False
        counter = counters.get(name, b"").split(b" ")
        if counter[0] != b"inc=" + inc or (counter[-1] == b"down") != (state == b"down"):
            return False
        spans.append((int(first), int(span)))
    last = 0
    for first_bit, bits in sorted(spans):
        if first_bit < last or first_bit > last + MOST_GAP:
            return False
        last = first_bit + bits
    return records.keys() >= counters.keys() | notes.keys()


MOST_GAP = 1_000_000
"""Bits below those of a node that no other has, as lua/lib/damage.lua lets pass."""

_PLACE = re.compile(rb"p\d{1,4} [A-Za-z0-9][A-Za-z0-9_.@-]*/\d{1,4} inc=\d{1,15} attempt=[!-~]+")


def _lease(place: Place, text: bytes | None) -> Lease | None:
    """The lease of a slot; None where there is none that can be read."""
    try:
        return Lease.of(place.node, place.slot, readable(text)) if text else None
    except ValueError:
        return None


def parse_place(task: str, text: str) -> Place:
    """A line of the `placed` index, 'p3 n1/3 inc=3 attempt=1@17', as a place."""
    partition, slot, inc, attempt = text.split()
    node, _, number = slot.rpartition("/")
    return Place(task, attempt[8:], int(partition[1:]), node, int(number), int(inc[4:]), 0)


def repair(store: Store, p: int, leases: list[Lease], why: str) -> None:
    """Puts the tasks of lost leases back, and then frees the slots."""
    for at in range(0, len(leases), MAX_BATCH):
        places = [Place(x.task, x.attempt, p, x.node, x.slot, x.inc, x.since_ms) for x in leases[at : at + MAX_BATCH]]
        store.run(store.commands.requeue([(place, why) for place in places]))
        store.run(store.commands.release(p, places))


def give_back(store: Store, owner: str, tasks: list[str], why: str) -> None:
    """Puts tasks back that a scheduler has taken, whatever their attempt."""
    for at in range(0, len(tasks), MAX_BATCH):
        some = tasks[at : at + MAX_BATCH]
        words = store.run(store.commands.give_back(owner, [(task, "", why) for task in some]))
        for task, word in zip(some, words, strict=True):
            if word == "stale":
                repair_task(store, task)
