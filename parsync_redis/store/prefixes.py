"""Find tasks by the beginning of their ids: the server compares, so only matches come back."""

from typing import Final

from ..model.ids import readable
from .store import Store
from .tasks import GENERATIONS

MOST_STEPS: Final = 400
"""Pages of a key that are asked for, of 5,000 entries each: so 2 million entries of each shard's key."""

PAGE: Final = 5000
MOST: Final = 10
"""So many matches are enough to say that a beginning is ambiguous."""


def find_prefixed(store: Store, beginning: str) -> list[str]:
    """Return up to `MOST` encoded ids that begin so: of tasks that have not ended, then of those that have.

    beginning: encoded as `encode_id` does. It takes a round trip for each 5,000 tasks of the fullest shard.
    Raises AccessDenied for a login that may not list tasks, and ServerUnreachable.
    """
    found: dict[str, None] = {}
    for kind in ("tasks", *GENERATIONS):
        cursors = dict.fromkeys(store.keys.queues(kind), 0)
        for _ in range(MOST_STEPS):
            replies = store.pipe([("hscan", key, cursor, f"{beginning}*", PAGE) for key, cursor in cursors.items()])
            found |= dict.fromkeys(readable(id) for _, page in replies for id in page)
            if len(found) >= MOST:
                return list(found)[:MOST]
            cursors = {key: int(cursor) for key, (cursor, _) in zip(cursors, replies, strict=True) if int(cursor)}
            if not cursors:
                break
    return list(found)
