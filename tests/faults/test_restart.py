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
from tests.conftest import server_programs
from tests.faults.rig import LEASE_S, Rig
from tests.oracle.audit import audit
from tests.waiting import joined

PROGRAMS = server_programs()
AWAY_S = float(os.environ.get("PARSYNC_TEST_AWAY_S", "2"))


@pytest.fixture(params=list(PROGRAMS.values()), ids=list(PROGRAMS))
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def submitting(client: ParsyncClient, accepted: list[str]) -> Iterator[None]:
    """A thread submits tasks one by one meanwhile, each until it is acknowledged."""
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


def test_what_was_acknowledged_is_there_after_a_kill_when_every_write_is_synced(
    program: str, record_property: Callable[[str, object], None]
) -> None:
    accepted: list[str] = []
    with EmbeddedServer(program, aof=True, options={"appendfsync": "always"}) as server:
        rig = Rig(server.url, "always")
        client = ParsyncClient.from_url(server.url, "always")
        try:
            rig.node("n1", 2)
            with submitting(client, accepted):
                for number, away_s in enumerate((0.0, 0.0, AWAY_S)):
                    seen = len(accepted)
                    rig.wait(
                        lambda seen=seen: len(accepted) > seen + 30,  # type: ignore[misc]
                        "tasks come in",
                        working=True,
                    )
                    server.restart(kill=True, away_s=away_s)
                    back_ms = server_ms(rig)
                    rig.wait(
                        lambda back_ms=back_ms: placed_after(rig, back_ms),  # type: ignore[misc]
                        "tasks are placed again",
                        working=True,
                    )
                    took_s = (placed_after(rig, back_ms) - back_ms) / 1000
                    record_property(f"first_placement_{number}_s", took_s)
                    print(f"first placement after {away_s:g} s without a server: {took_s:.3f} s")
            rig.wait(lambda: rig.done(accepted), "all that was acknowledged has run", working=True)
            assert rig.incs["n1"] == 1, "nobody was given up"
            assert read_losses(rig.store) == [], "nothing was lost"
            assert len(set(rig.started)) == len(rig.started), "of an attempt one start"
        finally:
            rig.close()
            client.close()
        assert not audit(rig.store)


def server_ms(rig: Rig) -> int:
    seconds, micros = rig.store.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def placed_after(rig: Rig, since_ms: int) -> int:
    """Return when the first task was committed after `since_ms` (server time, ms), 0 if none was yet."""
    times = [lease.place.since_ms for lease in rig.leases()]
    times += [
        status.times.get("placed") or 0
        for status in rig.store.statuses(f"t{n}" for n in range(2000))
    ]
    return min((at for at in times if at > since_ms), default=0)


FORGET = {
    "restart": lambda server, rig: server.restart(kill=True),
    "flushall": lambda server, rig: rig.store.client.flushall(),
}


@pytest.mark.parametrize("how", FORGET)
def test_a_server_that_forgot_all_is_noticed_and_the_cluster_goes_on(
    program: str, how: str
) -> None:
    with EmbeddedServer(program) as server, ParsyncClient.from_url(server.url, "forgot") as client:
        rig = Rig(server.url, "forgot")
        try:
            rig.node("n1", 2)
            old = [client.submit("job", id=f"old{n}") for n in range(9)]
            rig.wait(lambda: rig.done(old[:2]), "they run", working=True)
            until_s = time.monotonic() + LEASE_S / 2
            rig.wait(lambda: time.monotonic() > until_s, "schedulers have renewed")
            FORGET[how](server, rig)
            # One scheduler sees it for sure: the leader makes the number good as soon as it looks.
            rig.wait(
                lambda: any("submitted 9 -> 0" in loss.text for loss in read_losses(rig.store)),
                "it is noticed",
            )
            if how == "restart":
                rig.wait(
                    lambda: any("p0 " in loss.text for loss in read_losses(rig.store)),
                    "so is the partition",
                )
            gone = client.status(old[-1])
            assert (gone.state, "submitted 9 -> 0" in gone.why) == ("gone", True), gone.why
            assert checkup.judge_losses(read_losses(rig.store)).level == "warn"
            rig.wait(rig.store.config, "the cluster's settings are written again")
            new = [client.submit("job", id=id) for id in old]
            rig.wait(lambda: rig.done(new), "what is submitted again runs", working=True)
            assert len(set(rig.started)) == len(rig.started), "no attempt was given out twice"
        finally:
            rig.close()
        assert not audit(rig.store)
