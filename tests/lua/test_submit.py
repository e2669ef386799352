"""submit makes each task exist once, or says why it cannot."""

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.task import Submission, TaskOptions, TaskState
from tests.lua.driver import NEVER_MS, Driver, dump


def test_a_submitted_task_is_pending_with_its_message(drive: Driver):
    assert drive.submit("a", {"priority": 3}, message=b"\x00\xff{}") == "submitted"
    assert drive.index("pending") == ["a"]
    record = drive.record("a")
    assert record["state"] == "pending"
    assert record["attempt"] == "0@1"
    assert record["needs"] == "slots=1"
    assert drive.store.client.hget(drive.keys.task("a"), "message") == b"\x00\xff{}"


def test_an_id_is_one_task_however_often_it_is_submitted(drive: Driver):
    drive.submit("a", message=b"first")
    again = drive.commands.submit([Submission("a", "other", b"second")])
    assert drive.unchanged_by(again) == ["exists"]


def test_an_id_twice_in_one_call_is_one_task(drive: Driver):
    twice = [Submission("a", "work", b"1"), Submission("a", "work", b"2")]
    assert drive.run(drive.commands.submit(twice)) == ["submitted", "exists"]
    assert drive.index("pending") == ["a"]


@pytest.mark.parametrize("state", [state for state in TaskState if state != TaskState.GONE])
def test_a_task_in_any_state_is_not_submitted_again(drive: Driver, state: TaskState):
    drive.bring(state)
    assert drive.unchanged_by(drive.commands.submit([Submission("a", "work", b"2")])) == ["exists"]


def test_larger_priority_goes_first_and_equals_in_the_order_of_submission(drive: Driver):
    for id, priority in (("low", 0), ("high1", 9), ("mid", 5), ("high2", 9), ("low2", 0)):
        drive.submit(id, {"priority": priority})
    assert drive.index("pending") == ["high1", "high2", "mid", "low", "low2"]


def test_a_delayed_task_is_later_and_not_pending(drive: Driver):
    drive.submit("a", delay_ms=NEVER_MS)
    assert (drive.index("pending"), drive.index("later")) == ([], ["a"])
    assert drive.take() == {}


def test_a_task_that_no_node_could_hold_is_infeasible_and_leaves_no_trace(drive: Driver):
    drive.run(drive.commands.offer("n1", "slots=2 gpu=1 zone:a", ["work"]))
    for options in ({"slots": 3}, {"resources": {"gpu": 2}}, {"resources": {"mem": 1}}, {"require": {"zone": "b"}}):
        submission = Submission("a", "work", b"", TaskOptions.of(options))
        assert drive.unchanged_by(drive.commands.submit([submission])) == ["infeasible"]
    assert drive.submit("a", {"slots": 2, "resources": {"gpu": 1}, "require": {"zone": "a"}}) == "submitted"


def test_a_name_that_no_worker_knows_is_unknown_and_leaves_no_trace(drive: Driver):
    drive.run(drive.commands.offer("n1", "slots=2", ["work"]))
    assert drive.unchanged_by(drive.commands.submit([Submission("a", "wrok", b"")])) == ["unknown"]


def test_each_task_of_a_call_is_judged_by_itself(drive: Driver):
    drive.run(drive.commands.offer("n1", "slots=2", ["work"]))
    tasks = [Submission("a", "work", b"", TaskOptions.of({"slots": 3})), Submission("b", "work", b"")]
    assert drive.run(drive.commands.submit(tasks)) == ["infeasible", "submitted"]
    assert drive.index("pending") == ["b"]


def test_a_task_that_may_wait_for_capacity_is_not_judged(drive: Driver):
    drive.run(drive.commands.offer("n1", "slots=2", ["work"]))
    assert drive.submit("a", {"slots": 9, "wait_for_capacity": True}, name="elsewhere") == "submitted"


def test_before_any_node_everything_may_be_feasible(drive: Driver):
    assert drive.submit("a", {"slots": 100}) == "submitted"


def test_what_was_feasible_is_judged_anew_when_the_nodes_change(drive: Driver):
    drive.run(drive.commands.offer("n1", "slots=2"))
    assert drive.submit("a", {"slots": 2}) == "submitted"
    drive.run(drive.commands.offer("n1", "slots=1"))
    assert drive.submit("b", {"slots": 2}) == "infeasible"
    drive.run(drive.commands.offer("n2", "slots=8"))
    assert drive.submit("b", {"slots": 2}) == "submitted"
    drive.run(drive.commands.offer("n2", ""))
    assert drive.submit("c", {"slots": 2}) == "infeasible"


