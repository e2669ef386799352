"""The turns of the loop: what it confirms, what it keeps after an error, when it rests.

On fakeredis, no sockets.
"""

import time
from dataclasses import replace

import pytest
from redis.exceptions import ConnectionError as Disconnected

from parsync_redis.errors import ServerUnreachable
from parsync_redis.model.kind import Kind
from parsync_redis.model.place import Place
from parsync_redis.model.replies import Took
from parsync_redis.model.task import Taken
from parsync_redis.scheduler.process import loop, tick_clock
from parsync_redis.scheduler.process.loop import RESTS_PER_GAP, Scheduler
from parsync_redis.store import Store
from tests.kit.driver import Driver
from tests.kit.waiting import until
from tests.unit.test_strays import scheduler


def placed(drive: Driver, made: Scheduler, *ids: str) -> dict[str, Place]:
    """Let the scheduler place these tasks; return the place of each."""
    for id in ids:
        drive.submit(id)
    made._duties[0].last_s = float("inf")
    for _ in range(6):
        made.core.on_wake()
        made.turn()
    assert not made.core.in_flight
    return {place.task: place for place in made.core.won.unconfirmed}


@pytest.fixture
def won(fake_store: Store) -> tuple[Driver, Scheduler]:
    """Return a scheduler on server `same` that has won a claim for task a, on the only slot, and
    not confirmed it; and its driver.
    """
    drive = Driver(fake_store)
    made = scheduler(fake_store)
    drive.node("n1", slots=1)
    placed(drive, made, "a")
    made._rank = made.membership.rank = replace(made._rank, server="same")
    made.store.run_id = lambda: "same"  # type: ignore[method-assign]
    return drive, made


def test_a_placed_task_is_confirmed_after_a_while_and_a_started_task_is_left_alone(
    fake_store: Store,
) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store)
    drive.node("n1", slots=4)
    places = placed(drive, made, "a", "b")
    assert drive.start(places["a"]) == "ok"
    for _ in range(2):
        assert drive.state("b") == "taken"
        made._duties[0].last_s = float("-inf")
        made.turn()
    assert (drive.state("a"), drive.state("b")) == ("running", "placed")
    assert made.core.won.unconfirmed == []


def test_after_an_error_won_claims_are_confirmed_and_other_tasks_go_back(
    won: tuple[Driver, Scheduler],
) -> None:
    drive, made = won
    made.core.on_took(
        Took("1", 0, tasks=[Taken("b", drive.taken("b"), Kind("work", "slots=1"), 0)])
    )
    assert (drive.state("a"), drive.state("b")) == ("taken", "taken")
    made.recover()
    assert (drive.state("a"), drive.state("b")) == ("placed", "pending")


def test_won_claims_are_not_confirmed_on_another_server(won: tuple[Driver, Scheduler]) -> None:
    drive, made = won
    made._rank = replace(made._rank, server="another")
    made.recover()
    assert drive.state("a") == "pending"


def test_a_won_claim_whose_confirm_failed_is_not_lost(
    won: tuple[Driver, Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    drive, made = won

    def cut(*_: object, **__: object) -> None:
        raise Disconnected("cut")

    made._duties[0].last_s = float("-inf")
    made.turn()
    monkeypatch.setattr(made.store.client, "pipeline", cut)
    made._duties[0].last_s = float("-inf")
    with pytest.raises(ServerUnreachable):
        made.turn()
    monkeypatch.undo()
    made.recover()
    assert drive.state("a") == "placed"


def test_a_server_that_does_not_tell_its_run_id_may_be_another(
    won: tuple[Driver, Scheduler],
) -> None:
    drive, made = won
    made._rank = replace(made._rank, server="")
    made.store.run_id = lambda: ""  # type: ignore[method-assign]
    made.recover()
    assert drive.state("a") == "pending"


def turn_until_at_rest(made: Scheduler) -> None:
    """Turn; a tick that is due meanwhile makes the scheduler look again."""

    def is_at_rest() -> bool:
        made.turn()
        return made.core.at_rest

    until(is_at_rest, "the scheduler is at rest")


def test_a_scheduler_rests_only_without_work_and_between_frequent_ticks(fake_store: Store) -> None:
    made = scheduler(fake_store)
    Driver(fake_store).node("n1", slots=1)
    turn_until_at_rest(made)
    made._rank = replace(made._rank, members=RESTS_PER_GAP)
    assert not made._rests, "each tick is as far away as a rest would be"
    made._rank = replace(made._rank, members=RESTS_PER_GAP + 1)
    assert made._rests
    assert made._wait_s(made.ticks.heard_s) == pytest.approx(made.config.gap_s / RESTS_PER_GAP)
    made.core.on_wake()
    assert not made._rests


def test_only_a_long_silence_makes_it_subscribe_anew(
    fake_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scheduler(fake_store)
    made.listener.listen = lambda: asked.append("again")  # type: ignore[method-assign]
    asked: list[str] = []
    monkeypatch.setattr(tick_clock, "DEAF_S", float("inf"))
    made.ticks.heard_s = time.monotonic() - 10 * made.config.gap_s
    made.turn()
    assert made.ticks.is_own
    assert not asked, "others tick late too, and all would subscribe at once"
    monkeypatch.undo()
    made.ticks.heard_s = time.monotonic() - 10 * (made.config.gap_s + tick_clock.DEAF_S)
    made.turn()
    made.turn()
    assert asked == ["again"]


def test_a_scheduler_at_rest_takes_a_delayed_task_when_it_is_due(
    fake_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store)
    drive.node("n1", slots=1)
    monkeypatch.setattr(loop, "LONGEST_WAIT_S", float("inf"))
    drive.submit("later", delay_ms=60_000)
    made.core.on_wake()
    turn_until_at_rest(made)
    made.ticks.heard_s = float("inf")  # no tick comes, and it does not miss one
    assert 0 < made._wait_s(time.monotonic()) <= 60
    monkeypatch.undo()
    drive.submit("a", delay_ms=300)
    made.core.on_wake()
    deadline = time.monotonic() + 60
    while drive.state("a") == "pending":
        assert time.monotonic() < deadline, "it was not taken"
        made.turn()
