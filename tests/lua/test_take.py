"""take, give_back and note: a task is with one scheduler, or waits."""

from typing import Any

from tests.lua.driver import NEVER_MS, Driver


def test_a_taken_task_is_in_taken_and_not_in_pending(drive: Driver):
    drive.submit("a")
    took = drive.run(drive.commands.take("s1", 10))
    assert [(task.id, task.attempt, task.needs) for task in took.tasks] == [("a", "1@1", "slots=1")]
    assert took.waiting == 0
    assert (drive.index("pending"), drive.index("taken")) == ([], ["a"])
    assert drive.record("a")["scheduler"] == "s1"


def test_a_task_is_taken_by_one_scheduler_only(drive: Driver):
    drive.submit("a")
    assert drive.take("s1") == {"a": "1@1"}
    assert drive.unchanged_by(drive.commands.take("s2", 10)).tasks == []


def test_no_more_than_the_limit_is_taken_and_the_rest_is_counted(drive: Driver):
    for id in "abc":
        drive.submit(id)
    took = drive.run(drive.commands.take("s1", 2))
    assert ([task.id for task in took.tasks], took.waiting) == (["a", "b"], 1)


def test_every_take_is_an_attempt_that_was_never_given_out_before(drive: Driver):
    drive.submit("a")
    for number in range(1, 12):
        attempt = drive.take()["a"]
        assert attempt == f"{number}@1"
        drive.run(drive.commands.give_back("s1", [("a", attempt, "")]))


def test_what_the_taker_drew_ends_the_attempt_and_counts_nothing(drive: Driver):
    drive.submit("a")
    for number, salt in ((1, ".482913"), (2, ""), (3, ".7")):
        (task,) = drive.run(drive.commands.take("s1", 1, salt)).tasks
        assert task.attempt == f"{number}@1{salt}"
        assert drive.start(drive.place("a", f"{number}@1.8")) == "refused", "another take's"
        drive.run(drive.commands.give_back("s1", [("a", task.attempt, "")]))


def test_a_delayed_task_is_taken_when_it_is_due_at_its_place_in_the_order(drive: Driver):
    drive.submit("b")
    drive.submit("first", {"priority": 9}, delay_ms=0)
    assert drive.index("later") == ["first"]
    assert list(drive.take()) == ["first", "b"]


def test_a_take_says_when_the_next_delayed_task_is_due(drive: Driver):
    drive.submit("a")
    drive.submit("far", delay_ms=2 * NEVER_MS)
    drive.submit("near", delay_ms=NEVER_MS)
    drive.submit("now", delay_ms=0)
    took = drive.run(drive.commands.take("s1", 1))
    assert [task.id for task in took.tasks] == ["a"]
    assert took.due_ms == drive.store.client.zscore(drive.keys.queue("later"), "near")
    assert took.due_ms > took.now_ms


def test_a_take_says_that_no_task_is_delayed(drive: Driver):
    drive.submit("a")
    assert drive.run(drive.commands.take("s1", 1)).due_ms is None


def test_a_task_given_back_waits_at_its_old_place(drive: Driver):
    attempt = drive.taken("a")
    drive.submit("b")
    assert drive.run(drive.commands.give_back("s1", [("a", attempt, "no slot")])) == ["pending"]
    assert (drive.index("pending"), drive.index("taken")) == (["a", "b"], [])
    assert drive.record("a")["why"] == "no slot"
    assert "scheduler" not in drive.record("a")


def test_a_task_given_back_may_be_put_off(drive: Driver):
    attempt = drive.taken("a")
    drive.run(drive.commands.give_back("s1", [("a", attempt, "")], delay_ms=NEVER_MS))
    assert (drive.index("pending"), drive.index("later")) == ([], ["a"])


def test_give_back_is_fenced_by_scheduler_and_attempt(drive: Driver):
    attempt = drive.taken("a")
    for scheduler, named in (("s2", attempt), ("s1", "0@1"), ("s1", "2@1"), ("s2", "")):
        assert drive.unchanged_by(drive.commands.give_back(scheduler, [("a", named, "")])) == ["stale"]


def test_give_back_touches_only_what_is_taken(drive: Driver):
    attempt = drive.taken("a")
    drive.start(drive.place("a", attempt))
    assert drive.unchanged_by(drive.commands.give_back("s1", [("a", attempt, ""), ("gone", "", "")])) == ["stale"] * 2