def test_an_offer_that_is_known_already_changes_nothing(drive: Driver):
    drive.run(drive.commands.offer("n1", "slots=2", ["work"]))
    drive.submit("a")
    assert drive.unchanged_by(drive.commands.offer("n1", "slots=2", ["work"])) == 0


def test_a_running_attempt_says_what_its_id_does_next(drive: Driver):
    place = drive.bring(TaskState.RUNNING)
    assert drive.submit("a", {"slots": 2}, name="other", message=b"next", after=place.attempt) == "next"
    assert drive.record("a")["message"] == "message"
    assert drive.finish(place) == "again"
    record = drive.record("a")
    assert (record["state"], record["name"], record["message"], record["needs"]) == (
        "pending", "other", "next", "slots=2",
    )  # fmt: skip


def test_only_the_current_attempt_and_only_while_it_runs_says_what_is_next(drive: Driver):
    place = drive.bring(TaskState.PLACED)
    after = drive.commands.submit([Submission("a", "work", b"next", after=place.attempt)])
    assert drive.unchanged_by(after) == ["stale"]
    drive.start(place)
    stale = drive.commands.submit([Submission("a", "work", b"next", after="7@1")])
    assert drive.unchanged_by(stale) == ["stale"]
    drive.finish(place)
    assert drive.unchanged_by(after) == ["stale"]


def test_what_a_lost_run_wanted_next_is_lost_with_it(drive: Driver):
    """Else the next attempt's success would be taken for a wish to run again."""
    place = drive.bring(TaskState.RUNNING)
    assert drive.submit("a", message=b"next", after=place.attempt) == "next"
    assert drive.requeue(place) == "pending"
    again = drive.place("a", drive.take()["a"])
    assert drive.start(again) == "ok"
    assert drive.finish(again) == "ok"
    assert drive.state("a") == "succeeded"


def test_fence_survives_purge(drive: Driver):
    """An id submitted anew after its record expired starts no attempt that an earlier life had."""
    old = drive.bring(TaskState.SUCCEEDED)
    drive.store.client.delete(drive.keys.task("a"))
    new = drive.place("a", drive.taken("a"))
    assert (old.attempt, new.attempt) == ("1@1", "1@2")
    before = dump(drive.store)
    assert drive.start(old) == "refused"
    assert drive.settle(old) == "stale"
    assert drive.finish(old) == "stale"
    assert drive.requeue(old) == "none"
    assert dump(drive.store) == before


def test_the_first_task_after_an_empty_queue_wakes_one_scheduler(drive: Driver):
    for name in ("s1", "s2", "gone"):
        drive.run(drive.commands.take(name, 1, waits=True))
    with drive.store.client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(drive.keys.own_channel("s1"), drive.keys.own_channel("s2"))
        drive.submit("a")
        drive.submit("b")
        said = [message for _ in range(5) if (message := heard.get_message(timeout=0.1))]
    assert [(message["channel"], message["data"]) for message in said] == [
        (drive.keys.own_channel("s2").encode(), b"wake")
    ]
    assert drive.store.client.hget(drive.keys.queue("meta"), "waiters") == b"s1"


@pytest.mark.parametrize("needs", ["slots=1\tgpu=1", "slots=1\n", "slots=1 gpu=\x001"])
def test_needs_that_the_view_could_not_read_are_refused_by_the_script_too(drive: Driver, needs: str):
    call = drive.commands.submit([Submission("a", "work", b"{}", TaskOptions.of({}))])
    call.args[call.args.index("slots=1")] = needs
    with pytest.raises(BrokenContract, match="needs are words"):
        drive.unchanged_by(call)


@pytest.mark.parametrize(
    ("id", "name"), [("a b", "work"), ("", "work"), ("a" * 129, "work"), ("a", "no spaces"), ("a", "")]
)
def test_an_id_or_name_that_no_lease_could_carry_is_refused_by_the_script_too(drive: Driver, id: str, name: str):
    call = drive.commands.submit([Submission("a", "work", b"{}", TaskOptions.of({}))])
    at = call.args.index("work")
    call.args[at - 1 : at + 1] = [id, name]
    with pytest.raises(BrokenContract, match="an id is"):
        drive.unchanged_by(call)
