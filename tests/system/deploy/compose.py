"""Runs docker-compose.yml for real: up, 200 tasks submitted from the host, all succeed, down.

`make compose-test`.

Redis restarts once, and has its tasks again. With --cluster the state is on a Redis Cluster instead
(docker-compose.cluster.yml), and a primary is killed while tasks run. With --monitor there are also
`parsync serve` and Prometheus, which must read its metrics and evaluate the alert rules.

The stack is closed as the file says: each container's user, root, capabilities, environment and
ports are looked at.

It takes a free port and a project name of its own, so that it can run beside a stack that is up; on
failure it shows the end of the containers' logs. Exit code 0 if every task succeeded.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from parsync_redis import ParsyncClient
from tests.kit import REPO

SCALE = {"redis": 1, "scheduler": 3, "worker": 4}
MONITOR = ("serve", "prometheus")
SERVERS = [f"redis-{n}" for n in range(1, 7)]
TASKS = 200
CLUSTER = "compose-test"
FILES = ("docker-compose.yml", "docker-compose.host.yml")
CLUSTER_FILES = ("docker-compose.yml", "docker-compose.cluster.yml")
HEALTHY_WITHIN_S = 180
DOCKER_S = 1200  # the command may build the image
DONE_WITHIN_S = 120


class Stack:
    """The compose project of this run."""

    def __init__(self, cluster: bool, monitor: bool) -> None:
        self.cluster = cluster
        self.monitor = monitor
        self.files = CLUSTER_FILES if cluster else FILES
        self.scale = {**SCALE, **dict.fromkeys(SERVERS if cluster else (), 1)}
        self.port = free_port()
        self.pages = free_port()
        self.prometheus = free_port()
        self.url = f"redis://{CLUSTER}-client@127.0.0.1:{self.port}/0"
        self.secrets = Path(tempfile.mkdtemp(prefix="parsync-secrets-"))
        self._name = f"parsync-test-{os.getpid()}"
        plugin = (
            subprocess.run(
                ["docker", "compose", "version"], capture_output=True, timeout=DOCKER_S
            ).returncode
            == 0
        )
        self._compose = ["docker", "compose"] if plugin else ["docker-compose"]

    def run(self, *words: str, capture: bool = False, files: Sequence[str] = ()) -> str:
        """Run `docker compose WORDS` for this project; return its output if `capture`."""
        named = [word for name in files or self.files for word in ("--file", str(REPO / name))]
        command = [*self._compose, "--project-name", self._name, *named, *words]
        return subprocess.run(
            command,
            env=self._env(),
            check=True,
            text=True,
            stdout=subprocess.PIPE if capture else None,
            timeout=DOCKER_S,
        ).stdout

    def _env(self) -> dict[str, str]:
        own = {
            "PARSYNC_PORT": str(self.port),
            "PARSYNC_CLUSTER": CLUSTER,
            "PARSYNC_SECRETS": str(self.secrets),
        }
        own |= {
            "PARSYNC_SERVE_PORT": str(self.pages),
            "PARSYNC_PROMETHEUS_PORT": str(self.prometheus),
        }
        return {**os.environ, **own, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def make_secrets(self) -> None:
        """Make the passwords and users.acl of this run."""
        subprocess.run(
            ["sh", str(REPO / "examples/secrets.sh")], env=self._env(), check=True, timeout=DOCKER_S
        )

    def check_closed(self) -> None:
        """Check that each container runs without root, rights or a root that it could write, and
        that no password is in its environment.
        """
        passwords = [
            path.read_text() for path in self.secrets.iterdir() if path.name != "users.acl"
        ]
        ids = self.run("ps", "--quiet", capture=True).split()
        shown = subprocess.run(
            ["docker", "inspect", *ids],
            check=True,
            text=True,
            capture_output=True,
            timeout=DOCKER_S,
        ).stdout
        assert not [password for password in passwords if password in shown], (
            "a password is in docker inspect"
        )
        for container in json.loads(shown):
            name = container["Name"]
            host = container["HostConfig"]
            user = container["Config"]["User"]
            if container["State"]["Running"]:
                assert user.split(":")[0] not in ("", "0", "root"), (
                    f"{name} runs as {user or 'root'}"
                )
                assert not host["CapAdd"], f"{name} has {host['CapAdd']}"
            assert host["ReadonlyRootfs"], f"{name} may write its root"
            assert host["CapDrop"] == ["ALL"], f"{name} drops {host['CapDrop']}"
            assert "no-new-privileges:true" in host["SecurityOpt"], f"{name} may gain privileges"
            ports = [
                port for ports in (host["PortBindings"] or {}).values() for port in ports or ()
            ]
            assert all(port["HostIp"] == "127.0.0.1" for port in ports), f"{name} is open to others"

    def health(self) -> Counter[str]:
        """Return the numbers of healthy, starting and unhealthy containers."""
        ids = self.run("ps", "--quiet", capture=True).split()
        form = "{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}"
        shown = subprocess.run(
            ["docker", "inspect", "--format", form, *ids],
            check=True,
            text=True,
            capture_output=True,
            timeout=DOCKER_S,
        )
        return Counter(shown.stdout.split())

    def wait_healthy(self) -> float:
        """Return the seconds until every container was healthy; TimeoutError after
        HEALTHY_WITHIN_S.
        """
        begin = time.monotonic()
        wanted = sum(self.scale.values())
        while (health := self.health())["healthy"] < wanted:
            if time.monotonic() - begin > HEALTHY_WITHIN_S:
                raise TimeoutError(f"after {HEALTHY_WITHIN_S} s: {dict(health)}, {wanted} wanted")
            time.sleep(0.5)
        return time.monotonic() - begin

    def ask_prometheus(self, path: str) -> Any:
        """Return Prometheus' answer, None if there is none yet."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.prometheus}/api/v1/{path}", timeout=10
            ) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def find_cluster(self) -> str:
        """Return the address of the cluster as the host sees it: the containers' own addresses."""
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        ids = [self.run("ps", "--quiet", name, capture=True).strip() for name in SERVERS]
        shown = subprocess.run(
            ["docker", "inspect", "--format", form, *ids],
            check=True,
            text=True,
            capture_output=True,
            timeout=DOCKER_S,
        )
        places = ",".join(f"{address}:6379" for address in shown.stdout.split())
        return f"redis+cluster://{CLUSTER}-client@{places}"


