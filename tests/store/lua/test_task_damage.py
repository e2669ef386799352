"""Damaged tasks: lines, attempts, places, messages and indexes that say something no script writes.

Promise 10 of docs/invariants.md.
"""

from collections import deque
from typing import Any

import pytest
from celery import Celery
from redis.exceptions import ResponseError

from parsync_redis.errors import BrokenContract
from parsync_redis.model.place import GiveBack
from parsync_redis.model.preferences import MAX_RULES_TEXT
from parsync_redis.model.record import read_run
from parsync_redis.model.task import StoredState, Submission, state_word
from parsync_redis.scheduler.process.taken_tasks import give_back
from parsync_redis.store import Call
from parsync_redis.store.repair import quarantine
from parsync_redis.worker.celery.results_outbox import announce_entries
from tests.kit.driver import NEVER_MS, Driver, dump, nth

WORK = "work slots=1"
LINES = [
    "",
    "x",
    "0@1 1 1 1 - work",
    "0@1 1 1 1 - slots=1",
    "0@1 1 1 1 work slots=1",
    "0@1 1 1 x - work slots=1",
    "x@1 1 1 1 - work slots=1",
    "0 1 1 1 - work slots=1",
    f"{10**9}@1 1 1 1 - work slots=1",
    f"0@{10**15} 1 1 1 - work slots=1",
    "-0@1 1 1 1 - work slots=1",
    " 0@1 1 1 1 - work slots=1",
    "\xff",
]
"""Texts that are no line of a task."""


def write(drive: Driver, kind: str, text: str, id: str = "a") -> None:
    drive.store.client.hset(drive.keys.queue(kind), id, text)


def outbox(drive: Driver) -> list[bytes]:
    client: Any = drive.store.client
    return list(client.lrange(drive.keys.queue("outbox"), 0, -1))


@pytest.mark.dealt
@pytest.mark.parametrize("line", LINES)
def test_a_task_that_waits_and_has_no_line_fails_when_it_is_taken(drive: Driver, line: str):
    drive.submit("a")
    drive.submit("b")
    write(drive, "tasks", line)
    took = drive.run(drive.commands.take("s1", [(WORK, 9)]))
    assert ([task.id for task in took.tasks], took.failed) == (
        ["b"],
        [("a", "its record is damaged: line")],
    )
    assert (drive.state("a"), drive.record("a").why) == ("failed", "its record is damaged: line")
    assert outbox(drive) == [b"a failed its record is damaged: line"]


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("work slots=1 GPU=1", "needs"),
        ("work slots=1 prefer=pack,,score", "preferences"),
        ("work slots=1 prefer=p~ck", "preferences"),
        (f"work slots=1 prefer={'p' * (MAX_RULES_TEXT + 1)}", "preferences"),
        ("work slots=1 prefer=", "needs"),
        ("work slots=1 prefer=pack quick", "strategy"),
        ("work slots=1 prefer=pack for=A", "accounts"),
    ],
)
def test_a_task_whose_kind_has_a_damaged_part_fails_when_it_is_repaired(
    drive: Driver, kind: str, part: str
):
    drive.submit("a", {"prefer": ["pack"]})
    client: Any = drive.store.client
    line = client.hget(drive.keys.queue("tasks"), "a").decode()
    write(drive, "tasks", line.replace("work slots=1 prefer=pack", kind))
    own_kind = "work slots=1 prefer=pack"
    drive.run(drive.commands.repair_task("a", "its record is damaged", own_kind))
    assert (drive.state("a"), drive.record("a").why) == ("failed", f"its record is damaged: {part}")
    drive.run(drive.commands.repair_kind(own_kind))
    assert drive.store.client.exists(drive.keys.pending(own_kind)) == 0


@pytest.mark.dealt
@pytest.mark.parametrize("line", LINES)
def test_a_delayed_task_that_has_no_line_fails_when_it_is_due(drive: Driver, line: str):
    drive.submit("a", delay_ms=0)
    write(drive, "tasks", line)
    drive.run(drive.commands.take("s1"))
    assert (drive.state("a"), drive.index("later")) == ("failed", [])


@pytest.mark.dealt
@pytest.mark.parametrize("line", LINES)
def test_a_taken_task_that_has_no_line_fails_when_it_is_given_back(drive: Driver, line: str):
    drive.taken("a")
    write(drive, "tasks", line)
    give_back(drive.store, "s1", 0, ["a"], "")
    assert (drive.state("a"), drive.index("taken")) == ("failed", [])
    assert [entry.where for entry in quarantine.entries(drive.store)] == [
        f"{drive.keys.queue('tasks')}\\x20a"
    ]


