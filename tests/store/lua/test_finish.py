"""finish: the outcome of the current attempt, from its place, is accepted once."""

from dataclasses import replace
from typing import Any

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.model.task import StoredState
from tests.kit.driver import NEVER_MS, Driver, nth


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
def test_an_outcome_ends_the_task_and_its_record_expires(drive: Driver, outcome: str):
    place = drive.bring(StoredState.RUNNING)
    assert drive.finish(place, outcome, "because") == "ok"
    record = drive.record("a")
    assert (record.state, record.why, record.place) == (outcome, "because", place)
    assert drive.index("running") == []
    assert [drive.index(name) for name in ("tasks", "messages", "ended")] == [[], [], ["a"]]


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
def test_a_repeated_outcome_is_answered_yours_and_a_different_outcome_stale(
    drive: Driver, outcome: str
):
    place = drive.bring(StoredState.RUNNING)
    drive.finish(place, outcome)
    for other in ("succeeded", "failed", "cancelled", "again"):
        word = drive.unchanged_by(drive.commands.finish([(place, other, "")]))
        assert word == ["yours" if other == outcome else "stale"]


@pytest.mark.parametrize("attempt", [nth(0), nth(2), nth(1, 2), nth(1, 1, "s2")])
def test_finish_fenced(drive: Driver, attempt: str):
    """The task runs at that very place, but by another attempt."""
    place = drive.bring(StoredState.RUNNING)
    stale = drive.commands.finish([(replace(place, attempt=attempt), "succeeded", "")])
    assert drive.unchanged_by(stale) == ["stale"]


@pytest.mark.parametrize("other", [{"node": "n2"}, {"slots": (1,)}, {"inc": 2}])
def test_place_fenced_finish(drive: Driver, other: dict[str, Any]):
    place = drive.bring(StoredState.RUNNING)
    stale = drive.commands.finish([(replace(place, **other), "failed", "")])
    assert drive.unchanged_by(stale) == ["stale"]


@pytest.mark.dealt
@pytest.mark.parametrize(
    "state", [s for s in StoredState if s not in (StoredState.RUNNING, StoredState.SUCCEEDED)]
)
def test_only_a_running_task_finishes(drive: Driver, state: StoredState):
    place = drive.bring(state)
    assert drive.unchanged_by(drive.commands.finish([(place, "succeeded", "")])) == ["stale"]


def test_a_retry_makes_the_task_pending_without_a_lost_start(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    assert drive.finish(place, "again") == "again"
    assert (drive.state("a"), drive.status().starts, drive.index("pending")) == (
        "pending",
        0,
        ["a"],
    )
    assert drive.index("running") == []
    assert drive.take() == {"a": nth(2)}


def test_lost_starts_do_not_count_after_a_run_that_wants_another(drive: Driver):
    drive.requeue(drive.bring(StoredState.RUNNING))
    place = drive.place("a", drive.take()["a"])
    drive.start(place)
    assert drive.status().starts == 2
    assert drive.finish(place, "again") == "again"
    assert drive.status().starts == 0


# again: a run that does not know that its retry is there
@pytest.mark.parametrize("outcome", ["failed", "again"])
def test_a_successor_may_be_delayed(drive: Driver, outcome: str):
    place = drive.bring(StoredState.RUNNING)
    drive.submit("a", delay_ms=NEVER_MS, message=b"next", after=place.attempt)
    assert drive.finish(place, outcome) == "again"
    assert (drive.index("pending"), drive.index("later")) == ([], ["a"])
    assert drive.message() == b"next"
    assert not drive.store.hash(drive.keys.extra("a"))


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "again", "cancelled"])
def test_after_a_cancel_nothing_runs_again(drive: Driver, outcome: str):
    place = drive.bring(StoredState.RUNNING)
    drive.submit("a", message=b"next", after=place.attempt)
    drive.cancel("a")
    assert drive.finish(place, outcome) == "ok"
    assert drive.state("a") == "cancelled", "the run has stored no result of its own"


def test_a_killed_run_does_not_run_again(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    drive.submit("a", message=b"next", after=place.attempt)
    assert drive.finish(place, "cancelled") == "ok"
    assert drive.state("a") == "cancelled"


def test_finish_judges_each_task_by_itself(drive: Driver):
    a = drive.bring(StoredState.RUNNING, "a")
    b = drive.bring(StoredState.RUNNING, "b")
    outcomes = [
        (a, "again", ""),
        (replace(b, attempt=nth(9, 9)), "failed", ""),
        (b, "succeeded", ""),
    ]
    assert drive.run(drive.commands.finish(outcomes)) == ["again", "stale", "ok"]
    assert (drive.state("a"), drive.state("b")) == ("pending", "succeeded")


def test_a_task_that_waits_again_wakes_one_scheduler(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    drive.wait("s1")
    channel = f"{drive.keys.wakes()}:s1"
    assert drive.heard(lambda: drive.finish(place, "again"), channel) == [(channel, b"wake")]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_result_that_was_not_stored_goes_to_the_outbox_with_its_message(
    drive: Driver, state: str
):
    place = drive.bring(StoredState.RUNNING)
    assert drive.finish(place, f"unstored {state}", "its result could not be stored") == "ok"
    record = drive.record("a")
    assert (record.state, record.why, record.place) == (
        state,
        "its result could not be stored",
        place,
    )
    outbox = drive.keys.queue("outbox")
    lines = [f"a {state} its result could not be stored".encode()]
    assert drive.store.client.lrange(outbox, 0, -1) == lines
    assert drive.store.client.hget(drive.keys.extra("a"), "message") is not None
    again = drive.commands.finish([(place, f"unstored {state}", "its result could not be stored")])
    assert drive.unchanged_by(again) == ["yours"], "the outbox has it once"


def test_a_stale_outcome_does_not_go_to_the_outbox(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    stale = drive.commands.finish([(replace(place, attempt=nth(9, 9)), "unstored failed", "")])
    assert drive.unchanged_by(stale) == ["stale"]


def test_a_run_that_left_a_successor_is_not_told_as_failed(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    drive.submit("a", message=b"next", after=place.attempt)
    assert drive.finish(place, "unstored failed") == "again"
    assert drive.store.client.lrange(drive.keys.queue("outbox"), 0, -1) == []


@pytest.mark.parametrize(
    "outcome", ["unstored", "unstored succeeded", "unstored again", "unstored unstored failed"]
)
def test_only_a_failure_or_a_cancel_can_be_unstored(drive: Driver, outcome: str):
    place = drive.bring(StoredState.RUNNING)
    with pytest.raises(BrokenContract, match="PSOUTCOME"):
        drive.finish(place, outcome)
    assert drive.state("a") == "running"
