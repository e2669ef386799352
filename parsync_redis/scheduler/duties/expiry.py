"""Cancel tasks that wait past their expiry, and forget those that ended long ago."""

from ...model.limits import MAX_BATCH
from ...store.repair import repair_keys
from ...store.store import Store
from ...store.tasks import GENERATIONS
from .guarded import unless_away


def expire(store: Store) -> None:
    """Cancel what waits past its expiry, up to some thousands a pass; take judges the tasks that it takes as well.

    Repairs first the keys of the wrong type that workers write: their ACL has no DEL.
    """
    for shard in range(store.keys.shards):
        with unless_away(store):
            repair_keys(
                store,
                [
                    store.keys.queue(name, shard)
                    for name in ("dead", "names", "apps", "choices", "choices_1", *GENERATIONS)
                ],
            )
    for _ in range(10):
        ended: list[str] = []
        with unless_away(store):  # the other shards expire theirs
            ended = store.run(store.commands.expire())
        if len(ended) < MAX_BATCH:
            break
    store.run(store.commands.rotate())
