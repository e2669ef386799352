"""The scripts and the reference store are the same: driven side by side, same replies, same state,
nothing violated.
"""

import os
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from parsync_redis.model.allotment import AllotRow
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.ids import readable
from parsync_redis.model.kind import split_kind
from parsync_redis.model.needs import Resources, parse_needs
from parsync_redis.model.order import EARLIEST_START_MS, LATEST_START_MS
from parsync_redis.model.place import GiveBack, Place
from parsync_redis.model.policy_reader import read_declared
from parsync_redis.model.task import Submission
from parsync_redis.store import Call, Store
from parsync_redis.store.reference.cluster import Cluster
from parsync_redis.store.reference.store import Partition, Queue
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from tests.kit.partition_rules import (
    IDS,
    NEEDS,
    NODES,
    OFFERS,
    SCHEDULERS,
    SLIPS,
    PartitionRules,
    options_of,
)
from tests.kit.servers import server_programs

NEVER_MS = 10**9
WHY = st.sampled_from(["", "why"])
HOW = st.sampled_from(["", "", "unstarted", "recalled", "unbegun"])
PUBLICATIONS = st.sampled_from(["", "", "c1", "c2", "s3"])
CANCELS = st.sampled_from(["waiting", "placed", "SIGTERM", "after"])
OUTCOMES = st.sampled_from(["succeeded", "failed", "cancelled", "again", "unstored failed"])
DECLARED = st.sampled_from([{}, {"x": 1}, {"x": {"rate": "5/m"}, "y:*": 2, "y:1": 1}])
POLICIES = st.sampled_from(
    [
        [("z", "units=1 declared=1")],
        [("x", "units=2 shards=3"), ("y:*", "units=3 rate=9/1000 burst=3 shards=3")],
        [
            ("x", "rate=5/60000 burst=4 shards=3"),
            ("@a", "slots=3 gpu=1 shards=3"),
            ("y:*", "units=1"),
        ],
        [("x", "units=2"), ("y:*", "units=3"), ("z", "units=9")],
        [("x", "units=2"), ("y:*", "units=3"), ("@a", "slots=3 gpu=1")],
        [("x", "units=1"), ("y:1", "units=2"), ("y:*", "units=9"), ("@*", "slots=2")],
        [("x", "units=0"), ("y:*", "units=0"), ("@a/*", "gpu=0.5")],
        [],
    ]
)
ALLOTMENTS = st.sampled_from(
    [
        ("x", "units=1", "0"),
        ("x", "burst=2 units=2", "1234.500"),
        ("y:1", "burst=1 units=3", "0"),
        ("y:2", "burst=3 units=9", "99999999999999"),
        ("@a", "gpu=0.5 slots=2", "0"),
        ("@a", "slots=1", ""),
        ("x", "0", ""),
        ("y:1", "", ""),
    ]
)
KINDS = st.sampled_from(["f slots=1", "f slots=2", "g slots=1"])
DELAYS = st.sampled_from([None, None, None, 0, NEVER_MS])
EXPIRIES = st.sampled_from([None, None, None, None, 0, NEVER_MS])
STARTS = st.sampled_from([None, None, None, EARLIEST_START_MS, 0, LATEST_START_MS])


