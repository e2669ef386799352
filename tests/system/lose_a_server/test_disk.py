"""The disk under the append-only file is full, and then it is not. Row F20 of docs/failure-modes.md.

A limit on the size of the server's files stands for the disk: writing beyond it fails as on a full
one.
"""

import resource
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parsync_redis.errors import ServerReadOnly
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.store import Store
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit
from tests.kit.servers import server_programs

PATIENCE_S = 180.0


@pytest.fixture(params=list(server_programs().values()), ids=list(server_programs()))
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedServer]:
    """Yield a server that shrugs at the signal which a process gets with the error of a file that
    grew too large.
    """
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {request.param} \"$@\"\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with EmbeddedServer(str(program), aof=True) as server:
        yield server


def fill(drive: Driver, accepted: list[str], deadline: float) -> None:
    """Submit tasks until the server refuses one; those that it took are in `accepted`."""
    while time.monotonic() < deadline:
        id = f"t{len(accepted)}"
        drive.submit(id, message=b"x" * 500)
        accepted.append(id)


def test_a_full_disk_refuses_submits_whole_loses_nothing_and_all_goes_on_when_there_is_room(
    small_disk: EmbeddedServer,
) -> None:
    store = Store.from_url(small_disk.url, "disk")
    drive = Driver(store)
    drive.node(slots=1)
    drive.submit("runs")
    place = drive.held("runs", drive.take()["runs"])
    assert drive.start(place) == "ok"
    resource.prlimit(
        small_disk.process.pid, resource.RLIMIT_FSIZE, (64 * 1024, resource.RLIM_INFINITY)
    )
    accepted: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(ServerReadOnly, match="its disk fails; the server's log says why"):
        fill(drive, accepted, deadline)
    with pytest.raises(ServerReadOnly):
        drive.finish(place)
    assert drive.state("runs") == "running", "reading goes on"
    resource.prlimit(
        small_disk.process.pid,
        resource.RLIMIT_FSIZE,
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    )
    while True:
        try:
            word = drive.finish(place)
            break
        except ServerReadOnly:
            assert time.monotonic() < deadline, "the server writes again when there is room"
            time.sleep(0.05)
    assert word == "ok"
    assert drive.release(place) == "freed"
    small_disk.restart()
    states = {id: drive.state(id) for id in accepted}
    assert set(states.values()) == {"pending"}, f"{len(accepted)} submits were acknowledged"
    assert drive.state("runs") == "succeeded"
    assert audit(store) == []
