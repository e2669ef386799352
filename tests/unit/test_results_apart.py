"""Results of several shards: one that takes no writes keeps back its own entries only."""

from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError

from parsync_redis.worker import results
from parsync_redis.worker.results import announce


@pytest.mark.parametrize("several", [False, True])
def test_a_shard_that_takes_no_writes_keeps_back_no_other(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = SimpleNamespace(
        several=several,
        address="here:1",
        pipe_each=lambda reads: [[b"a dead"], [b"b dead"]],
        keys=SimpleNamespace(queues=lambda kind: ["q0", "q1"]),
    )

    def tell(store: Any, app: Any, shard: int, entries: Any, send_event: Any) -> int:
        if shard == 0:
            raise ReadOnlyError("You can't write against a read only replica.")
        return len(list(entries))

    monkeypatch.setattr(results, "_announce_shard", tell)
    app: Any = None
    if several:
        assert announce(store, app) == 1
    else:
        with pytest.raises(ReadOnlyError):
            announce(store, app)
