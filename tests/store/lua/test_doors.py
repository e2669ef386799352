"""Each door, which is a way into the queue: with needs that fit, with needs that fit no node, and with a name that no node knows.

A task that enters for the first time is judged. A task that was accepted before comes back with its
old needs, also while its node is away: an accepted task must not get lost.
"""

from collections.abc import Callable

import pytest

from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import StoredState, Submission
from tests.kit.driver import Driver

FITS = ("work", 2)
NOWHERE = ("work", 3)
UNKNOWN = ("nobody", 1)
Door = Callable[[Driver, str, int], str]


def new(drive: Driver, name: str, slots: int) -> str:
    return drive.submit("a", {"slots": slots}, name)


def capacity_may_come(drive: Driver, name: str, slots: int) -> str:
    return drive.submit("a", {"slots": slots, "wait_for_capacity": True}, name)


def delayed(drive: Driver, name: str, slots: int) -> str:
    return drive.submit("a", {"slots": slots}, name, delay_ms=1000)


def published(drive: Driver, name: str, slots: int) -> str:
    return drive.submit("a", {"slots": slots}, name, publication="c1")


def next_of_its_run(drive: Driver, name: str, slots: int) -> str:
    """Submit as Celery's retry and replace do."""
    place = drive.bring(StoredState.RUNNING)
    return drive.submit("a", {"slots": slots}, name, after=place.attempt)


def next_of_its_run_may_wait(drive: Driver, name: str, slots: int) -> str:
    place = drive.bring(StoredState.RUNNING)
    return drive.submit("a", {"slots": slots, "wait_for_capacity": True}, name, after=place.attempt)


def published_again_while_it_runs(drive: Driver, name: str, slots: int) -> str:
    drive.bring(StoredState.RUNNING)
    return drive.submit("a", {"slots": slots}, name, publication="c1")


def published_again_after_a_lost_run(drive: Driver, name: str, slots: int) -> str:
    assert drive.requeue(drive.bring(StoredState.RUNNING)) == "pending"
    return drive.submit("a", {"slots": slots}, name, publication="c1")


def published_again_after_its_end(drive: Driver, name: str, slots: int) -> str:
    drive.bring(StoredState.SUCCEEDED)
    return drive.submit("a", {"slots": slots}, name, publication="c1")


def published_again_when_dead(drive: Driver, name: str, slots: int) -> str:
    drive.bring(StoredState.DEAD)
    return drive.submit("a", {"slots": slots}, name, publication="c1")


ALWAYS = "next", "next", "next"
FIRST = "submitted", "infeasible", "unknown"
LATER = "next", "infeasible", "unknown"
DOORS: dict[Door, tuple[str, str, str]] = {
    new: FIRST,
    capacity_may_come: ("submitted", "submitted", "submitted"),
    delayed: FIRST,
    published: FIRST,
    next_of_its_run: LATER,
    next_of_its_run_may_wait: ALWAYS,
    published_again_while_it_runs: LATER,
    published_again_after_a_lost_run: LATER,
    published_again_after_its_end: FIRST,
    published_again_when_dead: FIRST,
}


@pytest.mark.parametrize(
    "asks", [FITS, NOWHERE, UNKNOWN], ids=["fits", "fits nowhere", "unknown name"]
)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_each_door_judges_what_enters_with_new_needs(
    drive: Driver, door: Door, asks: tuple[str, int]
) -> None:
    drive.offer("n1", "slots=2", "work")
    assert door(drive, *asks) == DOORS[door][[FITS, NOWHERE, UNKNOWN].index(asks)]


def test_a_refused_retry_changes_nothing_and_the_run_goes_on(drive: Driver) -> None:
    drive.offer("n1", "slots=2", "work")
    place = drive.bring(StoredState.RUNNING)
    refused = Submission("a", "work", b"next", TaskOptions.of({"slots": 3}), after=place.attempt)
    assert drive.unchanged_by(drive.commands.submit([refused])) == ["infeasible"]
    assert drive.finish(place, "failed") == "ok"


def retried(drive: Driver, place: Place) -> str:
    return drive.submit("a", {"strategy": "latency", "priority": 9}, after=place.attempt)


def published_once_more(drive: Driver, place: Place) -> str:
    return drive.submit("a", publication="c1")


def requeued(drive: Driver, place: Place) -> str:
    return drive.requeue(place)


def revived(drive: Driver, place: Place) -> str:
    return drive.word(drive.commands.revive(["a"], "an operator"))


AWAY: dict[Callable[[Driver, Place], str], tuple[StoredState, str]] = {
    retried: (StoredState.RUNNING, "next"),
    published_once_more: (StoredState.RUNNING, "next"),
    requeued: (StoredState.RUNNING, "pending"),
    revived: (StoredState.DEAD, "revived"),
}


@pytest.mark.parametrize("gone", ["infeasible", "unknown"])
@pytest.mark.parametrize("door", AWAY, ids=lambda door: door.__name__)
def test_an_accepted_task_returns_to_the_queue_while_its_node_is_away(
    drive: Driver, door: Callable[[Driver, Place], str], gone: str
) -> None:
    state, word = AWAY[door]
    drive.offer("n1", "slots=2", "work")
    place = drive.bring(state)
    drive.offer("n2", "slots=2 parsync.taint:t", "work" if gone == "infeasible" else "other")
    drive.offer("n1", "")
    assert drive.submit("b") == gone, "a new task"
    assert door(drive, place) == word
