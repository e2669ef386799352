"""A RabbitMQ server of the tests' own, on loopback: Debian's package `rabbitmq-server`, without its
service.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from parsync_redis.store.server.embedded import free_port
from tests.kit.waiting import ended

START_S = 300.0


def named_program() -> str | None:
    """Return the start script that PARSYNC_TEST_RABBITMQ names, or None: who names one wants the
    tests to run, not to be skipped.
    """
    return os.environ.get("PARSYNC_TEST_RABBITMQ")


def rabbitmq_program() -> str | None:
    """Return the server's own start script, which needs no root: the one that is named, or
    Debian's.
    """
    named = named_program()
    found = (
        [named]
        if named
        else sorted(map(str, Path("/usr/lib/rabbitmq").glob("lib/*/sbin/rabbitmq-server")))
    )
    return found[-1] if found else None


def epmd_program() -> str | None:
    """Return the program of Erlang's port mapper, which RabbitMQ needs; None if there is none."""
    return os.environ.get("PARSYNC_TEST_EPMD") or shutil.which("epmd")


class RabbitMQ:
    """A server in a folder of its own; it can be killed, paused and started again on
    the same port.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="parsync-rabbit-"))
        self.port = free_port()
        dist = free_port()
        mapper = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}//"
        self.shown = self.url.replace(":guest@", ":**@")
        self._env = {
            **os.environ,
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"parsync{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(dist),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper),
        }
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, unless it runs, and wait until it answers."""
        if self._server is not None:
            return
        mapper = epmd_program()
        program = rabbitmq_program()
        assert mapper, (
            "no epmd, which RabbitMQ needs: put it on the PATH, or name it in PARSYNC_TEST_EPMD"
        )
        assert program, "no RabbitMQ: see PARSYNC_TEST_RABBITMQ"
        assert Path(program).exists(), f"no RabbitMQ at {program}: see PARSYNC_TEST_RABBITMQ"
        self._mapper = self._mapper or subprocess.Popen(
            [mapper], env=self._env, start_new_session=True
        )
        with (self.folder / "output").open("ab") as output:
            self._server = subprocess.Popen(
                [program],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._until_it_answers()

    def _until_it_answers(self) -> None:
        assert self._server is not None
        deadline = time.monotonic() + START_S
        while not self._answers():
            text = (self.folder / "output").read_text(errors="replace")[-800:]
            assert self._server.poll() is None, f"RabbitMQ has ended: {text}"
            assert time.monotonic() < deadline, f"RabbitMQ did not start: {text}"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as sock:
                sock.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(sock.recv(8))  # limit: the connection has a timeout
        except OSError:
            return False

    def _send(self, how: int) -> None:
        if self._server is not None:
            os.killpg(self._server.pid, how)

    def kill(self) -> None:
        """Kill the server."""
        self._send(signal.SIGKILL)
        if self._server is not None:
            ended(self._server)
        self._server = None

    def pause(self) -> None:
        """Stop the server with SIGSTOP: the kernel still accepts connections."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server go on, and wait until it answers."""
        self._send(signal.SIGCONT)
        self._until_it_answers()

    def close(self) -> None:
        """End everything and remove the folder."""
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            ended(self._mapper)
        shutil.rmtree(self.folder, ignore_errors=True)