@pytest.mark.dealt
@pytest.mark.parametrize("line", LINES)
def test_a_run_that_has_no_line_ends_as_it_likes(drive: Driver, line: str):
    for id, outcome in (("a", "succeeded"), ("b", "again"), ("c", "lost"), ("d", "cancelled")):
        place = drive.bring(StoredState.RUNNING, id)
        write(drive, "tasks", line, id)
        if outcome == "lost":
            assert drive.requeue(place) == "none"
        elif outcome == "cancelled":
            assert drive.cancel(id) == ("asked", "")
            assert drive.finish(place, "cancelled") == "ok"
        else:
            assert drive.finish(place, outcome) == "ok"
    assert [drive.state(id) for id in "abcd"] == ["succeeded", "cancelled", "failed", "cancelled"]
    assert drive.index("running") == drive.index("tasks") == []


@pytest.mark.dealt
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "state",
    [state for state in StoredState if state not in (StoredState.GONE, StoredState.SUCCEEDED)],
)
def test_people_can_see_cancel_and_repair_a_task_without_a_line(
    drive: Driver, state: StoredState, line: str
):
    drive.bring(state)
    if state not in (StoredState.FAILED, StoredState.CANCELLED):
        write(drive, "tasks", line)
    status = drive.status()
    assert status.state == state_word(state)
    assert drive.submit("a") == "exists"
    assert drive.submit("a", publication="c1") in ("exists", "submitted")
    drive.cancel("a")
    drive.run(drive.commands.repair_task("a", "why", WORK))


@pytest.mark.parametrize(
    "odd", ["inc=01", "inc=1 GPU=1", "since=0123", "n1/0,0", "n1/00", "started=x", "p00"]
)
def test_the_repair_rejects_a_place_that_readers_reject(drive: Driver, odd: str):
    place = drive.bring(StoredState.RUNNING)
    mend = {
        "inc": " inc=1",
        "since": f" since={place.since_ms}",
        "n1/": " n1/0",
        "started": "",
        "p00": " p0",
    }
    (part,) = [old for word, old in mend.items() if odd.startswith(word)]
    run = place.text.replace(part, f" {odd}") if part else f"{place.text} {odd}"
    write(drive, "running", run)
    assert read_run(run) == (None, None)
    assert drive.run(drive.commands.repair_task("a", "why")) == "pending"
    assert (drive.index("running"), drive.index("pending")) == ([], ["a"])


@pytest.mark.parametrize("attempt", [f"{10**9}@1.s1.0", f"1@{10**15}.s1.0", "1@2.s1.0"])
def test_an_attempt_of_another_life_or_of_too_many_digits_is_repaired(drive: Driver, attempt: str):
    drive.taken("a")
    write(drive, "taken", attempt)
    assert drive.run(drive.commands.repair_task("a", "why")) == "pending"
    assert (drive.index("taken"), drive.index("pending")) == ([], ["a"])


def test_a_dead_task_that_the_list_of_the_dead_has_lost_is_listed_again(drive: Driver):
    drive.bring(StoredState.DEAD)
    before = drive.record("a")
    drive.store.client.delete(drive.keys.queue("dead"))
    assert drive.run(drive.commands.repair_task("a", "why")) == "dead"
    assert (drive.record("a").state, drive.record("a").ended_ms) == ("dead", before.ended_ms)
    assert (drive.index("dead"), drive.index("pending")) == (["a"], [])
    assert drive.run(drive.commands.repair_task("a", "why")) == "sound"


@pytest.mark.unaudited
@pytest.mark.parametrize("text", ["taken 5\n\n\n", "running 5\n\n\n", "x"])
def test_an_end_of_no_final_state_is_a_failure_for_every_script(drive: Driver, text: str):
    drive.taken("a")
    drive.taken("b")
    write(drive, "ended", text, "e")
    back: list[tuple[str, str, GiveBack, str]] = [(id, "", "", "") for id in "aeb"]
    assert drive.run(drive.commands.give_back("s1", back)) == ["pending", "stale", "pending"]
    assert drive.state("e") == "failed"


@pytest.mark.parametrize("verb", ["confirm", "start", "finish"])
def test_a_call_of_more_tasks_than_lua_can_name_is_refused(drive: Driver, verb: str):
    place = drive.bring(StoredState.TAKEN)
    rows = [place] * 1001
    outcomes = [(one, "succeeded", "") for one in rows]
    calls: dict[str, Call[Any]] = {
        "confirm": drive.commands.confirm(rows),
        "start": drive.commands.start(rows),
        "finish": drive.commands.finish(outcomes),
    }
    with pytest.raises(BrokenContract, match=f"{verb} takes 1000 rows at most"):
        drive.unchanged_by(calls[verb])
    assert drive.state("a") == "taken"


