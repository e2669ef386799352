"""take, give_back and set_reason: a task is with one scheduler, or waits."""

from collections.abc import Callable
from typing import Any

import pytest

from parsync_redis.model.place import GiveBack
from tests.kit.driver import NEVER_MS, Driver, dump, nth


def test_a_taken_task_is_in_taken_and_not_in_pending(drive: Driver):
    drive.submit("a")
    took = drive.run(drive.taking())
    assert [(task.id, task.attempt, task.kind.text) for task in took.tasks] == [
        ("a", nth(1), "work slots=1")
    ]
    assert took.changes == [("work slots=1", "")]
    assert (drive.index("pending"), drive.index("taken")) == ([], ["a"])
    assert drive.status().scheduler == "s1"


def test_a_task_is_taken_by_one_scheduler_only(drive: Driver):
    drive.submit("a")
    assert drive.take("s1") == {"a": nth(1)}
    assert drive.unchanged_by(drive.taking("s2")).tasks == []


def test_no_more_than_the_limit_is_taken_and_the_rest_is_counted(drive: Driver):
    for id in "abc":
        drive.submit(id)
    took = drive.run(drive.taking(limit=2))
    assert [task.id for task in took.tasks] == ["a", "b"]
    assert took.changes == [("work slots=1", drive.kind_line("c"))]


def test_every_take_is_an_attempt_that_was_never_given_out_before(drive: Driver):
    drive.submit("a")
    for number in range(1, 12):
        attempt = drive.take()["a"]
        assert attempt == nth(number)
        drive.run(drive.commands.give_back("s1", [("a", attempt, "", "")]))


def test_the_salt_of_the_scheduler_ends_the_attempt_and_changes_no_count(drive: Driver):
    drive.submit("a")
    for number, salt in ((1, ".482913"), (2, ".0"), (3, ".7")):
        (task,) = drive.run(drive.taking(limit=1, salt=salt)).tasks
        assert task.attempt == f"{number}@1.s1{salt}"
        assert drive.start(drive.place("a", f"{number}@1.s1.8")) == "refused", "another take's"
        drive.run(drive.commands.give_back("s1", [("a", task.attempt, "", "")]))


def test_a_delayed_task_is_taken_when_it_is_due_at_its_place_in_the_order(drive: Driver):
    drive.submit("b")
    drive.submit("first", {"priority": 9}, delay_ms=0)
    assert drive.index("later") == ["first"]
    drive.run(drive.commands.take("s1"))
    assert (drive.index("later"), drive.index("pending")) == ([], ["first", "b"])
    assert list(drive.take()) == ["first", "b"]


def test_a_take_says_when_the_next_delayed_task_is_due(drive: Driver):
    drive.submit("a")
    drive.submit("far", delay_ms=2 * NEVER_MS)
    drive.submit("near", delay_ms=NEVER_MS)
    drive.submit("now", delay_ms=0)
    took = drive.run(drive.taking(limit=1))
    assert [task.id for task in took.tasks] == ["a"]
    assert took.due_ms == drive.store.client.zscore(drive.keys.queue("later"), "near")
    assert took.due_ms > took.now_ms


def test_a_take_says_that_no_task_is_delayed(drive: Driver):
    drive.submit("a")
    assert drive.run(drive.taking()).due_ms is None


def test_a_task_given_back_waits_at_its_old_place(drive: Driver):
    attempt = drive.taken("a")
    drive.submit("b")
    assert drive.run(drive.commands.give_back("s1", [("a", attempt, "", "no slot")])) == ["pending"]
    assert (drive.index("pending"), drive.index("taken")) == (["a", "b"], [])
    assert (drive.status().why, drive.status().scheduler) == ("no slot", None)


Back = tuple[str, str, GiveBack, str]
LONG_AGO_MS = 1000


def long_ago(drive: Driver, id: str) -> None:
    """Make a task that has waited since 1970."""
    key = drive.keys.queue("tasks")
    line: Any = drive.store.client.hget(key, id)
    takes, order, _, others = line.decode().split(" ", 3)
    drive.store.client.hset(key, id, f"{takes} {order} {LONG_AGO_MS} {others}")


def records(drive: Driver) -> dict[str, Any]:
    """Return all keys but `meta` and `changed`, which tell copies of `kinds` of a take and count
    undone ones.
    """
    found = {key.decode(): value for key, value in dump(drive.store).items()}
    queues = {key for key in found if "pending:" in key}
    found |= {key: drive.store.client.zrange(key, 0, -1, withscores=True) for key in queues}
    return {
        key: value
        for key, value in found.items()
        if key.rpartition("}:")[2] not in ("meta", "changed")
    }


@pytest.mark.parametrize("rare", [False, True], ids=["plain", "rare"])
def test_a_take_that_is_undone_leaves_every_record_as_it_was(drive: Driver, rare: bool):
    if rare:
        place = drive.place("a", drive.taken("a"))
        drive.start(place)
        drive.run(drive.commands.requeue([(place, "its node n1 was lost")]))
    else:
        drive.submit("a", {"priority": 0})
    drive.submit("behind")
    before = records(drive)
    tasks = drive.run(drive.taking(limit=2)).tasks
    back: list[Back] = [(task.id, task.attempt, "undo", "") for task in tasks]
    assert drive.run(drive.commands.give_back("s1", back)) == ["pending"] * 2
    assert records(drive) == before


