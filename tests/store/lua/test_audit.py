"""The oracle and `doctor --audit` name each fact that a broken state violates, and nothing of a
state that is well.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from parsync_redis.cli.app import app
from parsync_redis.inspect.audit import audit as look
from parsync_redis.inspect.audit import find_keys
from parsync_redis.model.order import MAX_ORDER
from parsync_redis.model.task import StoredState, Submission
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.repair.repair_all import repair_all
from tests.kit.driver import NEVER_MS, Driver, nth
from tests.kit.oracle.audit import audit


@pytest.fixture
def busy(drive: Driver) -> Driver:
    """Return a cluster with something of everything."""
    drive.node("n1", 4, {"gpu": 3}, {"zone": "a"})
    drive.node("n2", 2)
    place = drive.held("runs", drive.taken("runs"), slots=(0, 2), needs="slots=2 gpu=1")
    assert drive.start(place) == "ok"
    drive.held("lost", "1@9.s1.0", node="n2", inc=2)
    drive.lose("n2", 2)
    drive.bring(StoredState.SUCCEEDED, "done")
    drive.bring(StoredState.TAKEN, "taken")
    drive.submit("late", delay_ms=NEVER_MS)
    drive.submit("waits")
    drive.run(drive.commands.renew_scheduler("s1", stats={"placed": 1}))
    drive.offer("n1", "slots=4 gpu=3 zone:a", "work")
    drive.run(
        drive.commands.configure({"partitions": 1, "gap_ms": 500, "lease_ms": 10000, "shards": 1})
    )
    drive.store.client.hset(drive.keys.queue("meta"), "shards", 1)
    return drive


def test_a_state_that_is_well_violates_nothing(busy: Driver):
    assert audit(busy.store) == []
    assert look(busy.store) == []


def test_other_clusters_on_the_server_are_not_looked_at(busy: Driver):
    busy.store.client.set("parsync:{" + busy.keys.cluster + "2}:config", "x")
    busy.store.client.set("_kombu.binding.celery", "x")
    assert audit(busy.store) == []
    assert look(busy.store) == []


Break = Callable[[Any, Callable[[str], str], Callable[[str], str]], object]

BROKEN: dict[str, Break] = {
    "is of no known kind and never expires": lambda c, q, p: c.set(q("more"), 1),
    "task waits: not the line of a task: 'x'": lambda c, q, p: c.hset(q("tasks"), "waits", "x"),
    "task waits is in pending, but has no line": lambda c, q, p: c.hdel(q("tasks"), "waits"),
    "task late is in later, but has no line": lambda c, q, p: c.hdel(q("tasks"), "late"),
    "task taken is in taken, but has no line": lambda c, q, p: c.hdel(q("tasks"), "taken"),
    "task runs is in running, but has no line": lambda c, q, p: c.hdel(q("tasks"), "runs"),
    "task ghost is in running, but has no line": lambda c, q, p: c.hset(q("running"), "ghost", "x"),
    "task ghost is in dead, but has no line": lambda c, q, p: c.zadd(q("dead"), {"ghost": 1}),
    "task waits has no message": lambda c, q, p: c.hdel(q("messages"), "waits"),
    "there are 5 messages, of 4 tasks": lambda c, q, p: c.hset(q("messages"), "ghost", "m"),
    "task waits has not ended, but is in no index": lambda c, q, p: c.zrem(
        q("pending:work slots=1"), "waits"
    ),
    "task late has not ended, but is in pending and later": lambda c, q, p: c.zadd(
        q("pending:work slots=1"), {"late": MAX_ORDER}
    ),
    "task runs has not ended, but is in taken and running": lambda c, q, p: c.hset(
        q("taken"), "runs", nth(1)
    ),
    "task taken has not ended, but is in taken and dead": lambda c, q, p: c.zadd(
        q("dead"), {"taken": 1}
    ),
    "task waits waits at 7": lambda c, q, p: c.zadd(q("pending:work slots=1"), {"waits": 7}),
    "task runs runs at no place: 'p0 n1/1": lambda c, q, p: c.hset(
        q("running"), "runs", "p0 n1/1 inc=1"
    ),
    "task runs runs at no place: 'done": lambda c, q, p: c.hset(
        q("running"), "runs", f"done {nth(1)} p0 n1/0 inc=1 since=1"
    ),
    "task runs has no lease at its place": lambda c, q, p: c.hset(
        q("running"), "runs", f"runs {nth(1)} p0 n1/0 inc=1 since=1"
    ),
    "task waits waits as other, its line says work slots=1": lambda c, q, p: c.zadd(
        q("pending:other"), {"waits": 1}
    ),
    "task waits has an attempt that was never given out": lambda c, q, p: c.hset(
        q("tasks"), "waits", c.hget(q("tasks"), "waits").replace(b"0@5", b"0@99")
    ),
    "task taken has an attempt that was never given out": lambda c, q, p: c.hset(
        q("taken"), "taken", nth(2, 3)
    ),
    "task done has ended, and has not ended": lambda c, q, p: c.hset(q("tasks"), "done", "x"),
    "task done has ended twice": lambda c, q, p: c.hset(
        q("ended_2"), "done", c.hget(q("ended"), "done")
    ),
    "task done has ended in no state that there is: 'x'": lambda c, q, p: c.hset(
        q("ended_1"), "done", "x"
    ),
    "task done has ended in no state that there is: 'running 1": lambda c, q, p: c.hset(
        q("ended"), "done", "running 1\n\n\n"
    ),
    "task waits has rare fields of which its line does not tell": lambda c, q, p: c.hset(
        q("extra:waits"), "why", "x"
    ),
    "task waits has not ended, but its rare fields expire": lambda c, q, p: (
        c.hset(q("extra:waits"), "why", "x"),
        c.expire(q("extra:waits"), 99),
    ),
    "task done has ended, but its rare fields never expire": lambda c, q, p: c.hset(
        q("extra:done"), "why", "x"
    ),
    "task waits keeps cancel, next, run, ended_ms of a run that is over": lambda c, q, p: c.hset(
        q("extra:waits"),
        mapping={"cancel": "SIGTERM", "next": "0 - - work slots=1", "run": "x", "ended_ms": "1"},
    ),
    "kind work slots=1: 1 tasks wait, its line says 2": lambda c, q, p: c.hset(
        q("kinds"), "work slots=1", "2 1 9"
    ),
    "kind work slots=1: 1 tasks wait, its line says nothing": lambda c, q, p: c.hdel(
        q("kinds"), "work slots=1"
    ),
    "kind other: 0 tasks wait, its line says 2": lambda c, q, p: c.hset(
        q("kinds"), "other", "2 1 9"
    ),
    "kind work slots=1: not a line of kinds: 'x'": lambda c, q, p: c.hset(
        q("kinds"), "work slots=1", "x"
    ),
    "its line says 1 7 8121795630000009": lambda c, q, p: c.hset(
        q("kinds"), "work slots=1", "1 7 8121795630000009"
    ),
    "its line says 1 8121795630000005 9": lambda c, q, p: c.hset(
        q("kinds"), "work slots=1", "1 8121795630000005 9"
    ),
    "kind work slots=1: its line changed at version None": lambda c, q, p: c.zrem(
        q("changed"), "work slots=1"
    ),
    "kind work slots=1: its line changed at version 900000000000000.0": lambda c, q, p: c.zadd(
        q("changed"), {"work slots=1": 9e14}
    ),
    "two kinds changed at the same version": lambda c, q, p: c.zadd(q("changed"), {"a": 1, "b": 1}),
    "p0: slot n1/1 has the free bit 0, but is usable and without a lease": lambda c, q, p: c.setbit(
        p("free"), 1, 0
    ),
    "p0: slot n1/0 has the free bit 1, but is leased to runs": lambda c, q, p: c.setbit(
        p("free"), 0, 1
    ),
    "p0: slot n2/1 has the free bit 1, but is not usable": lambda c, q, p: c.setbit(
        p("free"), 5, 1
    ),
    "p0: bit 40 is 1, but is of no node": lambda c, q, p: c.setbit(p("free"), 40, 1),
    "p0: bit 2 is of n1 and of n2": lambda c, q, p: c.hset(
        p("nodes"), "n2", "down inc=2 drain=0 first=2 span=2 score=1.0 slots=2"
    ),
    "p0: slot n9/0 is leased to x, but nobody would look there": lambda c, q, p: c.hset(
        p("slots"), "n9/0", "x 1@1 p0 n9/0 inc=1 since=1"
    ),
    "has a lease of incarnation 8, but the node is at 1": lambda c, q, p: c.hset(
        p("slots"), "n1/1", "x 1@1 p0 n1/1 inc=8 since=1"
    ),
    "p0: slot n2/0 has a lost lease, but n2 is not listed as lost": lambda c, q, p: c.srem(
        p("lost"), "n2"
    ),
    "p0: slot n1/0 has a lease of n1/2 as well, which has another": lambda c, q, p: c.hdel(
        p("slots"), "n1/2"
    ),
    "p0: slot n1/2 has a lease of n1/0 as well, which has another": lambda c, q, p: c.hdel(
        p("slots"), "n1/0"
    ),
    "p0: slot n1/1 has a lease of partition 7": lambda c, q, p: c.hset(
        p("slots"), "n1/1", "x 1@1 p7 n1/1 inc=1 since=1"
    ),
    "slot n1/0: not a lease": lambda c, q, p: c.hset(p("slots"), "n1/0", "nonsense"),
    "node n1: not a node record": lambda c, q, p: c.hset(p("nodes"), "n1", "nonsense"),
    "p0: node n1 has 'gpu=3' left, but by its leases 'gpu=2'": lambda c, q, p: c.hset(
        p("left"), "n1", "gpu=3"
    ),
    "p0: amounts are left of n9, which is no node": lambda c, q, p: c.hset(
        p("left"), "n9", "gpu=3"
    ),
    "p0: a change of n9 is noted, which is no node": lambda c, q, p: c.zadd(
        p("changed"), {"n9": 1}
    ),
    "p0: a change of n1 is noted at version 99, the partition is at": lambda c, q, p: c.zadd(
        p("changed"), {"n1": 99}
    ),
    "p0: it is not known since when changes of its nodes are noted": lambda c, q, p: c.zrem(
        p("changed"), ""
    ),
    "p0: node n1 is at incarnation 1, its counter says": lambda c, q, p: c.hset(
        p("alive"), "n1", "inc=2 moved=0"
    ),
    "the partition's highest is 1": lambda c, q, p: c.hset(p("meta"), "inc", 1),
    "p0: there is a counter of n9, which is no node": lambda c, q, p: c.hset(
        p("alive"), "n9", "inc=1 moved=0"
    ),
    "p0: there is an inbox of n9, which is no node": lambda c, q, p: c.lpush(p("inbox:n9"), "x"),
    "p0: meta says slots 7, counted 6": lambda c, q, p: c.hset(p("meta"), "slots", 7),
    "p0: meta says free 9, counted 2": lambda c, q, p: c.hset(p("meta"), "free", 9),
}


NAMED_AS = {
    "there are 5 messages, of 4 tasks": ":messages: there are 5 messages, of 4 tasks",
    "task waits has an attempt that was never given out": ":meta submitted:",
    "two kinds changed at the same version": ":kinds a:",
    "p0: bit 40 is 1, but is of no node": ":free bits:",
    "p0: bit 2 is of n1 and of n2": ":nodes n2:",
    "p0: slot n9/0 is leased to x, but nobody would look there": ":nodes n9:",
    "p0: slot n2/0 has a lost lease, but n2 is not listed as lost": ":lost n2:",
    "p0: node n1 has 'gpu=3' left, but by its leases 'gpu=2'": ":left n1:",
    "p0: amounts are left of n9, which is no node": ":left n9:",
    "p0: a change of n9 is noted, which is no node": ":changed n9:",
    "p0: a change of n1 is noted at version 99, the partition is at": ":changed n1:",
    "p0: it is not known since when changes of its nodes are noted": ":changed:",
    "the partition's highest is 1": ":meta inc:",
    "p0: there is a counter of n9, which is no node": ":alive n9:",
    "p0: meta says slots 7, counted 6": ":meta slots:",
    "p0: meta says free 9, counted 2": ":meta free:",
}
"""Facts that the scripts that look tell of another thing than the oracle, and of which."""


UNREGISTERED = "but the node is at 0"
"""A node whose record was lost has leases, and no incarnation until it registers again."""


def subject(fact: str) -> str:
    """Return the words by which a fault of a task, a kind, a slot or a node names it."""
    match = re.match(r"(?:p0: )?(?:(kind) ([^:]+)|(task|slot|node) ([^ :]+))", fact)
    assert match, fact
    key = {"task": ":tasks ", "kind": ":kinds "}.get(match[1] or match[3], " ")
    return f"{key}{match[2] or match[4]}:"


@pytest.mark.dealt
@pytest.mark.unaudited
@pytest.mark.parametrize("fact", BROKEN)
def test_a_violated_fact_is_named_by_the_oracle_and_by_the_scripts_that_look(
    busy: Driver, fact: str
):
    queue = busy.keys.prefix("extra:").removesuffix("extra:")
    partition = busy.keys.inbox(0, "").removesuffix("inbox:")
    BROKEN[fact](busy.store.client, lambda kind: queue + kind, lambda kind: partition + kind)
    (whole, *_) = [fault for fault in audit(busy.store) if fact in fault] or [""]
    assert whole, audit(busy.store)
    named = look(busy.store)
    if whole not in named:
        words = NAMED_AS.get(fact) or subject(whole)
        assert any(words in fault for fault in named), (whole, words, named)
        repair_all(busy.store, kinds=find_keys(busy.store).kinds)
        left = [fault for fault in audit(busy.store) if not fault.endswith(UNREGISTERED)]
        assert left == look(busy.store) == [], "what the scripts name is repaired"


def test_many_tasks_are_read_in_chunks(store: Store):
    drive = Driver(store)
    drive.node("n1", 1500)
    for at in range(0, 1200, 400):
        drive.run(
            drive.commands.submit(
                [Submission(f"t{number}", "work", b"") for number in range(at, at + 400)]
            )
        )
    claims = [
        drive.claim(task, attempt, slots=(int(task[1:]),))
        for task, attempt in drive.take(limit=500).items()
    ]
    assert all(verdict.won for verdict in drive.run(drive.commands.commit(0, claims)).verdicts)
    assert audit(store) == []
    drive.unlist("t1111")
    assert audit(store) == ["task t1111 has not ended, but is in no index"]
    assert drive.run(drive.commands.repair_task("t1111", "why")) == "pending"


def test_the_audit_lets_only_publishes_outlive_their_run(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    drive.submit("a", message=b"next", publication="c1")
    drive.requeue(place)
    assert audit(drive.store) == []
    drive.store.client.hset(drive.keys.extra("a"), "cancel", "SIGTERM")
    assert audit(drive.store) == ["task a keeps cancel of a run that is over"]
    drive.store.client.hdel(drive.keys.extra("a"), "cancel")


@pytest.mark.unaudited
def test_a_queue_of_another_type_hides_no_other_fault(busy: Driver):
    busy.store.client.set(busy.keys.prefix("pending:") + "zkind", "x")
    busy.store.client.hset(busy.keys.queue("tasks"), "t0", "no line")
    faults = look(busy.store)
    assert any("pending:zkind: is a string, not a zset" in fault for fault in faults), faults
    assert any(":tasks t0: " in fault for fault in faults), faults
    assert not any("doctor --audit" in fault for fault in faults)


@pytest.mark.unaudited
@pytest.mark.parametrize("name", ["kinds", "changed", "tasks", "taken", "later"])
def test_a_key_of_another_type_is_one_fault(busy: Driver, name: str):
    key = busy.keys.queue(name)
    busy.store.client.delete(key)
    busy.store.client.set(key, "x")
    findings = repair_all(busy.store, dry=True, kinds=find_keys(busy.store).kinds)
    assert [finding.where for finding in findings] == [key], findings


def test_a_repair_that_lists_keys_repairs_a_queue_that_no_index_lists(store: Store):
    """`doctor repair` and `doctor --audit` look at the same queues."""
    url = f"redis://{store.address}/0"
    join_cluster(store, Settings.load(url=url, cluster=store.keys.cluster), create=True)
    store.client.zadd(store.keys.prefix("pending:") + "other slots=1", {"ghost": 1})
    assert any("other slots=1" in fault for fault in look(store))
    flags = ["--url", url, "--cluster", store.keys.cluster]
    repaired = CliRunner().invoke(app, ["doctor", "repair", *flags])
    assert repaired.exit_code == 0, repaired.output
    assert look(store) == []
