"""A temporary cluster on a real server, for a replay through the real scripts."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from parsync_redis.settings import Settings
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.store import Store

from .replay import ReplayParameters

KEYS_PER_DELETE: Final = 500


@contextmanager
def live_store(url: str | None, parameters: ReplayParameters) -> Iterator[Store]:
    """Yield the store of a new cluster on the server at `url`, or on a server started for it."""
    with ExitStack() as stack:
        address = url or stack.enter_context(EmbeddedServer()).url
        cluster = f"replay-{secrets.token_hex(4)}"
        settings = Settings.load(
            url=address, cluster=cluster, partitions=parameters.partitions, gap_s=parameters.gap_s
        )
        store = Store.from_url(settings.url, cluster)
        stack.callback(store.disconnect)
        join_cluster(store, settings, create=True)
        stack.callback(_delete_keys, store)
        yield store


def _delete_keys(store: Store) -> None:
    """Delete every key of the cluster, of its shards and of its partitions."""
    patterns = [store.keys.pattern(kind) for kind in ("q:*", "p:*", ":*")]
    names = [
        name
        for pattern in patterns
        for name in store.client.scan_iter(match=pattern, count=KEYS_PER_DELETE)
    ]
    for first in range(0, len(names), KEYS_PER_DELETE):
        store.pipe([("unlink", name) for name in names[first : first + KEYS_PER_DELETE]])
