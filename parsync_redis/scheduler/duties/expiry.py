"""Cancel tasks that wait past their expiry."""

from ...model.limits import MAX_BATCH
from ...store.repair import repair_keys
from ...store.store import Store


def expire(store: Store) -> None:
    """Cancel what waits past its expiry, up to some thousands a pass; take judges the tasks that it takes as well.

    Repairs `dead`, `names` and `apps` first if they have the wrong type: workers write them, but their ACL has no DEL.
    """
    repair_keys(store, [store.keys.queue(name) for name in ("dead", "names", "apps")])
    for _ in range(10):
        if len(store.run(store.commands.expire())) < MAX_BATCH:
            break
