"""A scheduler that starts while its server does not take writes, and one that finds its place taken
on entering.
"""

import threading
from typing import Any

import pytest

from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.scheduler.process.start import join_when_up, run
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.refusals import Refusal, full_memory, missing_replicas, replica, stale_replica
from tests.kit.waiting import joined, until


def clients(admin: Any) -> set[str]:
    """Return the connections of the server."""
    return {each["id"] for each in admin.client_list()}


@pytest.mark.one_server(-1)
@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (replica, "is a read-only replica"),
        (stale_replica, "has lost its primary"),
        (missing_replicas, "fewer replicas in step"),
        (full_memory, "is full, nothing was done"),
    ],
)
def test_a_scheduler_that_starts_on_a_server_that_refuses_waits_until_it_takes_writes(
    server: EmbeddedServer, caplog: pytest.LogCaptureFixture, refusal: Refusal, said: str
) -> None:
    """Rows F16 (a failover while the scheduler starts), F17 and F19 of docs/failure-modes.md."""
    settings = Settings(url=server.url, cluster="starting", partitions=1, lease_s=3, gap_s=0.1)
    store = Store.from_url(server.url, "starting")
    stop = threading.Event()
    admin: Any = store.client
    thread = threading.Thread(target=run, args=(settings, "s1", stop))
    try:
        with refusal(server):
            thread.start()
            until(lambda: said in caplog.text or not thread.is_alive(), "it says why it waits")
            assert thread.is_alive(), "it has ended"
        until(lambda: admin.hexists(store.keys.shared("schedulers"), "s1"), "it is a member")
    finally:
        stop.set()
        joined(thread)


@pytest.mark.one_server(-1)
def test_a_scheduler_that_is_out_leaves_no_connection(server: EmbeddedServer) -> None:
    """With --at-most another scheduler may take the place between standing by and entering, again and again."""
    settings = Settings(url=server.url, cluster="starting", partitions=1, lease_s=60, gap_s=0.1)
    store = Store.from_url(server.url, "starting")
    stop = threading.Event()
    admin: Any = store.client
    config = join_when_up(store, settings, stop)
    assert config is not None
    store.run(store.commands.renew_scheduler("other"))
    before = clients(admin)
    mine = Store.from_url(server.url, "starting")
    made = [Scheduler(mine, config, settings, "late", at_most=1) for _ in range(5)]
    for each in made:
        each.run(stop)
        assert each.membership.out
    mine.client.connection_pool.disconnect()
    until(lambda: clients(admin) <= before, "no connection is left")
    subscribed = Scheduler(mine, config, settings, "late")
    thread = threading.Thread(target=subscribed.run, args=(stop,))
    thread.start()
    until(lambda: len(clients(admin) - before) >= 4, "it hears, and renews")
    stop.set()
    joined(thread)
    mine.client.connection_pool.disconnect()
    until(lambda: clients(admin) <= before, "one that ran leaves none either")
