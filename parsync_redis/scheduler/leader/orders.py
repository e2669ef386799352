"""Let the shards number their submissions alike, so that the orders of tasks of different shards
can be compared.
"""

from typing import Any, Final

from ...store.repair.quarantine import quarantine
from ...store.server.server_errors import AWAY
from ...store.store import Store
from ..core.kind_group import BLOCK

MOST: Final = 900_000_000_000 - BLOCK
"""A larger number of submissions is damage: `align` raises none so far."""


class OrderDuty:
    """The numbers of submissions, which each shard counts by itself; with one shard there is
    nothing to do.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def work(self) -> None:
        """Raise the number of each shard to the largest one, rounded up to a block."""
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
        """Return the number of submissions that a shard tells; 0 if its primary is away, or if it
        is damaged.
        """
        if reply is None or isinstance(reply, Exception):
            return 0
        if reply.isdigit() and len(reply) < 13 and int(reply) <= MOST:
            return int(reply)
        quarantine(
            self._store,
            f"{key} submitted",
            "not a number of submissions; other shards do not follow it",
            reply,
        )
        return 0
