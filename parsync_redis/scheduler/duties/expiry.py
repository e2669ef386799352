"""Cancel tasks that wait past their expiry, and forget those that ended long ago."""

from ...model.limits import MAX_BATCH
from ...store.repair import repair_keys
from ...store.store import Store
from ...store.tasks import GENERATIONS


def expire(store: Store) -> None:
    """Cancel what waits past its expiry, up to some thousands a pass; take judges the tasks that it takes as well.

    Repairs first the keys of the wrong type that workers write: their ACL has no DEL.
    """
    repair_keys(store, [store.keys.queue(name) for name in ("dead", "names", "apps", *GENERATIONS)])
    for _ in range(10):
        if len(store.run(store.commands.expire())) < MAX_BATCH:
            break
    store.run(store.commands.rotate())