def test_what_a_lost_scheduler_has_goes_back_whatever_its_attempt(drive: Driver):
    drive.taken("a")
    assert drive.run(drive.commands.give_back("s1", [("a", "", "")])) == ["pending"]


def test_an_attempt_that_was_put_back_cannot_start_or_confirm(drive: Driver):
    place = drive.place("a", drive.taken("a"))
    drive.run(drive.commands.give_back("s1", [("a", "", "")]))
    assert drive.unchanged_by(drive.commands.confirm([place])) == ["stale"]
    assert drive.unchanged_by(drive.commands.start([place]))[0][0] == "refused"


def test_only_the_taken_attempt_is_noted(drive: Driver):
    attempt = drive.taken("a")
    assert drive.run(drive.commands.set_reason([("a", attempt, "no gpu free")])) == 1
    assert drive.record("a")["why"] == "no gpu free"
    assert drive.unchanged_by(drive.commands.set_reason([("a", "9@1", "x"), ("gone", attempt, "x")])) == 0
    drive.start(drive.place("a", attempt))
    assert "why" not in drive.record("a")
    assert drive.unchanged_by(drive.commands.set_reason([("a", attempt, "x")])) == 0


def waiters(drive: Driver) -> str:
    waiters: Any = drive.store.client.hget(drive.keys.queue("meta"), "waiters")
    return (waiters or b"").decode()


def wait(drive: Driver, *names: str) -> None:
    for name in names:
        assert drive.run(drive.commands.take(name, 1, waits=True)).tasks == []


def test_who_finds_nothing_waits_once_and_in_the_order_in_which_it_began(drive: Driver):
    wait(drive, "s1", "s2", "s1")
    assert waiters(drive) == "s1 s2"
    assert drive.unchanged_by(drive.commands.take("s2", 1, waits=True)).tasks == []


def test_who_does_not_want_to_wait_changes_nothing(drive: Driver):
    assert drive.unchanged_by(drive.commands.take("s1", 1)).tasks == []


def test_a_take_that_leaves_some_wakes_another_and_not_itself(drive: Driver):
    wait(drive, "s1", "s2", "s3")
    with drive.store.client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(drive.keys.own_channel("s1"), drive.keys.own_channel("s2"), drive.keys.own_channel("s3"))
        for id in "abc":
            drive.submit(id)
        drive.run(drive.commands.take("s2", 1, waits=True))
        said = [message for _ in range(6) if (message := heard.get_message(timeout=0.1))]
    assert [message["channel"].decode().rpartition(":")[2] for message in said] == ["s3", "s1"], "a submit, a take"
    assert waiters(drive) == "", "s2 was passed over, and will ask anew"


def test_the_dead_among_those_who_wait_cost_a_wake_up_little_and_leave(drive: Driver):
    wait(drive, *(f"dead-{number:03d}" for number in range(40)))
    drive.submit("a")
    assert waiters(drive).split() == [f"dead-{number:03d}" for number in range(24)], "nobody heard: 16 at a time leave"


def test_the_list_of_those_who_wait_is_bounded_and_the_oldest_leave(drive: Driver):
    names = [f"{'x' * 90}-{number}" for number in range(60)]
    wait(drive, *names)
    left = waiters(drive).split()
    assert left == names[-len(left) :]
    assert 3800 < len(" ".join(left)) <= 4000
    drive.store.client.hset(drive.keys.queue("meta"), "waiters", " ".join(["a"] * 20_000))
    drive.submit("a")
    assert waiters(drive) == "", "no script has written that"
    drive.take()
    wait(drive, "y" * 5000)
    assert waiters(drive) == "y" * 5000, "no name is that long: but no script may run for ever"


def test_who_finds_only_what_has_ended_waits(drive: Driver):
    drive.submit("a", expiry_ms=0)
    drive.submit("b")
    drive.store.client.hset(drive.keys.task("b"), "needs", "x")
    assert drive.run(drive.commands.take("s1", 10, waits=True)).tasks == []
    assert (drive.state("a"), drive.state("b")) == ("cancelled", "failed")
    assert waiters(drive) == "s1"