class SideBySide(PartitionRules):
    """Drives the queue as well."""

    def queue_of(self, id: str) -> Queue:
        """Return the shard of a task."""
        return self.reference.queues[self.store.keys.shard_of(id)]

    # -- the way of a task, as it should be --------------------------------------------------------

    @initialize(offer=OFFERS, other=OFFERS)
    def nodes_and_some_tasks(self, offer, other):
        """Register nodes; nothing happens to the third node, so that most tasks can run there."""
        self.register_node(0, "n1", 0, offer)
        self.register_node(0, "n2", 0, other)
        self.register_node(0, "n3", 0, Resources.of(9, {"gpu": 3, "mem": 7}, {"zone": "a"}))
        self.set_policy([("x", "units=2"), ("y:*", "units=3"), ("@a", "slots=5")])
        self.submit(["a", "b"], {}, None, None, "f")
        self.publish("c", {}, "c1", None, None)
        self.publish("d", {}, "s3", None, None)

    @rule(id=IDS, data=st.data())
    def go_on(self, id, data):
        """Take the step that comes next for a task."""
        task = self.queue_of(id).find(id)
        held = [
            place
            for place in self.places
            if task and (place.task, place.attempt) == (id, task.attempt)
        ]
        if task is None:
            self.publish(id, data.draw(NEEDS), data.draw(PUBLICATIONS), None, None)
        elif task.state == "pending":
            shard = self.store.keys.shard_of(id)
            self.take("s1", 10, shard=shard)
            self.take("s1", 10, shard=shard)
        elif task.state == "taken" and not held:
            self.commit_where_it_fits(id, task.attempt, split_kind(task.job.kind).needs)
        elif held and task.state in ("taken", "placed"):
            late = task.state == "taken" and data.draw(st.booleans(), "the message comes late")
            two = [held[0], replace(held[0], **data.draw(SLIPS, "slip"))]
            self.both(self.commands.confirm(two) if late else self.commands.start(two))
        elif held and task.state == "running":
            outcome = data.draw(st.sampled_from(["succeeded", "failed", "again"]), "outcome")
            self.both(self.commands.finish([(held[0], outcome, "")]))
        elif (
            held
            and (held[0].node, held[0].slot) in self.reference.partition(held[0].partition).leases
        ):
            self.both(self.commands.release(held[0].partition, [held[0]]))
        else:
            self.both(self.commands.purge(task.state, [id]))

    @rule(
        id=IDS,
        slip=SLIPS,
        verb=st.sampled_from(["confirm", "start", "finish", "requeue", "release"]),
        data=st.data(),
    )
    def again_or_with_a_slip(self, id, slip, verb, data):
        """Send a request of a task's present attempt twice in one call, perhaps once from another
        place.
        """
        task = self.queue_of(id).find(id)
        held = [
            place
            for place in self.places
            if task and (place.task, place.attempt) == (id, task.attempt)
        ]
        if held:
            two = [held[-1], replace(held[-1], **slip)]
            some = two if data.draw(st.booleans(), "both") else two[1:]
            calls: dict[str, Call[Any]] = {
                "confirm": self.commands.confirm(some),
                "start": self.commands.start(some),
                "finish": self.commands.finish(
                    [(place, data.draw(OUTCOMES, "outcome"), "") for place in some]
                ),
                "requeue": self.commands.requeue([(place, "") for place in some]),
                "release": self.commands.release(two[0].partition, some),
            }
            self.both(calls[verb])

    @rule(id=IDS, data=st.data())
    def go_on_until_it_runs(self, id, data):
        self.until_it_runs(id, data)

    def until_it_runs(self, id, data) -> Place | None:
        """Go on with a task; return its place if it runs then."""
        for _ in range(7):
            task = self.queue_of(id).find(id)
            if task and task.state == "running":
                return task.place
            self.go_on(id, data)
        return None

    @rule(
        id=IDS,
        data=st.data(),
        why=WHY,
        how=HOW,
        last=st.booleans(),
        then=st.sampled_from(["revive", "publish", "run", "run"]),
    )
    def lose(self, id, data, why, how, last, then):
        """Requeue a task that runs, perhaps as its last attempt; then it may be revived, or run
        again.
        """
        if place := self.until_it_runs(id, data):
            if last:
                self.a_task_is_near_its_end(id)
            self.both(
                self.commands.requeue([(place, why)], how, [data.draw(DELAYS, "for how long")])
            )
            if then != "run":
                self.revive([id])
            if then == "publish":
                self.publish(id, {}, "c9", None, None)
            if then == "run" and (place := self.until_it_runs(id, data)):
                self.both(self.commands.finish([(place, data.draw(OUTCOMES, "outcome"), "")]))
            self.both(self.commands.read_tasks([id]))

    @rule(
        id=IDS,
        data=st.data(),
        delay=DELAYS,
        expiry=EXPIRIES,
        publication=PUBLICATIONS,
        before=st.sampled_from(["", "", "requeue", "cancel"]),
    )
    def go_on_as_something_else(self, id, data, delay, expiry, publication, before):
        """Submit what a task that has run does next, as its run does or as others do; and perhaps
        end the run.
        """
        if place := self.until_it_runs(id, data):
            after = "" if publication else place.attempt
            if before == "requeue":
                self.both(self.commands.requeue([(place, "")], "recalled"))
            elif before:
                for how in data.draw(st.permutations(["SIGTERM", "after"]), "how"):
                    self.both(self.commands.cancel([id], how=how))
            options = options_of(data.draw(NEEDS, "options"), "q" if publication else "")
            next = Submission(
                id,
                "f",
                b"next" + publication.encode(),
                options,
                delay,
                after,
                expiry,
                publication,
                data.draw(STARTS, "start"),
            )
            self.both(self.commands.submit([next, next]))
            if data.draw(st.booleans(), "ends"):
                self.both(self.commands.finish([(place, data.draw(OUTCOMES, "outcome"), "")]))
            self.both(self.commands.read_tasks([id]))

    def commit_where_it_fits(self, id, attempt, needs):
        """Claim the first free slots, wherever they are; or free some of the third node."""
        resources = parse_needs(needs)
        for p, partition in self.reference.partitions.items():
            for node in partition.nodes.values():
                free = [slot for slot in range(node.span) if partition.is_free(node, slot)]
                if len(free) >= resources.slots and all(
                    node.amounts_left.get(name, 0) >= amount for name, amount in resources.amounts
                ):
                    self.claim(
                        self.a_claim(
                            id, attempt, p, node.name, tuple(free[: resources.slots]), needs
                        )
                    )
                    return
        if held := [
            lease for (node, _), lease in self.reference.partition(0).leases.items() if node == "n3"
        ]:
            self.both(self.commands.release(0, held[:1]))

    # -- the queue of tasks ------------------------------------------------------------------------

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=3),
        options=NEEDS,
        delay=DELAYS,
        expiry=EXPIRIES,
        name=st.sampled_from(["f", "f", "f", "g"]),
        apps=st.sampled_from(["", "", "", "1"]),
        start=STARTS,
    )
    def submit(self, ids, options, delay, expiry, name, apps="", start=None):
        asked = options_of(options)
        tasks = [
            Submission(id, name, id.encode() + b"\xff", asked, delay, "", expiry, start_ms=start)
            for id in ids
        ]
        self.both(self.commands.submit(tasks, [apps]))

    @rule(
        id=IDS,
        options=NEEDS,
        publication=PUBLICATIONS,
        delay=DELAYS,
        expiry=EXPIRIES,
        start=STARTS,
    )
    def publish(self, id, options, publication, delay, expiry, start=None):
        """Publish as Celery does: an id that has ended begins again."""
        task = Submission(
            id,
            "f",
            publication.encode(),
            options_of(options, "q"),
            delay,
            "",
            expiry,
            publication,
            start,
        )
        self.both(self.commands.submit([task]))

    @rule(data=st.data(), options=NEEDS, delay=DELAYS, expiry=EXPIRIES, start=STARTS)
    def submit_what_is_next(self, data, options, delay, expiry, start):
        _, id, attempt = self.an_attempt(data)
        asked = options_of(options)
        next = Submission(id, "f", b"next", asked, delay, attempt, expiry, start_ms=start)
        self.both(self.commands.submit([next]))

    @rule(
        scheduler=SCHEDULERS,
        limit=st.sampled_from([0, 1, 2, 10, 10]),
        salt=st.sampled_from(["", ".1", ".482913"]),
        most=st.sampled_from([1, 2, 10, 10]),
        some=st.integers(0, 9),
        waits=st.sampled_from(["", "", "wait", "wake"]),
        shard=st.integers(0, 2),
    )
    def take(self, scheduler, limit, salt="", most=10, some=9, waits="", shard=0):
        """Take of kinds that the scheduler knows of, and of one that may be due; hear what has
        changed since.
        """
        shard %= self.store.keys.shards
        queue = self.reference.queues[shard]
        mine = (scheduler, shard)
        if any(due < NEVER_MS for due in queue.later.values()):
            # which of several that fell due in one millisecond goes first is not told
            limit = 10
            most = 10
        kinds = [kind for kind in self.copies.get(mine, {}) if kind[0] != "="]
        rows = [(kind, limit) for kind in kinds[:some]]
        if some % 3 == 0 and ("f slots=1", limit) not in rows:
            rows.append(("f slots=1", limit))
        took = self.both(
            self.commands.take(scheduler, rows, self.since.get(mine, "0"), most, salt, waits, shard)
        )
        self.attempts += [(scheduler, task.id, task.attempt) for task in took.tasks]
        copy = self.copies[mine] = {} if took.anew else self.copies.get(mine, {})
        self.since[mine] = took.version
        for kind, line in took.changes:
            copy.pop(kind, None)
            if line:
                copy[kind] = line.partition(" of ")[0] if kind[0] == "=" else line.split()[:3]
        if not took.more:
            lines = {kind: waiting.line().split()[:3] for kind, waiting in queue.kinds.items()}
            assert {kind: line for kind, line in copy.items() if kind[0] != "="} == lines, (
                "a copy that follows the changes is the index"
            )
            for name in (name for name in copy if name[0] == "="):
                assert copy[name] == queue.accounts.line(name[1:]).partition(" of ")[0]

    @rule(
        data=st.data(),
        scheduler=SCHEDULERS,
        whatever=st.booleans(),
        how=st.sampled_from(["", "undo"]),
        why=WHY,
    )
    def give_back(self, data, scheduler, whatever, how, why):
        owner, id, attempt = self.an_attempt(data)
        row = (id, "" if whatever else attempt, how, why)
        self.both(self.commands.give_back(scheduler if whatever else owner, [row]))

    @rule(scheduler=SCHEDULERS, shard=st.integers(0, 2))
    def undo(self, scheduler, shard):
        """Take what waits and undo that; a late repetition of the take gives out other attempts."""
        known = len(self.attempts)
        for _ in range(2):
            before = len(self.attempts)
            self.take(scheduler, 10, shard=shard)
            undone = self.attempts[before:]
            rows: list[tuple[str, str, GiveBack, str]] = [
                (id, attempt, "undo", "") for _, id, attempt in undone
            ]
            if rows:
                self.both(self.commands.give_back(scheduler, rows))
        given = [pair[1:] for pair in self.attempts[known:]]
        assert len(given) == len({*given})

    @rule(kinds=st.lists(KINDS, min_size=1, max_size=3), why=WHY)
    def set_reason(self, kinds, why):
        self.both(self.commands.set_reason([(kind, why) for kind in kinds]))

    @rule(ids=st.lists(IDS, min_size=1, max_size=3, unique=True))
    def note_choices(self, ids):
        self.both(self.commands.note_choices([(id, "{}") for id in ids], 0))

    @rule(data=st.data())
    def confirm(self, data):
        self.both(self.commands.confirm([self.a_place(data), self.a_place(data)]))

    @rule(data=st.data(), most=st.sampled_from([0, 1, 1, 2, 9]))
    def start(self, data, most):
        two = [self.a_place(data), self.a_place(data)]
        self.both(self.commands.start(two, most if two[0].task != two[1].task else 9))

    @rule(data=st.data(), outcomes=st.lists(st.tuples(OUTCOMES, WHY), min_size=1, max_size=3))
    def finish(self, data, outcomes):
        self.both(
            self.commands.finish([(self.a_place(data), outcome, why) for outcome, why in outcomes])
        )

    @rule(data=st.data(), why=WHY, how=HOW)
    def requeue(self, data, why, how):
        delays_ms = data.draw(st.lists(DELAYS, min_size=1, max_size=2), "for how long")
        self.both(
            self.commands.requeue([(self.a_place(data), why) for _ in delays_ms], how, delays_ms)
        )

    @rule(ids=st.lists(IDS, min_size=1, max_size=3))
    def revive(self, ids):
        self.both(self.commands.revive(ids, "by an operator"))

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=3),
        state=st.sampled_from(["succeeded", "failed", "dead"]),
    )
    def purge(self, ids, state):
        self.both(self.commands.purge(state, ids))

    def an_option(self, id: str, name: str, value: int) -> None:
        """Write an option into the line of a task on the server."""
        tasks = self.store.keys.in_shard_of("tasks", id)
        client = cast("Any", self.store.client)
        line = readable(client.hget(tasks, id))
        old = line.split(" ")[4]
        words = [word for word in old.split(",") if word != "-" and word.partition("=")[0] != name]
        client.hset(
            tasks, id, line.replace(f" {old} ", f" {','.join([*words, f'{name}={value}'])} ", 1)
        )

    @rule(id=IDS)
    def a_task_is_near_its_end(self, id):
        """Give a task so many lost starts that the next lost start makes it dead."""
        task = self.queue_of(id).tasks.get(id)
        if task and task.state != "dead":
            task.starts = self.commands.max_starts - 1
            self.an_option(id, "starts", task.starts)

    @rule(id=IDS, limit=st.sampled_from([1, 9]))
    def the_expiry_of_a_task_has_come(self, id, limit):
        task = self.queue_of(id).tasks.get(id)
        if task and task.state != "dead":
            task.expires_ms = self.queue_of(id).expires[id] = 1
            self.an_option(id, "expires", 1)
            self.store.client.zadd(self.store.keys.in_shard_of("expires", id), {id: 1})
            self.expire(limit)
            self.both(self.commands.read_tasks([id]))

    @rule(limit=st.sampled_from([1, 9]))
    def expire(self, limit):
        self.both(
            self.commands.expire(
                9 if any(len(queue.expires) > 1 for queue in self.reference.queues) else limit
            )
        )

    @rule(ids=st.lists(IDS, min_size=1, max_size=2), how=CANCELS)
    def cancel(self, ids, how):
        self.both(self.commands.cancel(ids, how=how))

    @rule(id=IDS, times=st.sampled_from([1, 1, 2, 3]), data=st.data())
    def rotate(self, id, times, data):
        """End a task and let half the retention pass; rare fields last no longer than the oldest
        generation.
        """
        if place := self.until_it_runs(id, data):
            self.both(self.commands.finish([(place, "succeeded", "")]))
        self.both(self.commands.rotate())
        for _ in range(times):
            for shard, queue in enumerate(self.reference.queues):
                queue.rotated_ms = self.reference.now_ms - self.commands.retention_s * 500
                self.store.client.hset(self.store.keys.queue("meta", shard), "rotated_ms", 0)
                for old, task in queue.ended[2].items():
                    task.why = None
                    task.history = []
                    task.end_unseen = False
                    self.store.client.delete(self.store.keys.extra(old))
            self.both(self.commands.rotate())
        self.both(self.commands.read_tasks([id]))

    @rule(ids=st.lists(IDS, max_size=3), extras=st.booleans())
    def read_tasks(self, ids, extras):
        self.both(self.commands.read_tasks(ids, extras))

    @rule(ceilings=POLICIES)
    def set_policy(self, ceilings):
        for shard in range(self.store.keys.shards):
            self.both(self.commands.set_policy(ceilings, shard))

    @rule(names=st.lists(st.sampled_from(["x", "y:*", "y:1", "z"]), min_size=1, unique=True))
    def remove_declared(self, names):
        for shard in range(self.store.keys.shards):
            self.both(self.commands.remove_declared(names, shard))

    @rule(
        shard=st.integers(0, 2),
        rows=st.lists(ALLOTMENTS, max_size=3, unique_by=lambda row: row[0]),
        sealing=st.sampled_from(["seal", "", "", "late"]),
    )
    def allot(self, shard, rows, sealing):
        shard %= self.store.keys.shards
        seal = self.reference.queues[shard].accounts.seal
        seals = {"seal": "", "late": "1.late"}
        rows = [AllotRow(*row) for row in rows]
        self.both(self.commands.allot(seals.get(sealing, seal), "salt", rows, shard))

    @rule(shard=st.integers(0, 2))
    def fix_shards(self, shard):
        """Let a scheduler fix the number of shards."""
        shards = self.store.keys.shards
        self.both(self.commands.fix_shards(shard % shards, shards, shards))

    @rule(
        node=NODES,
        offer=st.none() | OFFERS,
        names=st.sampled_from([["f", "g"], ["f"], None]),
        limits=DECLARED,
    )
    def offer(self, node, offer, names, limits):
        tasks = KnownTasks.of(dict.fromkeys(names), read_declared(limits)) if names else None
        known = offer_with(offer, tasks, ["q"]) if offer and tasks else offer
        self.both(self.commands.offer(node, known.text if known else "", tasks if known else None))