def test_a_request_of_an_undone_take_that_comes_again_gives_out_another_attempt(drive: Driver):
    drive.submit("a")
    take = drive.taking()
    given = list[str]()
    for _ in range(3):
        (task,) = drive.run(take).tasks
        given.append(task.attempt)
        drive.run(drive.commands.give_back("s1", [("a", task.attempt, "undo", "")]))
    assert [attempt.partition("@")[0] for attempt in given] == ["1"] * 3
    assert len({*given}) == 3
    place = drive.place("a", given[0])
    drive.run(take)
    assert drive.run(drive.commands.start([place])) == [("refused", b"taken")]


@pytest.mark.parametrize("damaged", ["x", "-5", "-1", "1234567890123456", "999999999999999"])
def test_a_damaged_count_of_undone_takes_begins_beyond_all_that_were_counted(
    drive: Driver, damaged: str
):
    drive.store.client.hset(drive.keys.queue("meta"), "undone", damaged)
    drive.submit("a")
    drive.submit("b")
    back: list[Back] = [
        (task.id, task.attempt, "undo", "") for task in drive.run(drive.taking(limit=2)).tasks
    ]
    assert drive.run(drive.commands.give_back("s1", back)) == ["pending"] * 2
    undone: Any = drive.store.client.hget(drive.keys.queue("meta"), "undone")
    assert 10**12 < int(undone) < 10**14
    assert drive.run(drive.taking()).tasks[0].attempt.endswith(f"u{int(undone)}")


def test_a_task_that_has_not_started_has_waited_since_it_could_first_be_taken(drive: Driver):
    drive.submit("a")
    long_ago(drive, "a")
    steps = [
        lambda place: drive.commands.give_back("s1", [("a", place.attempt, "undo", "")]),
        lambda place: drive.commands.give_back("s1", [("a", place.attempt, "", "")]),
        lambda place: drive.commands.give_back("s1", [("a", "", "", "its scheduler was lost")]),
        lambda place: drive.commands.requeue([(place, "its node n1 was lost")]),
    ]
    for step in steps:
        (task,) = drive.run(drive.taking()).tasks
        assert task.ready_ms == LONG_AGO_MS
        assert drive.run(step(drive.place("a", task.attempt))) == ["pending"]
        assert drive.status().times["ready"] == LONG_AGO_MS
    (task,) = drive.run(drive.taking()).tasks
    drive.start(drive.place("a", task.attempt))
    drive.run(drive.commands.requeue([(drive.place("a", task.attempt), "its node n1 was lost")]))
    assert (drive.status().times["ready"] or 0) > LONG_AGO_MS


def test_give_back_is_fenced_by_scheduler_and_attempt(drive: Driver):
    attempt = drive.taken("a")
    for scheduler, named in (("s2", attempt), ("s1", nth(0)), ("s1", nth(2)), ("s2", "")):
        assert drive.unchanged_by(drive.commands.give_back(scheduler, [("a", named, "", "")])) == [
            "stale"
        ]


def test_give_back_touches_only_what_is_taken(drive: Driver):
    attempt = drive.taken("a")
    drive.start(drive.place("a", attempt))
    rows: list[Back] = [("a", attempt, "", ""), ("a", attempt, "undo", ""), ("gone", "", "", "")]
    assert drive.unchanged_by(drive.commands.give_back("s1", rows)) == ["stale"] * 3


def test_the_taken_tasks_of_a_lost_scheduler_go_back_whatever_their_attempts(drive: Driver):
    drive.taken("a")
    assert drive.run(drive.commands.give_back("s1", [("a", "", "", "")])) == ["pending"]


def test_an_attempt_that_was_put_back_cannot_start_or_confirm(drive: Driver):
    place = drive.place("a", drive.taken("a"))
    drive.run(drive.commands.give_back("s1", [("a", "", "", "")]))
    assert drive.unchanged_by(drive.commands.confirm([place])) == ["stale"]
    assert drive.unchanged_by(drive.commands.start([place]))[0][0] == "refused"


def test_a_kind_of_which_tasks_wait_has_a_reason_until_none_waits(drive: Driver):
    for id in "ab":
        drive.submit(id)
    version = drive.version()
    assert (
        drive.run(
            drive.commands.set_reason([("work slots=1", "no slot free"), ("gone slots=1", "x")])
        )
        == 1
    )
    assert drive.kinds() == {"work slots=1": f"{drive.kind_line('a', 'b')} no slot free"}
    assert drive.version() == version, "the reason was no change"
    drive.take(limit=1)
    assert drive.kinds() == {"work slots=1": f"{drive.kind_line('b')} no slot free"}
    assert drive.version() > version
    drive.take()
    drive.submit("c")
    assert drive.kinds() == {"work slots=1": drive.kind_line("c")}


