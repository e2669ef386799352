"""Ways to make a real server refuse requests, each with the word that its error replies begin with."""

import resource
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.waiting import joined, until

Refusal = Callable[[Any], AbstractContextManager[None]]


def refusing_server(program: str, folder: Path) -> EmbeddedServer:
    """Start a server with an append-only file, which can be made to refuse requests in each of
    these ways.
    """
    script = folder / "server"
    script.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {program} \"$@\"\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    options = {
        "busy-reply-threshold": 100,
        "enable-debug-command": "yes",
        "key-load-delay": 1000,
        "loading-process-events-interval-bytes": 1024,
    }
    return EmbeddedServer(str(script), aof=True, options=options)


def admin(server: EmbeddedServer | Store) -> Any:
    """Return a client that the test gives its orders with."""
    return Redis.from_url(
        f"redis://{server.address}/0" if isinstance(server, Store) else server.url
    )


def refuses(client: Any, word: str) -> bool:
    """Return whether the server refuses a write with that word."""
    try:
        client.execute_command("SET", "refusals:probe", "1")
    except RedisError as error:
        return word in f"{getattr(error, 'status_code', '')} {error} {type(error).__name__}"
    return False


@contextmanager
def setting(
    server: EmbeddedServer | Store, name: str, on: object, off: object, word: str
) -> Iterator[None]:
    """Have a setting of the server's meanwhile."""
    with admin(server) as client:
        client.config_set(name, on)
        try:
            until(lambda: refuses(client, word), f"the server refuses with {word}")
            yield
        finally:
            client.config_set(name, off)


def full_disk(server: EmbeddedServer) -> AbstractContextManager[None]:
    """Make writes fail with MISCONF: a limit on the size of the server's files stands for the disk."""
    return _full_disk(server)


@contextmanager
def _full_disk(server: EmbeddedServer) -> Iterator[None]:
    with admin(server) as client:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        try:
            until(lambda: refuses(client, "MISCONF"), "the server refuses with MISCONF")
            yield
        finally:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)


@contextmanager
def failed_snapshot(server: EmbeddedServer) -> Iterator[None]:
    """Make writes fail with MISCONF: the last snapshot failed, because its folder is gone.

    The server has no append-only file.
    """
    with admin(server) as client:
        folder = Path(client.config_get("dir")["dir"])
        client.config_set("save", "3600 1000000")
        folder.rmdir()
        client.bgsave()
        try:
            until(lambda: refuses(client, "MISCONF"), "the server refuses with MISCONF")
            yield
        finally:
            folder.mkdir()
            client.config_set("save", "")


@contextmanager
def replica(server: EmbeddedServer) -> Iterator[None]:
    """Make writes fail with READONLY: the server follows a primary where nobody is, so that its
    data stays.
    """
    with admin(server) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            until(lambda: refuses(client, "READONLY"), "the server refuses with READONLY")
            yield
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def stale_replica(server: EmbeddedServer) -> Iterator[None]:
    """Make commands fail with MASTERDOWN: the server has lost its primary, and also refuses to be
    read.
    """
    with admin(server) as client:
        client.config_set("replica-serve-stale-data", "no")
        try:
            with replica(server):
                yield
        finally:
            client.config_set("replica-serve-stale-data", "yes")


@contextmanager
def endless_script(server: EmbeddedServer) -> Iterator[None]:
    """Make the server reply BUSY: a script runs without end."""

    def run() -> None:
        with suppress(RedisError):
            other.eval("while true do end", 0)

    with admin(server) as client, Redis.from_url(server.url, socket_timeout=None) as other:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            until(lambda: refuses(client, "BUSY"), "the server refuses with BUSY")
            yield
        finally:
            client.script_kill()
            joined(thread)


@contextmanager
def loading(server: EmbeddedServer) -> Iterator[None]:
    """Make commands fail with LOADING: the server reads its data again, a millisecond for each key."""

    def run() -> None:
        with suppress(RedisError):
            other.execute_command("DEBUG", "RELOAD")

    with admin(server) as client, Redis.from_url(server.url, socket_timeout=None) as other:
        client.mset({f"refusals:{n}": "v" for n in range(6000)})
        thread = threading.Thread(target=run)
        thread.start()
        try:
            until(lambda: refuses(client, "LOADING"), "the server refuses with LOADING")
            yield
        finally:
            client.config_set("key-load-delay", 0)
            joined(thread)
            client.config_set("key-load-delay", 1000)
            client.delete(*(f"refusals:{n}" for n in range(6000)))


@contextmanager
def fewer_rights(server: EmbeddedServer) -> Iterator[None]:
    """Make writes fail with NOPERM: the login loses the right to write."""
    with admin(server) as client:
        client.execute_command("ACL", "SETUSER", "default", "-@write")
        try:
            until(lambda: refuses(client, "NOPERM"), "the server refuses with NOPERM")
            yield
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")


def missing_replicas(server: EmbeddedServer | Store) -> AbstractContextManager[None]:
    """Make the server reply NOREPLICAS: it has fewer replicas than its settings ask for."""
    return setting(server, "min-replicas-to-write", 1, 0, "NOREPLICAS")


def full_memory(server: EmbeddedServer | Store) -> AbstractContextManager[None]:
    """Make the server reply OOM: its memory is full."""
    return setting(server, "maxmemory", 1, 0, "OutOfMemoryError")


REFUSALS: Final[dict[str, Refusal]] = {
    "MISCONF": full_disk,
    "NOREPLICAS": missing_replicas,
    "READONLY": replica,
    "MASTERDOWN": stale_replica,
    "LOADING": loading,
    "BUSY": endless_script,
    "OOM": full_memory,
    "NOPERM": fewer_rights,
}
