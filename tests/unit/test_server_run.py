"""A replica that takes over is told from a restart, a move of a slot and a second look."""

import pytest

from parsync_redis.store.server.server_info import ServerRun

BEFORE = ServerRun("a", "stream", at_s=100.0)


@pytest.mark.parametrize(
    ("now", "took_over"),
    [
        (ServerRun("b", "next", "stream", 4711, up_s=60, at_s=103.0), True),
        (ServerRun("b", "next", "stream", 4711, up_s=2, at_s=103.0), False),
        (ServerRun("b", "other", "others", 4711, up_s=60, at_s=103.0), False),
        (ServerRun("a", "next", "stream", 4711, up_s=60, at_s=103.0), False),
    ],
    ids=["replica", "restart", "moved", "same process"],
)
def test_only_a_replica_that_goes_on_takes_over(now: ServerRun, took_over: bool) -> None:
    assert now.took_over_from(BEFORE) == took_over


def test_a_server_cannot_take_over_from_an_unknown_server() -> None:
    assert not ServerRun("b", "next", "", up_s=60).took_over_from(ServerRun())