def test_a_reason_may_be_taken_back(drive: Driver):
    drive.submit("a")
    drive.run(drive.commands.set_reason([("work slots=1", "no slot free")]))
    drive.run(drive.commands.set_reason([("work slots=1", "")]))
    assert drive.kinds() == {"work slots=1": drive.kind_line("a")}


def waiters(drive: Driver) -> str:
    waiters: Any = drive.store.client.hget(drive.keys.queue("meta"), "waiters")
    return (waiters or b"").decode()


def test_a_scheduler_that_takes_nothing_enters_the_waiting_list_once_and_keeps_its_place(
    drive: Driver,
):
    drive.wait("s1", "s2", "s1")
    assert waiters(drive) == "s1 s2"
    assert drive.unchanged_by(drive.commands.take("s2", waits="wait")).tasks == []


def test_a_take_that_does_not_wait_changes_nothing(drive: Driver):
    assert drive.unchanged_by(drive.commands.take("s1")).tasks == []


def test_a_scheduler_told_of_changes_waits_for_the_next_change(drive: Driver):
    drive.submit("a")
    took = drive.run(drive.commands.take("s1", waits="wait"))
    assert (took.tasks, took.changes) == ([], [("work slots=1", drive.kind_line("a"))])
    assert waiters(drive) == "s1"


def heard_by(drive: Driver, do: Callable[[], object], *names: str) -> list[str]:
    """Return which of these schedulers are woken, in turn, while something is done."""
    messages = drive.heard(do, *(f"{drive.keys.wakes()}:{name}" for name in names))
    return [channel.rpartition(":")[2] for channel, _ in messages]


def test_a_newly_waiting_kind_wakes_one_scheduler_and_an_already_waiting_kind_wakes_none(
    drive: Driver,
):
    drive.wait("s1", "s2", "s3")
    assert heard_by(drive, lambda: drive.submit("a"), "s1", "s2", "s3") == ["s3"]
    drive.wait("s3")
    assert heard_by(drive, lambda: drive.submit("b"), "s1", "s2", "s3") == []
    assert heard_by(drive, lambda: drive.submit("c", {"slots": 2}), "s1", "s2", "s3") == ["s3"]


def test_a_take_may_wake_another_scheduler_but_never_its_own(drive: Driver):
    drive.wait("s1", "s2")
    for id in "ab":
        drive.submit(id)
    drive.wait("s1", "s2")
    take = drive.commands.take("s2", [("work slots=1", 1)], waits="wake")
    assert heard_by(drive, lambda: drive.run(take), "s1", "s2") == ["s1"]
    assert waiters(drive) == "", "s2 was passed over, and will ask anew"


def test_a_scheduler_that_gives_back_tasks_wakes_no_scheduler(drive: Driver):
    drive.taken("a")
    drive.wait("s2")
    assert (
        heard_by(
            drive, lambda: drive.run(drive.commands.give_back("s1", [("a", "", "", "")])), "s2"
        )
        == []
    )


def test_wake_ups_remove_dead_schedulers_from_the_waiting_list(drive: Driver):
    dead = [f"dead-{number:03d}" for number in range(40)]
    drive.wait("s1", *dead[:15])
    drive.wait("s1")
    assert waiters(drive).split()[0] == "s1", "a wake still reaches it"
    drive.wait(*dead[15:])
    assert heard_by(drive, lambda: drive.submit("a"), "s1") == []
    drive.wait("s1")
    assert waiters(drive).split() == [*dead, "s1"], (
        "so many dead behind it that no wake would reach it"
    )
    assert heard_by(drive, lambda: drive.submit("b", {"slots": 2}), "s1") == ["s1"]
    drive.run(drive.commands.take("s1", waits="wake"))
    assert waiters(drive).split() == dead[:25], "nobody heard: it and 15 leave"


def test_the_list_of_waiting_schedulers_is_bounded_and_drops_its_oldest(drive: Driver):
    names = [f"{'x' * 90}-{number}" for number in range(60)]
    drive.wait(*names)
    left = waiters(drive).split()
    assert left == names[-len(left) :]
    assert 3800 < len(" ".join(left)) <= 4000
    drive.store.client.hset(drive.keys.queue("meta"), "waiters", " ".join(["a"] * 20_000))
    drive.submit("a")
    drive.run(drive.commands.take("s1", waits="wake"))
    assert waiters(drive) == "", "no script has written that"
    drive.take()
    drive.wait("y" * 128)
    assert waiters(drive) == "y" * 128


def test_a_take_that_meets_only_ended_tasks_takes_nothing(drive: Driver):
    drive.submit("a", expiry_ms=0)
    drive.submit("b")
    drive.store.client.hset(
        drive.keys.queue("tasks"), "b", drive.record("b").text.replace("slots=1", "x")
    )
    took = drive.run(drive.commands.take("s1", [("work slots=1", 10)]))
    assert (took.tasks, took.failed) == ([], [("b", "its record is damaged: line")])
    assert (drive.state("a"), drive.state("b")) == ("cancelled", "failed")
    assert drive.kinds() == {}
