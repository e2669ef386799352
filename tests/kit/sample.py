"""A call of each verb, for tests that are about every one."""

from collections import Counter
from typing import Any

from parsync_redis.model.allotment import AllotRow
from parsync_redis.model.booking import Booking
from parsync_redis.model.claim import Claim
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission
from parsync_redis.model.times import RunTimes
from parsync_redis.store.scripts.calls import Call, Commands
from tests.kit.driver import nth

HELD = Place("a", nth(1), 0, "n1", (0,), 1, 1, "gpu=1")
"""The place that a task holds there."""

EPOCH = 7
"""The epoch of the partition there."""

UNDER = TaskOptions(tenant="acme", limits="stripe")
"""The options of a task that counts to accounts there."""


def sample_calls(commands: Commands) -> dict[str, Call[Any]]:
    """Return a call of each verb that would change something in the cluster of test_refusals.py."""
    place = HELD
    taken = Place("taken", nth(1, 2), 0, "n1", (1,), 1, 1)
    return {
        "submit": commands.submit([Submission("new", "work", b"")]),
        "take": commands.take("s1", [("work slots=1", 1)]),
        "give_back": commands.give_back("s1", [("taken", "", "", "why")]),
        "confirm": commands.confirm([taken]),
        "start": commands.start([taken]),
        "finish": commands.finish([(place, "succeeded", "")]),
        "requeue": commands.requeue([(place, "why")]),
        "revive": commands.revive(["dead"], "why"),
        "purge": commands.purge("dead", ["dead"]),
        "expire": commands.expire(),
        "cancel": commands.cancel(["a"]),
        "rotate": commands.rotate(),
        "read_tasks": commands.read_tasks(["a", "waits"]),
        "set_reason": commands.set_reason([("work slots=1", "why")]),
        "note_choices": commands.note_choices([("a", "{}")], 0),
        "fix_shards": commands.fix_shards(0, 1, 1),
        "set_policy": commands.set_policy([("stripe", "units=2")]),
        "recount": commands.recount(["stripe"]),
        "allot": commands.allot("", "s1", [AllotRow("stripe", "units=1", "0")]),
        "offer": commands.offer("n2", "slots=1"),
        "register_node": commands.register_node(0, "n1", 0, 1.0, "slots=2"),
        "commit": commands.commit(
            0, [Claim("taken", nth(1, 2), 0, "n1", (1,), 1, "gpu=1", 0, EPOCH)]
        ),
        "release": commands.release(0, [place]),
        "read_partition": commands.read_partition(0, waiter="s1"),
        "renew": commands.renew(0, "n1", 1),
        "reclaim": commands.reclaim(0, "n1", 1, 0),
        "set_node": commands.set_node(0, "n1", "drain"),
        "ring": commands.ring(place),
        "forget_node": commands.forget_node(0, "n1", 1),
        "configure": commands.configure({"partitions": 1}),
        "deal_node": commands.deal_node("n1", 2, "", 4, 1.0),
        "renew_scheduler": commands.renew_scheduler("s1", stats={"placed": 1}),
        "record_loss": commands.record_loss("s1 submitted=2->1", 60),
        "book": commands.book([Booking("n1", "big slots=2", "a", 1000)], 10),
        "note_shares": commands.note_shares([("acme", 0.5, 60.0)], 1800),
        "learn_times": commands.learn_times({"work": RunTimes(1, 2.0, Counter({16: 1}))}),
        "report_failures": commands.report_failures(0, "n1", 1, 5, True, [("work", 3, 2, 2, 1000)]),
        "write_policy": commands.write_policy(0, "[limits]", "maria", "limits is new", "[]"),
        "quarantine": commands.quarantine(b"something", 10),
        "discard": commands.discard(commands.keys.queue("names"), "names"),
        "repair_partition": commands.repair_partition(0),
        "look_at_nodes": commands.look_at_nodes(0, ["n1"], 0, 10),
        "repair_task": commands.repair_task("a", "why"),
        "restore": commands.restore(0, [Place("taken", nth(1, 2), 0, "n1", (1,), 1, 1)]),
        "repair_queue": commands.repair_queue(0, 99),
        "repair_offers": commands.repair_offers(
            0, [("digest", "abc"), ("question", "work slots=1")]
        ),
        "look_over": commands.look_over(0, "tasks"),
        "repair_kind": commands.repair_kind("work slots=1"),
    }


def rare_calls(commands: Commands) -> dict[str, list[Call[Any]]]:
    """Return calls of verbs that need more of their keys than the sample, in the cluster of
    test_refusals.py.
    """
    other = Place("waits", nth(1, 4), 0, "n1", (1,), 1, 1)
    return {
        "submit": [
            commands.submit([Submission("new", "new", b"", delay_ms=1, expiry_ms=10**6)]),
            commands.submit([Submission("new", "work", b"", TaskOptions.of({"slots": 2}))]),
            commands.submit([Submission("dead", "work", b"", publication="c1")]),
            commands.submit([Submission("a", "work", b"", after=HELD.attempt)]),
            commands.submit([Submission("new", "work", b"", UNDER)]),
            commands.submit([Submission("new", "work", b"", TaskOptions.of({"prefer": ["pack"]}))]),
        ],
        "take": [
            commands.take("s1", [("work slots=1", 9)]),
            commands.take("s1", waits="wait"),
            commands.take("s1", [("work slots=1 for=acme under=stripe", 9)]),
        ],
        "start": [commands.start([other])],
        "finish": [
            commands.finish([(HELD, "again", "")]),
            commands.finish([(HELD, "failed", "why"), (other, "succeeded", "")]),
            commands.finish([(HELD, "unstored failed", "why")]),
        ],
        "look_over": [
            commands.look_over(0, what)
            for what in (
                "pending work slots=1",
                "later",
                "dead",
                "taken",
                "running",
                "messages",
                "ended",
                "ended_1",
                "ended_2",
            )
        ],
        "read_tasks": [commands.read_tasks(["dead", "a", "nobody"])],
        "set_policy": [commands.remove_declared(["stripe"], 0)],
    }
