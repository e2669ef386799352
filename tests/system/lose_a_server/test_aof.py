"""A server loads an append-only file whose end is torn or rubbish. Row F8 of docs/failure-modes.md.

A script is in the file whole or not at all, so that whatever a restart brings back is a state that
can be.
"""

from collections.abc import Callable, Iterator

import pytest
import redis

from parsync_redis.errors import ServerUnreachable
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.store import Store
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit
from tests.kit.servers import server_programs
from tests.kit.waiting import ended

TASKS = 12
KEYS = 12_000


@pytest.fixture(params=list(server_programs().values()), ids=list(server_programs()))
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def aof_server(program: str) -> Iterator[EmbeddedServer]:
    # Of a slow disk, `everysec` would put off writes to the file.
    with EmbeddedServer(program, aof=True, options={"appendfsync": "always"}) as server:
        yield server


def spoil(server: EmbeddedServer, change: Callable[[bytes], bytes]) -> None:
    """Kill the server, change its append-only file, and start it again."""
    server.process.kill()
    ended(server.process)
    file = max(server.folder.glob("appendonlydir/*.incr.aof"))
    file.write_bytes(change(file.read_bytes()))
    server.restart()


def live(server: EmbeddedServer) -> Store:
    """Return a cluster in which some tasks have run, one after the other, and other tasks have
    begun.
    """
    store = Store.from_url(server.url, "torn")
    drive = Driver(store)
    drive.node(slots=2, resources={"mem": 100})
    for i in range(TASKS):
        assert drive.submit(f"t{i}") == "submitted"
    for id, attempt in drive.take().items():
        place = drive.held(id, attempt, slots=(0, 1), needs="slots=2 mem=7")
        drive.confirm(place)
        drive.start(place)
        drive.finish(place)
        drive.release(place)
    return store


@pytest.mark.parametrize("lost", [1, 200, 450, 900, 3000])
def test_of_a_torn_end_each_script_is_there_whole_or_not_at_all(
    aof_server: EmbeddedServer, lost: int
) -> None:
    store = live(aof_server)
    before = [status.state for status in store.statuses(f"t{i}" for i in range(TASKS))]
    spoil(aof_server, lambda text: text[:-lost])
    assert store.client.hget(store.keys.partition(0, "meta"), "version"), "the beginning is there"
    after = [status.state for status in store.statuses(f"t{i}" for i in range(TASKS))]
    assert lost < 900 or after != before, "the end is not"
    assert audit(store) == []


def test_a_server_that_has_started_has_read_its_file(program: str) -> None:
    """While it reads the file a server answers INFO, and nothing else: each 1,024 commands it looks
    for calls.
    """
    with EmbeddedServer(
        program, aof=True, options={"appendfsync": "always", "key-load-delay": 50}
    ) as server:
        with redis.Redis.from_url(server.url) as client:
            pipe = client.pipeline(transaction=False)
            for i in range(KEYS):
                pipe.set(str(i), i)
            pipe.execute()
        server.restart(kill=True)
        with redis.Redis.from_url(server.url) as client:
            assert client.info("persistence")["loading"] == 0
            assert client.dbsize() == KEYS


def test_a_server_whose_file_ends_in_rubbish_refuses_to_start(aof_server: EmbeddedServer) -> None:
    live(aof_server)
    with pytest.raises(ServerUnreachable, match=r"(?i)bad file format"):
        spoil(aof_server, lambda text: text + b"*3\r\nrubbish\r\n" * 9)