def submit_and_wait(stack: Stack) -> None:
    """Submit the tasks from the host and check that each succeeded, on every node of
    the stack.
    """
    with ParsyncClient.from_url(
        stack.url, CLUSTER, password_file=stack.secrets / "client"
    ) as client:
        nodes = [node for node in client.nodes() if node.state == "up"]
        assert len(nodes) == SCALE["worker"], f"{len(nodes)} nodes are up: {nodes}"
        begin = time.monotonic()
        ids = client.submit_many([("tiles.render", (tile % 64,), {}) for tile in range(TASKS)])
        if stack.cluster:
            stack.run("kill", SERVERS[1])
            print(f"{SERVERS[1]}, a primary, was killed after {time.monotonic() - begin:.1f} s")
        done = client.wait(ids, timeout=DONE_WITHIN_S)
        took_s = time.monotonic() - begin
    states = Counter(str(status.state) for status in done.values())
    by_node = Counter(status.node for status in done.values())
    print(
        f"{TASKS} tasks in {took_s:.1f} s: {dict(states)}; by node: {dict(sorted(by_node.items()))}"
    )
    assert states == {"succeeded": TASKS}, "not every task succeeded"
    assert len(by_node) == len(nodes), "a node ran nothing"


def restart_redis(stack: Stack) -> None:
    """Restart Redis, and check that it knows every task as before: it has read its append-only
    file.
    """
    with ParsyncClient.from_url(
        stack.url, CLUSTER, password_file=stack.secrets / "client"
    ) as client:
        ids = [
            client.submit("tiles.render", (1,), resources={"mem": "1TiB"}, wait_for_capacity=True)
        ]
        ids.append(client.submit("tiles.render", (1,)))
        client.wait(ids[1:], timeout=DONE_WITHIN_S)
        before = [(status.state, status.attempt) for status in client.statuses(ids)]
        stack.run("restart", "redis")
        after = [(status.state, status.attempt) for status in client.statuses(ids)]
        assert after == before, f"before Redis restarted {before}, then {after}"
        client.cancel(ids[0])
        (done,) = client.wait([client.submit("tiles.render", (2,))], timeout=DONE_WITHIN_S).values()
    assert done.state == "succeeded", done
    print("Redis restarted, and has its tasks")


def check_prometheus(stack: Stack) -> None:
    """Start the services that watch, and check that Prometheus reads the metrics and evaluates
    the alert rules.
    """
    stack.run("--profile", "monitor", "up", "--detach", "--no-recreate", *MONITOR)
    begin = time.monotonic()
    query = urllib.parse.urlencode({"query": "up == 1 and on () parsync_stale == 0"})
    while not ((read := stack.ask_prometheus(f"query?{query}")) and read["result"]):
        if time.monotonic() - begin > HEALTHY_WITHIN_S:
            raise TimeoutError(f"Prometheus does not read the metrics of serve: {read}")
        time.sleep(0.5)
    rules = [rule for group in stack.ask_prometheus("rules")["groups"] for rule in group["rules"]]
    wrong = [
        (rule["name"], rule["health"], rule.get("lastError"))
        for rule in rules
        if rule["health"] == "err"
    ]
    assert rules, "Prometheus has no rules"
    assert not wrong, wrong
    print(f"Prometheus reads the metrics and evaluates {len(rules)} rules")


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> int:
    """Run everything; always end with the stack down and its volume removed. Return the exit code."""
    stack = Stack("--cluster" in sys.argv[1:], "--monitor" in sys.argv[1:])
    try:
        stack.make_secrets()
        closed = stack.run("config", capture=True, files=FILES[:1])
        services = yaml.safe_load(closed)["services"]
        opened = [
            name for name, one in services.items() if one.get("ports") and not one.get("profiles")
        ]
        assert not opened, f"docker-compose.yml alone publishes ports of {opened}"
        stack.run("build")
        scale = [
            word for name, count in stack.scale.items() for word in ("--scale", f"{name}={count}")
        ]
        stack.run("up", "--detach", *scale)
        print(f"{sum(stack.scale.values())} containers healthy after {stack.wait_healthy():.1f} s")
        if stack.monitor:
            check_prometheus(stack)
        stack.check_closed()
        if stack.cluster:
            stack.url = stack.find_cluster()
        submit_and_wait(stack)
        if not stack.cluster:
            restart_redis(stack)
    except (AssertionError, OSError, TimeoutError, subprocess.CalledProcessError) as error:
        print(f"compose-test failed: {error}", file=sys.stderr)
        stack.run("logs", "--tail", "40")
        return 1
    finally:
        stack.run("--profile", "monitor", "down", "--volumes", "--timeout", "15")
        shutil.rmtree(stack.secrets)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
