"""`parsync serve` in a process of its own, beside real servers and schedulers: it starts, tells the
truth, and ends.
"""

import os
import resource
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from parsync_redis.cli.stack import LocalStack
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.driver import Driver
from tests.kit.servers import PRIMARIES, server_programs
from tests.kit.serving import serving, url_of
from tests.kit.waiting import PATIENCE_S, run

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(bool(PRIMARIES), reason="one server has the state"),
]
PROGRAM = next(iter(server_programs().values()))


def set_up(store):
    """Give a store the settings of a cluster, as its first scheduler does; nobody is lost while a
    test runs.
    """
    settings = Settings.load(
        url=url_of(store), cluster=store.keys.cluster, partitions=2, lease_s=60
    )
    join_cluster(store, settings, create=True)
    return Driver(store)


def start(*words, url="redis://127.0.0.1:1/0", code=""):
    """Run `parsync serve` until it ends."""
    program = (
        f"{code}\nimport sys; from parsync_redis.cli import main; sys.argv[0] = 'parsync'; main()"
    )
    env = {**os.environ, "PARSYNC_URL": url}
    return run(
        [sys.executable, "-c", program, "serve", *words],
        60,
        env=env,
        capture_output=True,
        text=True,
    )


@pytest.mark.one_server(0)
def test_the_service_is_healthy_and_reports_whether_tasks_can_be_placed(store):
    driver = set_up(store)
    with serving(url_of(store), store.keys.cluster) as serve:
        serve.until_json("/healthz", lambda found: found["ok"])
        status, found = serve.json("/readyz")
        assert (status, found["ready"], found["stale"]) == (503, False, False)
        assert [(check["name"], check["level"]) for check in found["reasons"]] == [
            ("schedulers", "fail"),
            ("nodes", "fail"),
        ]
        assert found["reasons"][1]["repair"] == "start a worker of your app with --parsync"
        driver.node("n1")
        with LocalStack(store.keys.cluster, url_of(store)) as stack:
            stack.scheduler()
            found = serve.until_json("/readyz", lambda found: found["ready"])
            assert (serve.json("/readyz")[0], found["reasons"]) == (200, [])


@pytest.mark.one_server(0)
def test_a_stranger_with_a_thousand_half_requests_shuts_nothing_off(store):
    """All come from the address of those who ask for health and pages."""
    set_up(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(url_of(store), store.keys.cluster) as serve, ExitStack() as held:
        serve.until_json("/healthz", lambda found: found["ok"])
        host, port = serve.url.removeprefix("http://").split(":")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1000):
            peer = held.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
            peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        began_s = time.monotonic()
        assert serve.json("/healthz")[0] == 200
        print(f"/healthz beside 1,000 half requests: {time.monotonic() - began_s:.3f} s")
        for path in ("/", "/metrics", "/api/v1/nodes"):
            assert serve.get(path)[0] == 200, path


def test_the_service_survives_its_server_and_reports_the_age_of_its_survey():
    with EmbeddedServer(PROGRAM) as server:
        store = Store.from_url(server.url, "demo")
        set_up(store)
        with serving(server.url, "demo") as serve:
            serve.until_json("/healthz", lambda found: found["ok"])
            server.process.kill()
            server.process.wait(timeout=30)
            found = serve.until_json("/healthz", lambda found: found["stale"])
            assert found["age_s"] > 5
            assert "127.0.0.1" in found["error"]
            assert serve.json("/healthz")[0] == 503
            status, ready = serve.json("/readyz")
            assert (status, [check["name"] for check in ready["reasons"]]) == (503, ["survey"])
            assert "the cluster was last read" in ready["reasons"][0]["text"]
            server.restart()
            set_up(store)
            serve.until_json("/healthz", lambda found: found["ok"])
            assert serve.process.alive
        store.client.close()


def test_the_service_starts_before_its_server():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with serving(f"redis://127.0.0.1:{port}/0", "demo") as serve:
        found = serve.until_json("/healthz", lambda found: "127.0.0.1" in found["error"])
        assert (found["ok"], found["age_s"], found["stale"]) == (False, None, True)
        with EmbeddedServer(PROGRAM, port=port):
            serve.until_json("/healthz", lambda found: found["ok"])


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_order(how, code):
    with serving("redis://127.0.0.1:1/0", "demo") as serve:
        serve.json("/healthz")
        serve.process.send(how)
        assert serve.process.end(time.monotonic() + 30) == code
        assert not any("Traceback" in line for line in serve.process.lines)


def test_another_path_or_method_is_an_error_in_json():
    with serving("redis://127.0.0.1:1/0", "demo") as serve:
        assert serve.json("/none") == (
            404,
            {"error": "there is no /none: see /api/v1", "status": 404},
        )
        assert serve.json("/healthz", method="POST") == (
            405,
            {"error": "POST is not allowed: only GET is", "status": 405},
        )


def test_on_a_loopback_address_only_this_machine_may_be_named():
    def status(serve, host):
        request = urllib.request.Request(f"{serve.url}/api/v1", headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    with serving("redis://127.0.0.1:1/0", "demo") as serve:
        for host in ("localhost", "LOCALHOST:8787", "127.0.0.1:1", "[::1]", "[::1]:8787"):
            assert status(serve, host) == 200, host
        for host in ("evil.example", "localhost.evil.example:8787", "127.0.0.2"):
            assert status(serve, host) == 400, host
    with serving("redis://127.0.0.1:1/0", "demo", "--host", "0.0.0.0") as serve:
        assert status(serve, "parsync.example") == 200


@pytest.mark.parametrize("name", ["starlette", "uvicorn", "prometheus_client", "jinja2"])
def test_without_the_extra_the_command_names_the_extra_to_install(name):
    done = start(code=f"import sys; sys.modules[{name!r}] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: parsync serve needs {name}: pip install 'parsync-redis[serve]'\n"


def test_a_port_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = start("--port", str(port))
    assert (done.returncode, done.stderr) == (
        2,
        f"error: cannot listen on 127.0.0.1 port {port}: Address already in use\n",
    )