@pytest.mark.dealt
@pytest.mark.parametrize(
    "attempt", ["", "x", "1", "1@1", "1@1.s1", "@1.s1.0", "x@1.s1.0", "1@x.s1.0"]
)
def test_a_taken_task_whose_attempt_is_damaged_waits_again(drive: Driver, attempt: str):
    drive.taken("a")
    write(drive, "taken", attempt)
    give_back(drive.store, "", 0, ["a"], "its scheduler was lost")
    assert (drive.state("a"), drive.index("taken"), drive.index("pending")) == (
        "pending",
        [],
        ["a"],
    )
    assert [attempt.split("@")[1] for attempt in drive.take().values()] == ["1.s1.0"]


@pytest.mark.parametrize(
    "run",
    ["", "x", "p0 n1/0 inc=1", f"b {nth(1)} p0 n1/0 inc=1 since=1", "a x p0 n1/0 inc=1 since=1"],
)
def test_a_task_whose_place_is_damaged_waits_again(drive: Driver, run: str):
    place = drive.bring(StoredState.RUNNING)
    write(drive, "running", run)
    assert drive.finish(place) == "stale"
    assert drive.run(drive.commands.repair_task("a", "why")) == "pending"
    assert (drive.index("running"), drive.index("pending")) == ([], ["a"])


def test_a_task_without_a_message_starts_with_an_empty_message(drive: Driver):
    place = drive.bring(StoredState.TAKEN)
    drive.store.client.hdel(drive.keys.queue("messages"), "a")
    assert drive.run(drive.commands.start([place])) == [("ok", b"")]
    assert drive.finish(place, "failed") == "ok"


def test_a_task_without_a_message_fails_when_it_is_repaired(drive: Driver):
    drive.submit("a")
    drive.store.client.hdel(drive.keys.queue("messages"), "a")
    assert drive.run(drive.commands.repair_task("a", "its record is damaged")) == "failed"
    assert (drive.record("a").why, drive.index("pending")) == ("its record is damaged: message", [])


# -- repair_task -----------------------------------------------------------------------------------


@pytest.mark.dealt
@pytest.mark.parametrize("state", list(StoredState))
def test_a_sound_task_is_not_repaired(drive: Driver, state: StoredState):
    drive.bring(state)
    assert drive.unchanged_by(drive.commands.repair_task("a", "why")) == "sound"


def test_a_delayed_task_is_sound(drive: Driver):
    drive.submit("a", delay_ms=NEVER_MS)
    assert drive.unchanged_by(drive.commands.repair_task("a", "why")) == "sound"


@pytest.mark.dealt
@pytest.mark.parametrize("state", [state for state in StoredState if state != StoredState.PENDING])
@pytest.mark.parametrize("index", ["pending", "later", "dead"])
def test_a_task_in_an_additional_list_keeps_its_state(
    drive: Driver, state: StoredState, index: str
):
    if state == StoredState.DEAD == index:
        return
    drive.bring(state)
    drive.store.client.zadd(
        drive.keys.pending(WORK) if index == "pending" else drive.keys.queue(index), {"a": 1}
    )
    assert drive.run(drive.commands.repair_task("a", "why", WORK)) == state
    drive.run(drive.commands.repair_kind(WORK))
    assert drive.state("a") == state
    assert drive.index("pending") == drive.index("later") == []
    assert drive.index("dead") == (["a"] if state == StoredState.DEAD else [])


def test_a_task_that_waits_in_the_queue_of_another_kind_too_waits_in_its_own_only(drive: Driver):
    other = "other slots=1"
    drive.submit("a")
    drive.store.client.zadd(drive.keys.pending(other), {"a": 1})
    assert drive.run(drive.commands.repair_task("a", "why", other)) == "pending"
    drive.run(drive.commands.repair_kind(other))
    assert drive.store.client.exists(drive.keys.pending(other)) == 0
    assert drive.take() == {"a": nth(1)}


def test_the_queue_of_another_kind_that_is_no_queue_goes_into_quarantine(drive: Driver):
    other = "other slots=1"
    drive.submit("a")
    drive.store.client.set(drive.keys.pending(other), "text")
    assert drive.run(drive.commands.repair_task("a", "why", other)) in ("sound", "pending")
    assert drive.store.client.exists(drive.keys.pending(other)) == 0
    assert "was of another type" in quarantine.entries(drive.store)[0].why


