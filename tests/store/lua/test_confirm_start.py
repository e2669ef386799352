"""confirm and start: one place for an attempt, and one start."""

from dataclasses import replace
from typing import Any

import pytest

from parsync_redis.model.task import StoredState
from tests.kit.driver import Driver, nth


def test_a_confirmed_task_is_placed_and_not_taken(drive: Driver):
    place = drive.bring(StoredState.TAKEN)
    assert drive.confirm(place) == "placed"
    assert (drive.index("taken"), drive.index("running")) == ([], ["a"])
    assert (drive.state("a"), drive.record("a").place) == ("placed", place)


def test_confirm_asked_again_answers_yours(drive: Driver):
    place = drive.bring(StoredState.PLACED)
    assert drive.unchanged_by(drive.commands.confirm([place])) == ["yours"]
    drive.start(place)
    assert drive.unchanged_by(drive.commands.confirm([place])) == ["yours"]


@pytest.mark.parametrize("other", [{"node": "n2"}, {"slots": (1,)}, {"inc": 2}])
def test_confirm_does_not_move_a_task_that_has_a_place(drive: Driver, other: dict[str, Any]):
    place = drive.bring(StoredState.PLACED)
    assert drive.unchanged_by(drive.commands.confirm([replace(place, **other)])) == ["stale"]


def test_confirm_fenced(drive: Driver):
    """An earlier attempt gives the task no place, even though the task is taken."""
    place = drive.bring(StoredState.TAKEN)
    drive.run(drive.commands.give_back("s1", [("a", "", "", "")]))
    drive.take()
    assert drive.unchanged_by(drive.commands.confirm([place])) == ["stale"]


@pytest.mark.parametrize(
    "state",
    [
        s
        for s in StoredState
        if s not in (StoredState.TAKEN, StoredState.PLACED, StoredState.RUNNING)
    ],
)
def test_confirm_needs_taken(drive: Driver, state: StoredState):
    """The attempt is the current one, but the task is not with its scheduler any more."""
    place = drive.bring(state)
    if state == StoredState.PENDING:
        drive.take()
        drive.run(drive.commands.give_back("s1", [("a", "", "", "")]))
        assert drive.line().takes == 1
    assert drive.unchanged_by(drive.commands.confirm([place])) == ["stale"]


def test_confirm_judges_each_task_by_itself(drive: Driver):
    a = drive.bring(StoredState.TAKEN, "a")
    b = drive.bring(StoredState.TAKEN, "b")
    b = replace(b, slots=(1,))
    drive.cancel("a")
    assert drive.run(drive.commands.confirm([a, b])) == ["stale", "placed"]


@pytest.mark.parametrize("state", [StoredState.TAKEN, StoredState.PLACED])
def test_start_hands_over_the_message(drive: Driver, state: StoredState):
    place = drive.bring(state)
    assert drive.run(drive.commands.start([place])) == [("ok", b"message")]
    assert (drive.state("a"), drive.status().starts, drive.record("a").place) == (
        "running",
        1,
        place,
    )
    assert drive.index("running") == ["a"]


def test_start_unlists_taken(drive: Driver):
    """A start takes the task out of `taken`. Otherwise a leader that gives back a lost scheduler's tasks would put a running task back."""
    place = drive.bring(StoredState.TAKEN)
    drive.start(place)
    assert drive.index("taken") == []
    assert drive.unchanged_by(drive.commands.give_back("s1", [("a", "", "", "")])) == ["stale"]


def test_start_is_idempotent(drive: Driver):
    place = drive.bring(StoredState.RUNNING)
    assert drive.unchanged_by(drive.commands.start([place])) == [("yours", b"message")]


def test_start_needs_taken_or_placed(drive: Driver):
    """An attempt that was put back to pending, or has ended, may not start."""
    place = drive.bring(StoredState.TAKEN)
    drive.run(drive.commands.give_back("s1", [("a", place.attempt, "", "")]))
    assert drive.line().takes == 1
    assert drive.unchanged_by(drive.commands.start([place])) == [("refused", b"pending")]


@pytest.mark.parametrize("state", [s for s in StoredState if s.final or s == StoredState.GONE])
def test_an_ended_task_does_not_start(drive: Driver, state: StoredState):
    place = drive.bring(state)
    assert drive.unchanged_by(drive.commands.start([place])) == [("refused", state.encode())]


@pytest.mark.parametrize("state", [StoredState.PLACED, StoredState.RUNNING])
@pytest.mark.parametrize("other", [{"node": "n2"}, {"slots": (1,)}, {"inc": 2}])
def test_place_fenced_start(drive: Driver, state: StoredState, other: dict[str, Any]):
    place = drive.bring(state)
    assert drive.unchanged_by(drive.commands.start([replace(place, **other)]))[0][0] == "refused"


@pytest.mark.parametrize("state", [StoredState.TAKEN, StoredState.PLACED, StoredState.RUNNING])
def test_only_the_current_attempt_starts(drive: Driver, state: StoredState):
    place = drive.bring(state)
    for attempt in (nth(0), nth(2), nth(1, 2), nth(1, 1, "s2"), "1@1", "1"):
        assert (
            drive.unchanged_by(drive.commands.start([replace(place, attempt=attempt)]))[0][0]
            == "refused"
        )


def test_a_start_before_confirm_fixes_the_place(drive: Driver):
    """The message may be faster than the scheduler; what confirm then says must be the
    same place.
    """
    place = drive.bring(StoredState.TAKEN)
    drive.start(place)
    assert drive.confirm(place) == "yours"
    assert drive.confirm(replace(place, slots=(1,))) == "stale"
    assert drive.record("a").place == place
