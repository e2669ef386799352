"""The scripts and the reference store are the same: driven side by side, same replies, same state, nothing violated."""

import os
import re
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from parsync_redis.inspect.audit import audit
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.claim import Claim
from parsync_redis.model.ids import readable
from parsync_redis.model.kind import split_kind
from parsync_redis.model.needs import Resources, parse_resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.record import Record
from parsync_redis.model.replies import Judged, Snapshot, Took
from parsync_redis.model.task import Submission
from parsync_redis.store import Call, Store
from parsync_redis.store.calls import ALL
from parsync_redis.store.reference import MemoryStore
from parsync_redis.store.reference.cluster import Cluster
from parsync_redis.store.reference.partition import Partition
from parsync_redis.store.reference.queue import Queue
from tests.conftest import FAKE

from .compare import state_of_reference, state_of_server, told

NEVER_MS = 10**9
IDS, NODES, SCHEDULERS = st.sampled_from("abcd"), st.sampled_from(["n1", "n2"]), st.sampled_from(["s1", "s2"])
PARTITIONS = st.sampled_from([0] * 7 + [1])
WHY = st.sampled_from(["", "why"])
HOW = st.sampled_from(["", "", "unstarted", "recalled"])
OUTCOMES = st.sampled_from(["succeeded", "failed", "cancelled", "again"])
KINDS = st.sampled_from(["f slots=1", "f slots=2", "g slots=1"])
NEEDS = st.sampled_from(
    [
        {},
        {},
        {},
        {"slots": 2},
        {"resources": {"gpu": 1}, "strategy": "quality"},
        {"slots": 2, "resources": {"gpu": 2, "mem": 0}},
        {"require": {"zone": "a"}},
        {"slots": 9},
        {"slots": 9, "wait_for_capacity": True},
        {"priority": 9},
        {"max_starts": 1},
    ]
)
OFFERS = st.sampled_from(
    [
        Resources.of(2),
        Resources.of(2),
        Resources.of(1),
        Resources.of(4, {"gpu": 2}),
        Resources.of(9, {"gpu": 3}),
        Resources.of(3, {"gpu": 1, "mem": 7}, {"zone": "a"}),
    ]
)
DELAYS = st.sampled_from([None, None, None, 0, NEVER_MS])
EXPIRIES = st.sampled_from([None, None, None, None, 0, NEVER_MS])
SLOTS = st.sampled_from([(0,), (0,), (1,), (0, 1), (2, 3), (1, 8)])
SLIPS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}] * 4 + [{"slots": (1,)}, {"node": "n2"}, {"inc": 2}, {"attempt": "2@1"}, {"since_ms": 1}]
)


def comparable(answer: Any) -> Any:
    """Return an answer without its times, which are of two clocks."""
    match answer:
        case Took():
            tasks = [replace(task, ready_ms=0) for task in answer.tasks]
            return replace(answer, now_ms=0, due_ms=0 if answer.due_ms else None, tasks=tasks)
        case Judged(version=version, verdicts=verdicts):
            return version, [(v.word, "" if v.won else v.detail) for v in verdicts]
        case Snapshot(bits=bytes() as bits):
            return replace(answer, bits=bits.rstrip(b"\0"), left=dict(answer.left))
        case [Record(), *_]:
            return told(answer)
    return answer