STEPS = int(os.environ.get("PARSYNC_TEST_STEPS", "50"))


@pytest.mark.unaudited  # see SideBySide.teardown
@pytest.mark.parametrize("shards", [1, 3])
def test_the_scripts_behave_like_the_reference_store(
    any_store: Store, server_kind: str, shards: int
):
    any_store.keys.shards = shards
    """The examples are the same on each server; so most of them run on the first one."""
    examples = (
        settings().max_examples * (3 if server_kind == next(iter(server_programs())) else 1) // 3
    )
    run_state_machine_as_test(
        lambda: SideBySide(any_store),  # type: ignore[arg-type] # any function that makes one
        settings=settings(max_examples=max(examples, 1), stateful_step_count=STEPS),
    )


WITHOUT_TWIN = {
    "quarantine",
    "discard",
    "record_loss",
    "repair_partition",
    "look_at_nodes",
    "restore",
    "repair_task",
    "repair_kind",
    "repair_queue",
    "look_over",
    "repair_offers",
    "learn_times",
    "report_failures",
    "write_policy",
    "recount",
}
"""Verbs about damage, losses, run times, failures and the policy's document, of which the store in memory has none."""


def test_every_remaining_script_has_a_twin_in_the_reference_store():
    homes = (Queue, Partition, Cluster)
    lacking = {
        script.verb
        for script in ALL_SCRIPTS
        if not any(hasattr(home, script.verb) for home in homes)
    }
    assert lacking == WITHOUT_TWIN
