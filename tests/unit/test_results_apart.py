"""Results of several shards: one that takes no writes keeps back its own entries only."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError

from parsync_redis.worker.celery import results_outbox as results
from parsync_redis.worker.celery.results_outbox import Owed, announce


@pytest.mark.parametrize("several", [False, True])
def test_a_shard_that_takes_no_writes_keeps_back_no_other(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = SimpleNamespace(
        several=several,
        address="here:1",
        pipe_each=lambda reads: [[b"a dead"], [b"b dead"]],
        keys=SimpleNamespace(queues=lambda kind: ["q0", "q1"]),
    )

    def tell(store: Any, app: Any, shard: int, entries: Any, owed: Any, send_event: Any) -> int:
        if shard == 0:
            raise ReadOnlyError("You can't write against a read only replica.")
        return len(list(entries))

    monkeypatch.setattr(results, "_announce_shard", tell)
    app: Any = None
    if several:
        assert announce(store, app, deque()) == 1
    else:
        with pytest.raises(ReadOnlyError):
            announce(store, app, deque())


@pytest.mark.parametrize("several", [False, True])
def test_a_result_refused_by_a_shard_does_not_hold_up_results_of_other_shards(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def lpush(key: str, entry: bytes) -> None:
        if key == "q0":
            raise ReadOnlyError("You can't write against a read only replica.")
        taken.append(key)

    store: Any = SimpleNamespace(
        several=several,
        address="here:1",
        client=SimpleNamespace(lpush=lpush),
        pipe_each=lambda reads: [[], [b"b dead"]],
        keys=SimpleNamespace(queues=lambda kind: ["q0", "q1"]),
    )
    monkeypatch.setattr(results, "_announce_shard", lambda *_: 1)
    app: Any = None
    owed: Owed = deque([("q0", b"a dead"), ("q1", b"c dead")])
    if several:
        assert announce(store, app, owed) == 1
        assert (taken, list(owed)) == (["q1"], [("q0", b"a dead")])
    else:
        with pytest.raises(ReadOnlyError):
            announce(store, app, owed)
        assert len(owed) == 2, "nothing is forgotten"
