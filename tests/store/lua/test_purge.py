"""purge, and the cancel of what waits or is placed only: what people throw away."""

import pytest

from parsync_redis.model.task import StoredState
from tests.kit.driver import Driver


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "dead"])
def test_a_purge_deletes_only_tasks_still_in_the_given_state(drive: Driver, state: str):
    drive.bring(StoredState(state), "a")
    drive.submit("b")
    other = "failed" if state != "failed" else "dead"
    assert drive.unchanged_by(drive.commands.purge(other, ["a", "b", "c"])) == [
        state,
        "pending",
        "gone",
    ]
    assert drive.run(drive.commands.purge(state, ["a", "b"])) == ["purged", "pending"]
    assert drive.run(drive.commands.purge(state, ["a"])) == ["gone"], "its repeat"
    assert not drive.store.client.exists(drive.keys.extra("a"))
    assert [drive.index(name) for name in ("tasks", "messages", "ended", "dead")] == [
        ["b"],
        ["b"],
        [],
        [],
    ]


def test_a_cancel_of_waiting_tasks_leaves_placed_tasks_alone(drive: Driver):
    place = drive.bring(StoredState.PLACED)
    cancel = drive.commands.cancel(["a"], "purged", "waiting")
    assert drive.unchanged_by(cancel) == [("none", "placed")]
    drive.run(drive.commands.start([place]))
    assert drive.unchanged_by(cancel) == [("none", "running")]
    drive.submit("b")
    assert drive.cancel("b", "purged", "waiting") == ("cancelled", "")
    assert drive.record("b").why == "purged"
    drive.submit("c")
    drive.take()
    assert drive.cancel("c", "purged", "waiting") == ("cancelled", "")


def test_a_cancel_of_placed_tasks_leaves_running_tasks_alone(drive: Driver):
    place = drive.bring(StoredState.PLACED)
    drive.bring(StoredState.PLACED, "b")
    drive.run(drive.commands.start([place]))
    cancel = drive.commands.cancel(["a", "b"], how="placed")
    assert drive.run(cancel) == [("none", "running"), ("cancelled", "")]
    assert drive.unchanged_by(cancel) == [("none", "running"), ("none", "cancelled")]