def test_a_task_that_is_listed_nowhere_waits_again(drive: Driver):
    drive.submit("a")
    drive.unlist("a")
    assert drive.run(drive.commands.repair_task("a", "why")) == "pending"
    assert drive.take() == {"a": nth(1)}


def test_of_a_task_that_is_taken_and_runs_the_run_stays(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    write(drive, "taken", nth(7))
    assert drive.run(drive.commands.repair_task("a", "why")) == "running"
    assert drive.index("taken") == []
    assert drive.finish(place) == "ok"


def test_a_listed_task_without_a_record_is_gone(drive: Driver):
    """A leader may look at a task that it read as placed, and that has ended and whose record has expired since."""
    for word in ("gone", "failed"):
        drive.store.client.zadd(drive.keys.queue("later"), {"a": 1})
        drive.store.client.zadd(drive.keys.queue("dead"), {"a": 1})
        if word == "failed":
            # a message without a line: the task has lost its line
            write(drive, "messages", "m")
        assert drive.run(drive.commands.repair_task("a", "why")) == word
        assert [drive.index(name) for name in ("messages", "later", "dead")] == [[], [], []]
    drive.store.client.delete(drive.keys.queue("ended"))
    write(drive, "running", f"a {nth(1)} p0 n1/0 inc=1 since=1")
    assert drive.run(drive.commands.repair_task("a", "why")) == "failed", "it has no line"
    assert drive.index("running") == []


# -- rare fields -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "text", "word"),
    [
        ("next_message", "half of it", "ok"),
        ("next", f"0 - - {WORK}", "again"),
        ("next", "x", "again"),
        ("cancel", "x", "ok"),
        ("history", "x\ny", "ok"),
    ],
)
def test_half_a_next_attempt_holds_up_no_outcome(
    drive: Driver, field: str, text: str, word: str
) -> None:
    places = [drive.bring(StoredState.RUNNING, id) for id in ("a", "b")]
    drive.store.client.hset(drive.keys.extra("b"), field, text)
    write(drive, "tasks", "+" + drive.record("b").text, "b")
    outcomes = [(place, "succeeded", "") for place in places]
    assert drive.run(drive.commands.finish(outcomes)) == ["ok", word]
    assert drive.index("running") == []
    if word == "again":
        assert drive.message("b") == b"message", "it runs again as it was"
        assert "b" in drive.take()


@pytest.mark.unaudited
@pytest.mark.parametrize(
    "verb", ["submit", "give_back", "finish", "requeue", "cancel", "expire", "revive", "read_tasks"]
)
def test_rare_fields_of_another_type_are_named_before_anything_is_written(drive: Driver, verb: str):
    place = drive.bring(
        {"give_back": StoredState.TAKEN, "revive": StoredState.DEAD}.get(verb, StoredState.RUNNING)
    )
    drive.submit("b", expiry_ms=0)
    client: Any = drive.store.client
    if verb != "revive":
        write(drive, "tasks", "+" + drive.record("a").text)
    client.delete(drive.keys.extra("a"))
    client.lpush(drive.keys.extra("a"), "x")
    client.zadd(drive.keys.queue("expires"), {"a": 1})
    commands = drive.commands
    call: Any = {
        "submit": commands.submit(
            [Submission("c", "work", b""), Submission("a", "work", b"", after=place.attempt)]
        ),
        "give_back": commands.give_back("s1", [("a", "", "", "why")]),
        "finish": commands.finish([(place, "succeeded", "")]),
        "requeue": commands.requeue([(place, "why")]),
        "cancel": commands.cancel(["b", "a"]),
        "expire": commands.expire(),
        "revive": commands.revive(["a"], "why"),
        "read_tasks": commands.read_tasks(["a"]),
    }[verb]
    before = dump(drive.store)
    with pytest.raises(
        ResponseError, match=f"PSRECORD {drive.keys.extra('a')} is a list, not a hash"
    ):
        client.eval(call.script.text, len(call.keys), *call.keys, *call.args)
    assert dump(drive.store) == before
    drive.run(call)
    assert [entry.where for entry in quarantine.entries(drive.store)] == [drive.keys.extra("a")]


@pytest.mark.unaudited
def test_an_end_that_cannot_be_looked_up_stays_in_the_outbox(drive: Driver):
    client: Any = drive.store.client
    client.lpush(drive.keys.queue("outbox"), "a cancelled why")
    client.lpush(drive.keys.extra("a"), "of another type")
    app = Celery("app", backend="cache+memory://", set_as_current=False)
    assert (
        announce_entries(drive.store, app, [line.decode() for line in outbox(drive)], deque()) == 0
    )
    assert outbox(drive) == [b"a cancelled why"]
