"""F6, F7: the server is killed while tasks come in and run, and comes back with all it had
acknowledged, or without.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.errors import ServerUnfit
from parsync_redis.inspect import checkup
from parsync_redis.store.repair.losses import read_losses
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.oracle.audit import audit
from tests.kit.servers import server_programs
from tests.kit.small_cluster import LEASE_S, SmallCluster
from tests.kit.waiting import joined

PROGRAMS = server_programs()
AWAY_S = float(os.environ.get("PARSYNC_TEST_AWAY_S", "2"))


@pytest.fixture(params=list(PROGRAMS.values()), ids=list(PROGRAMS))
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def submitting(client: ParsyncClient, accepted: list[str]) -> Iterator[None]:
    """Submit tasks one by one in a thread meanwhile, each until it is acknowledged."""
    stop = threading.Event()

    def submit() -> None:
        while not stop.wait(0.002):
            id = f"t{len(accepted)}"
            try:
                accepted.append(client.submit("job", id=id))
            except ServerUnfit:
                continue

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        joined(thread)


def test_acknowledged_writes_survive_a_kill_when_every_write_is_synced(
    program: str, record_property: Callable[[str, object], None]
) -> None:
    accepted: list[str] = []
    with EmbeddedServer(program, aof=True, options={"appendfsync": "always"}) as server:
        small_cluster = SmallCluster(server.url, "always")
        client = ParsyncClient.from_url(server.url, "always")
        try:
            small_cluster.node("n1", 2)
            with submitting(client, accepted):
                for number, away_s in enumerate((0.0, 0.0, AWAY_S)):
                    seen = len(accepted)
                    small_cluster.wait(
                        lambda seen=seen: len(accepted) > seen + 30,  # type: ignore[misc]
                        "tasks come in",
                        working=True,
                    )
                    server.restart(kill=True, away_s=away_s)
                    back_ms = server_ms(small_cluster)
                    small_cluster.wait(
                        lambda back_ms=back_ms: placed_after(small_cluster, back_ms),  # type: ignore[misc]
                        "tasks are placed again",
                        working=True,
                    )
                    took_s = (placed_after(small_cluster, back_ms) - back_ms) / 1000
                    record_property(f"first_placement_{number}_s", took_s)
                    print(f"first placement after {away_s:g} s without a server: {took_s:.3f} s")
            small_cluster.wait(
                lambda: small_cluster.done(accepted),
                "all that was acknowledged has run",
                working=True,
            )
            assert small_cluster.incs["n1"] == 1, "nobody was given up"
            assert read_losses(small_cluster.store) == [], "nothing was lost"
            assert len(set(small_cluster.started)) == len(small_cluster.started), (
                "of an attempt one start"
            )
        finally:
            small_cluster.close()
            client.close()
        assert not audit(small_cluster.store)


def server_ms(small_cluster: SmallCluster) -> int:
    seconds, micros = small_cluster.store.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def placed_after(small_cluster: SmallCluster, since_ms: int) -> int:
    """Return when the first task was committed after `since_ms` (server time, ms), 0 if none was yet."""
    times = [lease.place.since_ms for lease in small_cluster.leases()]
    times += [
        status.times.get("placed") or 0
        for status in small_cluster.store.statuses(f"t{n}" for n in range(2000))
    ]
    return min((at for at in times if at > since_ms), default=0)


FORGET = {
    "restart": lambda server, small_cluster: server.restart(kill=True),
    "flushall": lambda server, small_cluster: small_cluster.store.client.flushall(),
}


@pytest.mark.parametrize("how", FORGET)
def test_a_server_that_forgot_all_is_noticed_and_the_cluster_goes_on(
    program: str, how: str
) -> None:
    with EmbeddedServer(program) as server, ParsyncClient.from_url(server.url, "forgot") as client:
        small_cluster = SmallCluster(server.url, "forgot")
        try:
            small_cluster.node("n1", 2)
            old = [client.submit("job", id=f"old{n}") for n in range(9)]
            small_cluster.wait(lambda: small_cluster.done(old[:2]), "they run", working=True)
            until_s = time.monotonic() + LEASE_S / 2
            small_cluster.wait(lambda: time.monotonic() > until_s, "schedulers have renewed")
            FORGET[how](server, small_cluster)
            # One scheduler sees it for sure: the leader makes the number good as soon as it looks.
            small_cluster.wait(
                lambda: any(
                    "submitted 9 -> 0" in loss.text for loss in read_losses(small_cluster.store)
                ),
                "it is noticed",
            )
            if how == "restart":
                small_cluster.wait(
                    lambda: any("p0 " in loss.text for loss in read_losses(small_cluster.store)),
                    "so is the partition",
                )
            gone = client.status(old[-1])
            assert (gone.state, "submitted 9 -> 0" in gone.why) == ("gone", True), gone.why
            assert checkup.judge_losses(read_losses(small_cluster.store)).level == "warn"
            small_cluster.wait(
                small_cluster.store.config, "the cluster's settings are written again"
            )
            new = [client.submit("job", id=id) for id in old]
            small_cluster.wait(
                lambda: small_cluster.done(new), "what is submitted again runs", working=True
            )
            assert len(set(small_cluster.started)) == len(small_cluster.started), (
                "no attempt was given out twice"
            )
        finally:
            small_cluster.close()
        assert not audit(small_cluster.store)
