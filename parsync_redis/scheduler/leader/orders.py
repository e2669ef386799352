"""The duty to level the submission counters of all shards.

Then the ages of tasks in different shards can be compared.
"""

from typing import Any, Final

from ...store.repair.quarantine import quarantine
from ...store.server.server_errors import AWAY
from ...store.store import Store
from ..core.kind_group import BLOCK

MAX_SUBMISSIONS: Final = 900_000_000_000 - BLOCK
"""A larger number of submissions is damage: `align` raises no counter so far."""


class OrderDuty:
    """Keeps the submission counters of all shards level. Does nothing with a single shard."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def work(self) -> None:
        """Raise the counter of each shard to the largest, rounded up to a block."""
        store = self._store
        if store.keys.shards == 1:
            return
        with store.client.pipeline(transaction=False) as pipe:
            for key in store.keys.queues("meta"):
                pipe.hget(key, "submitted")
            replies: list[Any] = pipe.execute(raise_on_error=False)
        numbers = [
            self._number(key, reply)
            for key, reply in zip(store.keys.queues("meta"), replies, strict=True)
        ]
        level = -(-max(numbers) // BLOCK) * BLOCK
        behind = [shard for shard, number in enumerate(numbers) if number < level]
        shards = store.keys.shards
        align = store.commands.align
        for answer in store.run_each([align(shard, shards, shards, level) for shard in behind]):
            if isinstance(answer, Exception) and not isinstance(answer, AWAY):
                raise answer

    def _number(self, key: str, reply: Any) -> int:
        """Return a shard's number of submissions.

        Returns 0 if the shard's primary is away, or if the number is damaged.
        """
        if reply is None or isinstance(reply, Exception):
            return 0
        if reply.isdigit() and len(reply) < 13 and int(reply) <= MAX_SUBMISSIONS:
            return int(reply)
        quarantine(
            self._store,
            f"{key} submitted",
            "not a number of submissions; other shards do not follow it",
            reply,
        )
        return 0
