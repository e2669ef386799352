"""A primary, its replica and Sentinels that watch them: real processes on free ports."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis

from parsync_redis.store.server.embedded import EmbeddedServer, free_port
from tests.kit.waiting import ended, until

SERVICE = "mymaster"
DOWN_AFTER_MS = 1000


class Watched:
    """`url` is parsync's address of the service, `broker` Celery's.

    Passwords: `pw` of the servers, `spw` of the Sentinels.
    """

    def __init__(self, program: str, sentinels: int = 1, pw: str = "", spw: str = "") -> None:
        self.pw = pw
        self.spw = spw
        self.servers: list[EmbeddedServer] = []
        self._watchers: list[subprocess.Popen[bytes]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="sentinel-"))
        try:
            self._start(program, sentinels)
        except BaseException:
            self.stop()
            raise

    def _start(self, program: str, sentinels: int) -> None:
        pw = self.pw
        login = {"requirepass": pw, "masterauth": pw} if pw else {}
        options = {**login, "repl-diskless-sync-delay": 0, "repl-timeout": 5}
        self.servers.append(EmbeddedServer(program, options=options))
        self.servers.append(
            EmbeddedServer(
                program, options={**options, "replicaof": f"127.0.0.1 {self.servers[0].port}"}
            )
        )
        until(
            lambda: self.info(1)["master_link_status"] == "up", "the replica has its primary's data"
        )
        self.ports = [free_port() for _ in range(sentinels)]
        for port in self.ports:
            self._watchers.append(self._watch(program, port, sentinels // 2 + 1))
        asker = redis.Redis(port=self.ports[0], password=self.spw or None)
        until(lambda: self._sees(asker, sentinels), "the Sentinels see the replica and each other")
        asker.close()

    def _sees(self, asker: Any, sentinels: int) -> bool:
        try:
            state = asker.sentinel_masters().get(SERVICE, {})
        except redis.exceptions.ConnectionError:
            return False
        return state.get("num-slaves") == 1 and state.get("num-other-sentinels") == sentinels - 1

    def _watch(self, program: str, port: int, quorum: int) -> "subprocess.Popen[bytes]":
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {self.folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.servers[0].port} {quorum}",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 10000",
        ]
        lines += [f'sentinel auth-pass {SERVICE} "{self.pw}"'] if self.pw else []
        lines += (
            [f"requirepass {self.spw}", f"sentinel sentinel-pass {self.spw}"] if self.spw else []
        )
        file = self.folder / f"{port}.conf"
        file.write_text("\n".join(lines) + "\n")
        with (self.folder / f"{port}.log").open("ab") as log:
            return subprocess.Popen(
                [program, str(file), "--sentinel"], stdout=log, stderr=log, start_new_session=True
            )

    @property
    def url(self) -> str:
        """Return the service as parsync's settings name it."""
        login = f":{quote(self.pw, safe='')}@" if self.pw else ""
        own = f"&sentinel_password={quote(self.spw)}" if self.spw else ""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"sentinel://{login}{hosts}/0?service={SERVICE}{own}"

    @property
    def broker(self) -> str:
        """Return Celery's address of the service."""
        login = f":{quote(self.pw, safe='')}@" if self.pw else ""
        return ";".join(f"sentinel://{login}127.0.0.1:{port}/0" for port in self.ports)

    def client(self, at: int) -> Any:
        """Return a client of one server."""
        return redis.Redis(port=self.servers[at].port, password=self.pw or None)

    def info(self, at: int) -> dict[str, Any]:
        """Return the section `replication` of a server's INFO."""
        with self.client(at) as client:
            return dict(client.info("replication"))

    def cut_replication(self) -> None:
        """Keep all further writes from the replica."""
        with self.client(0) as primary:
            primary.execute_command("ACL", "SETUSER", "default", "-psync", "-sync", "-replconf")
            primary.execute_command("CLIENT", "KILL", "TYPE", "replica")

    def kill_primary(self) -> None:
        """Kill the primary with SIGKILL; return when the replica is primary."""
        os.kill(self.servers[0].process.pid, signal.SIGKILL)
        ended(self.servers[0].process)
        until(lambda: self.info(1)["role"] == "master", "the replica is primary now")

    def stop(self) -> None:
        """End everything."""
        for watcher in self._watchers:
            watcher.terminate()
            watcher.wait(timeout=180)
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