class SideBySide(RuleBasedStateMachine):
    """Drives the scripts on one server and the reference; old places and attempts stay in use, as on a slow network."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        store.client.flushall()
        self.store = store
        self.reference = MemoryStore(store.keys.cluster)
        self.commands = store.commands
        self.attempts: list[tuple[str, str, str]] = []  # scheduler, task, attempt: every take ever, the newest last
        self.places: list[Place] = []  # every place that was ever held, the newest last
        self.claims: list[Claim] = []  # theirs
        self.copies: dict[str, dict[str, list[str]]] = {"s1": {}, "s2": {}}  # of the index of kinds
        self.since = {"s1": "0", "s2": "0"}

    def both(self, call: Call[Any]) -> Any:
        """Run a call on both sides; the answers must be equal, and the states afterwards equal and sound."""
        answer, now_ms = self.store.run(call), self.reference.now_ms + 1
        self.reference.now_ms = self.time_of(call, answer) or now_ms
        expected, self.reference.now_ms = self.reference.run(call), now_ms
        assert comparable(answer) == comparable(expected), call.script.verb
        assert state_of_server(self.store) == state_of_reference(self.reference), call.script.verb
        if self.reference.now_ms % 8 == 0:
            self.teardown()
        return answer

    def time_of(self, call: Call[Any], answer: Any) -> int:
        """Return the server's time of a call if it can be in the state: in a lease or in an epoch; else 0."""
        if isinstance(answer, Judged):
            return answer.now_ms
        at = re.search(r":p(\d)\}", call.keys[0])
        client: Any = self.store.client
        return int(client.hget(self.store.keys.partition(int(at[1]), "meta"), "epoch") or 0) if at else 0

    def teardown(self) -> None:
        """Find equal states that are both wrong; here places without leases are none: they are confirmed by slips."""
        assert [fact for fact in audit(self.store) if "has no lease at its place" not in fact] == []

    def a_place(self, data: st.DataObject) -> Place:
        """Return a place of any time, mostly a late one, perhaps with a slip."""
        known = self.places or [Place("a", "1@1", 0, "n1", (0,), 1, 1)]
        place = known[-1 - data.draw(st.integers(0, len(known) - 1), "how late")]
        return replace(place, **data.draw(SLIPS, "slip"))

    def an_attempt(self, data: st.DataObject) -> tuple[str, str, str]:
        """Return a take of any time, mostly a late one."""
        known = self.attempts or [("s1", "a", "1@1")]
        return known[-1 - data.draw(st.integers(0, len(known) - 1), "how late")]

    # -- the way of a task, as it should be ---------------------------------------------------------------------------

    @initialize(offer=OFFERS, other=OFFERS)
    def two_nodes_and_some_tasks(self, offer, other):
        self.register_node(0, "n1", 0, offer)
        self.register_node(0, "n2", 0, other)
        self.submit(["a", "b", "c"], {}, None, None, "f")

    @rule(id=IDS, data=st.data())
    def go_on(self, id, data):
        """Take the step that comes next for a task."""
        task = self.reference.queue.find(id)
        held = [place for place in self.places if task and (place.task, place.attempt) == (id, task.attempt)]
        if task is None:
            self.submit([id], data.draw(NEEDS), None, None, "f")
        elif task.state == "pending":
            self.take("s1", 10)
            self.take("s1", 10)
        elif task.state == "taken" and not held:
            self.commit_where_it_fits(id, task.attempt, split_kind(task.job.kind).needs)
        elif held and task.state in ("taken", "placed"):
            late = task.state == "taken" and data.draw(st.booleans(), "the message comes late")
            self.both(self.commands.confirm([held[0]]) if late else self.commands.start([held[0]]))
        elif held and task.state == "running":
            outcome = data.draw(st.sampled_from(["succeeded", "failed", "again"]), "outcome")
            self.both(self.commands.finish([(held[0], outcome, "")]))
        elif held and (held[0].node, held[0].slot) in self.reference.partition(held[0].partition).leases:
            self.both(self.commands.release(held[0].partition, [held[0]]))
        else:
            self.both(self.commands.purge(task.state, [id]))

    @rule(id=IDS, slip=SLIPS, verb=st.sampled_from(["confirm", "start", "finish", "requeue", "release"]))
    def again_or_with_a_slip(self, id, slip, verb):
        """Repeat a request of a task's present attempt, or send it from another place."""
        task = self.reference.queue.find(id)
        held = [place for place in self.places if task and (place.task, place.attempt) == (id, task.attempt)]
        if held:
            place = replace(held[-1], **slip)
            calls: dict[str, Call[Any]] = {
                "confirm": self.commands.confirm([place]),
                "start": self.commands.start([place]),
                "finish": self.commands.finish([(place, "succeeded", "")]),
                "requeue": self.commands.requeue([(place, "")]),
                "release": self.commands.release(place.partition, [place]),
            }
            self.both(calls[verb])

    @rule(id=IDS, data=st.data())
    def go_on_until_it_runs(self, id, data):
        for _ in range(5):
            task = self.reference.queue.find(id)
            if task is None or task.state != "running":
                self.go_on(id, data)

    @rule(id=IDS, data=st.data(), why=WHY, how=HOW, last=st.booleans())
    def lose(self, id, data, why, how, last):
        """Requeue the present attempt of a task that has a place, perhaps as its last one."""
        task = self.reference.queue.find(id)
        if task and task.place and not task.state.final:
            if last:
                self.a_task_is_near_its_end(id)
            self.both(self.commands.requeue([(task.place, why)], how, [data.draw(DELAYS, "for how long")]))
            self.both(self.commands.read_tasks([id]))

    @rule(
        id=IDS,
        options=NEEDS,
        delay=DELAYS,
        expiry=EXPIRIES,
        publication=st.sampled_from(["", "", "c1", "c2", "s3"]),
        outcome=OUTCOMES,
        ends=st.booleans(),
    )
    def go_on_as_something_else(self, id, options, delay, expiry, publication, outcome, ends):
        """Submit what a task that runs does next, as its run does or as others do; and perhaps end the run."""
        task = self.reference.queue.find(id)
        if task and task.place and task.state == "running":
            after = "" if publication else task.attempt
            asked = TaskOptions.of(options, "q" if publication else "")
            next = Submission(id, "f", b"next" + publication.encode(), asked, delay, after, expiry, publication)
            self.both(self.commands.submit([next, next]))
            if ends:
                self.both(self.commands.finish([(task.place, outcome, "")]))
            self.both(self.commands.read_tasks([id]))

    def commit_where_it_fits(self, id, attempt, needs):
        """Claim the first free slots, wherever they are."""
        count = parse_resources(needs).slots
        for p, partition in self.reference.partitions.items():
            for node in partition.nodes.values():
                free = [slot for slot in range(node.span) if partition.is_free(node, slot)]
                if len(free) >= count:
                    self.claim(self.a_claim(id, attempt, p, node.name, tuple(free[:count]), needs))
                    return

    def a_claim(self, id, attempt, p, name, slots, needs, behind=0) -> Claim:
        """Return a claim as a scheduler makes it that has read the nodes, `behind` changes of them ago."""
        partition = self.reference.partition(p)
        node = partition.nodes.get(name)
        inc, first = (node.inc, node.first) if node else (1, 0)
        asked = parse_resources(needs).asked
        return Claim(id, attempt, p, name, slots, inc, asked, first, partition.epoch - behind)

    def claim(self, claim: Claim, times: int = 1) -> None:
        """Commit a claim, perhaps twice in one call."""
        judged = self.both(self.commands.commit(claim.partition, [claim] * times))
        if judged.verdicts[0].word == "held":
            self.places.append(claim.won(judged.now_ms))
            self.claims.append(claim)

    # -- the queue of tasks ------------------------------------------------------------------------------------------

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=3),
        options=NEEDS,
        delay=DELAYS,
        expiry=EXPIRIES,
        name=st.sampled_from(["f", "f", "f", "g"]),
    )
    def submit(self, ids, options, delay, expiry, name):
        asked = TaskOptions.of(options)
        tasks = [Submission(id, name, id.encode() + b"\xff", asked, delay, "", expiry) for id in ids]
        self.both(self.commands.submit(tasks))

    @rule(id=IDS, options=NEEDS, publication=st.sampled_from(["c1", "c2", "s3"]), delay=DELAYS, expiry=EXPIRIES)
    def publish(self, id, options, publication, delay, expiry):
        """Publish as Celery does: an id that has ended begins again."""
        task = Submission(id, "f", publication.encode(), TaskOptions.of(options, "q"), delay, "", expiry, publication)
        self.both(self.commands.submit([task]))

    @rule(data=st.data(), options=NEEDS, delay=DELAYS, expiry=EXPIRIES)
    def submit_what_is_next(self, data, options, delay, expiry):
        _, id, attempt = self.an_attempt(data)
        next = Submission(id, "f", b"next", TaskOptions.of(options), delay, attempt, expiry)
        self.both(self.commands.submit([next]))

    @rule(
        scheduler=SCHEDULERS,
        limit=st.sampled_from([0, 1, 2, 10, 10]),
        salt=st.sampled_from(["", ".1", ".482913"]),
        most=st.sampled_from([1, 2, 10, 10]),
        some=st.integers(0, 9),
        waits=st.sampled_from(["", "", "wait", "wake"]),
    )
    def take(self, scheduler, limit, salt="", most=10, some=9, waits=""):
        """Take of kinds that the scheduler knows of, and of one that may be due; hear what has changed since."""
        if any(due < NEVER_MS for due in self.reference.queue.later.values()):
            limit, most = 10, 10  # which of several that fell due in one millisecond goes first is not told
        rows = [(kind, limit) for kind in [*self.copies[scheduler]][:some]]
        if some % 3 == 0 and ("f slots=1", limit) not in rows:
            rows.append(("f slots=1", limit))
        took = self.both(self.commands.take(scheduler, rows, self.since[scheduler], most, salt, waits))
        self.attempts += [(scheduler, task.id, task.attempt) for task in took.tasks]
        copy = self.copies[scheduler] = {} if took.anew else self.copies[scheduler]
        self.since[scheduler] = took.version
        for kind, line in took.changes:
            copy.pop(kind, None)
            if line:
                copy[kind] = line.split()[:3]
        if not took.more:
            lines = {kind: queue.line().split()[:3] for kind, queue in self.reference.queue.kinds.items()}
            assert copy == lines, "a copy that follows the changes is the index"

    @rule(data=st.data(), scheduler=SCHEDULERS, whatever=st.booleans(), why=WHY)
    def give_back(self, data, scheduler, whatever, why):
        owner, id, attempt = self.an_attempt(data)
        self.both(self.commands.give_back(scheduler if whatever else owner, [(id, "" if whatever else attempt, why)]))

    @rule(kinds=st.lists(KINDS, min_size=1, max_size=3), why=WHY)
    def set_reason(self, kinds, why):
        self.both(self.commands.set_reason([(kind, why) for kind in kinds]))

    @rule(data=st.data())
    def confirm(self, data):
        self.both(self.commands.confirm([self.a_place(data), self.a_place(data)]))

    @rule(data=st.data())
    def start(self, data):
        self.both(self.commands.start([self.a_place(data), self.a_place(data)]))

    @rule(data=st.data(), outcomes=st.lists(st.tuples(OUTCOMES, WHY), min_size=1, max_size=3))
    def finish(self, data, outcomes):
        self.both(self.commands.finish([(self.a_place(data), outcome, why) for outcome, why in outcomes]))

    @rule(data=st.data(), why=WHY, how=HOW)
    def requeue(self, data, why, how):
        delays_ms = data.draw(st.lists(DELAYS, min_size=1, max_size=2), "for how long")
        self.both(self.commands.requeue([(self.a_place(data), why) for _ in delays_ms], how, delays_ms))

    @rule(ids=st.lists(IDS, min_size=1, max_size=3))
    def revive(self, ids):
        self.both(self.commands.revive(ids, "by an operator"))

    @rule(ids=st.lists(IDS, min_size=1, max_size=3), state=st.sampled_from(["succeeded", "failed", "dead"]))
    def purge(self, ids, state):
        self.both(self.commands.purge(state, ids))

    def an_option(self, id: str, name: str, value: int) -> None:
        """Write an option into the line of a task on the server."""
        tasks, client = self.store.keys.queue("tasks"), cast("Any", self.store.client)
        line = readable(client.hget(tasks, id))
        old = line.split(" ")[4]
        words = [word for word in old.split(",") if word != "-" and word.partition("=")[0] != name]
        client.hset(tasks, id, line.replace(f" {old} ", f" {','.join([*words, f'{name}={value}'])} ", 1))

    @rule(id=IDS)
    def a_task_is_near_its_end(self, id):
        """It has lost so many starts that the next one is its last."""
        task = self.reference.queue.tasks.get(id)
        if task and task.state != "dead":
            task.starts = self.commands.max_starts - 1
            self.an_option(id, "starts", task.starts)

    @rule(id=IDS, limit=st.sampled_from([1, 9]))
    def the_expiry_of_a_task_has_come(self, id, limit):
        task = self.reference.queue.tasks.get(id)
        if task and task.state != "dead":
            task.expires_ms = self.reference.queue.expires[id] = 1
            self.an_option(id, "expires", 1)
            self.store.client.zadd(self.store.keys.queue("expires"), {id: 1})
            self.expire(limit)
            self.both(self.commands.read_tasks([id]))

    @rule(limit=st.sampled_from([1, 9]))
    def expire(self, limit):
        self.both(self.commands.expire(9 if len(self.reference.queue.expires) > 1 else limit))

    @rule(ids=st.lists(IDS, min_size=1, max_size=2), how=st.sampled_from(["waiting", "placed", "SIGTERM", "after"]))
    def cancel(self, ids, how):
        self.both(self.commands.cancel(ids, how=how))

    @rule(later=st.booleans(), ids=st.lists(IDS, min_size=1, max_size=3))
    def rotate(self, later, ids):
        """Half the retention has passed, or not; rare fields last no longer than the oldest generation."""
        queue = self.reference.queue
        if later and queue.rotated_ms is not None:
            queue.rotated_ms = self.reference.now_ms - self.commands.retention_s * 500
            self.store.client.hset(self.store.keys.queue("meta"), "rotated_ms", 0)
            for id, task in queue.ended[2].items():
                task.why, task.history, task.told = None, [], False
                self.store.client.delete(self.store.keys.extra(id))
        self.both(self.commands.rotate())
        self.both(self.commands.read_tasks(ids))

    @rule(ids=st.lists(IDS, max_size=3), extras=st.booleans())
    def read_tasks(self, ids, extras):
        self.both(self.commands.read_tasks(ids, extras))

    @rule(node=NODES, offer=st.none() | OFFERS, names=st.sampled_from([["f", "g"], ["f"], None]))
    def offer(self, node, offer, names):
        tasks = KnownTasks.of(dict.fromkeys(names)) if names else None
        known = offer_with(offer, tasks, ["q"]) if offer and tasks else offer
        self.both(self.commands.offer(node, known.text if known else "", tasks if known else None))

    # -- a partition -------------------------------------------------------------------------------------------------

    @rule(p=PARTITIONS, node=NODES, known=st.sampled_from([0, 0, 1, 7]), offer=OFFERS)
    def register_node(self, p, node, known, offer):
        self.both(self.commands.register_node(p, node, known, 1.5, offer.text))

    @rule(data=st.data(), p=PARTITIONS, node=NODES, slots=SLOTS, needs=NEEDS, behind=st.sampled_from([0, 0, 0, 1]))
    def commit(self, data, p, node, slots, needs, behind):
        """Claim any slots; a scheduler that has read the nodes claims slots that there are."""
        _, id, attempt = self.an_attempt(data)
        text = Resources.of(len(slots), needs.get("resources")).text
        claim = self.a_claim(id, attempt, p, node, slots, text, behind)
        if behind or self.is_there(claim):
            self.claim(claim, data.draw(st.sampled_from([1, 1, 2]), "times in one call"))

    @rule(data=st.data(), slots=st.sampled_from([None, None, (0,), (1, 0)]))
    def commit_again(self, data, slots):
        """Repeat a claim of any time, whatever has become of the node; or claim other slots by the same old copy."""
        if self.claims:
            claim = self.claims[-1 - data.draw(st.integers(0, len(self.claims) - 1), "how late")]
            other = claim._replace(slots=slots or claim.slots)
            stale = claim.epoch < self.reference.partition(claim.partition).epoch
            self.claim(other if stale or self.is_there(other) else claim)

    def is_there(self, claim: Claim) -> bool:
        """Return whether the node has the slots of a claim."""
        node = self.reference.partition(claim.partition).nodes.get(claim.node)
        return node is not None and max(claim.slots) < node.span

    @rule(data=st.data(), times=st.sampled_from([1, 1, 2]))
    def release(self, data, times):
        place = self.a_place(data)
        self.both(self.commands.release(place.partition, [place] * times))

    @rule(p=PARTITIONS, back=st.integers(0, 2), waiter=st.sampled_from(["", "s1", "s2"]))
    def read_partition(self, p, back, waiter):
        self.both(self.commands.read_partition(p, self.reference.partition(p).version - back, waiter))

    @rule(p=PARTITIONS, node=NODES, inc=st.integers(1, 3))
    def renew(self, p, node, inc):
        self.both(self.commands.renew(p, node, inc))

    @rule(
        p=PARTITIONS,
        node=NODES,
        how=st.sampled_from(["still", "still", "moved", "list"]),
        limit=st.sampled_from([1, 9]),
    )
    def reclaim(self, p, node, how, limit):
        known = self.reference.partition(p).nodes.get(node)
        inc, moved = (known.inc, known.moved) if known else (1, 0)
        seen = {"still": moved, "moved": moved + 1, "list": None}[how]
        _, lost = self.both(self.commands.reclaim(p, node, inc, seen, limit))
        self.places += [lease.place for lease in lost]

    @rule(
        p=PARTITIONS,
        node=NODES,
        word=st.sampled_from(["drain", "drain", "over", "over", "undrain", "suspect", "trust", "leaving"]),
        inc=st.sampled_from([None, None, 1, 2]),
        terms=st.sampled_from(["", "deadline_s=5", "deadline_s=5", "deadline_s=7: why"]),
        why=st.sampled_from(["", "why"]),
    )
    def set_node(self, p, node, word, inc, terms, why):
        note = why if word == "suspect" else terms
        self.both(self.commands.set_node(p, node, word, inc, note))

    @rule(data=st.data(), read=st.booleans())
    def ring(self, data, read):
        place = self.a_place(data)
        if read:
            self.store.client.delete(self.store.keys.inbox(place.partition, place.node))
            if node := self.reference.partition(place.partition).nodes.get(place.node):
                node.inbox.clear()
        self.both(self.commands.ring(place))

    @rule(p=PARTITIONS, node=NODES)
    def forget_node(self, p, node):
        known = self.reference.partition(p).nodes.get(node)
        self.both(self.commands.forget_node(p, node, known.inc if known else 1))


STEPS = int(os.environ.get("PARSYNC_TEST_STEPS", "50"))


@pytest.mark.unaudited  # see SideBySide.teardown
@pytest.mark.timeout(900)  # a failure is shrunk first
def test_the_scripts_do_what_the_reference_says(any_store: Store, server_kind: str):
    examples = settings().max_examples * (1 if server_kind == FAKE else 3) // 3
    run_state_machine_as_test(
        lambda: SideBySide(any_store),  # type: ignore[arg-type] # any function that makes one
        settings=settings(max_examples=max(examples, 1), stateful_step_count=STEPS),
    )


WITHOUT_TWIN = {"quarantine", "discard", "record_loss", "repair_partition", "repair_task", "repair_kind"}
"""Verbs about damage and losses, of which the store in memory has none."""


def test_every_other_script_has_its_twin_in_the_reference():
    homes = (Queue, Partition, Cluster)
    lacking = {script.verb for script in ALL if not any(hasattr(home, script.verb) for home in homes)}
    assert lacking == WITHOUT_TWIN
