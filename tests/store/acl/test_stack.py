"""The whole stack runs under the logins of `parsync acl`, default user off: nothing is denied, and
no password shows.

Addresses name users; passwords are in files. Real schedulers, a real Celery worker, a client and
the viewer's commands.
"""

import json
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.result import AsyncResult

from parsync_redis import AccessDenied, ParsyncClient, Settings, UnknownLimit
from parsync_redis.cli.stack import LocalStack
from parsync_redis.model.ids import readable
from parsync_redis.security.acl import RightsOptions
from parsync_redis.security.acl_tables import Role
from parsync_redis.serve.submitters import hash_token
from tests.kit import REPO
from tests.kit.logins import CLUSTER, Guarded
from tests.kit.rig import LONG_LEASE_S
from tests.kit.servers import server_programs
from tests.kit.serving import Form, serving
from tests.kit.waiting import run, until

pytestmark = pytest.mark.serial
PATIENCE_S = 180.0


class Site:
    """A guarded server, a scheduler and a worker of examples.tiles, and where their passwords and
    lines are.
    """

    def __init__(self, guarded: Guarded, folder: Path) -> None:
        self.guarded = guarded
        self.secrets = folder / "secrets"
        self.logs = folder / "logs"
        self.secrets.mkdir()
        for role in Role:
            (self.secrets / role).write_text(f"pw-{role}\n")
        self.stack = LocalStack(CLUSTER, logs=self.logs, cwd=REPO)
        self.outputs: list[str] = []

    def env(self, role: str) -> dict[str, str]:
        """Return the settings of a process of this role."""
        return {
            "PARSYNC_URL": self.guarded.address(role),
            "PARSYNC_PASSWORD_FILE": str(self.secrets / role),
            "PARSYNC_CLUSTER": CLUSTER,
        }

    def start(self) -> None:
        self.stack.env |= self.env(Role.SCHEDULER)
        self.stack.scheduler(1, lease_s=LONG_LEASE_S, partitions=2)
        self.stack.env |= self.env(Role.WORKER)
        celery = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "examples.tiles",
            "worker",
            "-n",
            "n1@h",
            "-E",
            "-l",
            "info",
        ]
        self.stack.start("n1", [*celery, "--parsync-node", "n1", "-c", "2"])
        with self.client() as client:
            self.until(lambda: [node for node in client.nodes() if node.state == "up"])

    def until(self, fact) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not fact():
            assert time.monotonic() < deadline, f"{self.guarded.denials()}\n{self.lines()[-3000:]}"
            time.sleep(0.05)

    def lines(self) -> str:
        return "\n".join(path.read_text() for path in self.logs.glob("*.log"))

    def client(self, role: str = Role.CLIENT) -> ParsyncClient:
        env = self.env(role)
        return ParsyncClient(
            Settings.load(
                url=env["PARSYNC_URL"], cluster=CLUSTER, password_file=env["PARSYNC_PASSWORD_FILE"]
            )
        )

    def parsync(self, role: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the login of a role."""
        command = [sys.executable, "-m", "parsync_redis.cli", *words]
        done = run(
            command, capture_output=True, text=True, env={**os.environ, **self.env(role), **env}
        )
        self.outputs.append(done.stdout + done.stderr)
        return done

    def use_client(self) -> None:
        """Submit, wait, cancel and look with the client's login."""
        with self.client() as client:
            ids = client.submit_many([("tiles.render", (tile,)) for tile in range(20)])
            assert {found.state for found in client.wait(ids, PATIENCE_S).values()} == {"succeeded"}
            assert client.cancel(client.submit("tiles.render", [1], countdown=60)) == "cancelled"
            assert [node.name for node in client.nodes()] == ["n1"]
            assert len(client.partitions()) == 2


@pytest.fixture(scope="module", params=list(server_programs())[-1:])  # the matrix is tested on each
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    site = Site(
        Guarded(
            server_programs()[request.param],
            RightsOptions(("celery",), submitters=True, operators=True),
        ),
        tmp_path_factory.mktemp("site"),
    )
    try:
        site.start()
        yield site
    finally:
        site.stack.stop()
        site.guarded.stop()


@pytest.fixture
def tiles(site: Site, monkeypatch: pytest.MonkeyPatch):
    """Yield the app as a web application would have it: with the client's login."""
    from celery import Celery

    from parsync_redis import Parsync

    for name, value in site.env(Role.CLIENT).items():
        monkeypatch.setenv(name, value)
    url = Settings.load().url
    app = Celery("web", broker=url, backend=url, set_as_current=False)
    app.conf.task_send_sent_event = True
    Parsync(app)
    yield app
    app.close()


def test_clients_submit_wait_cancel_and_look(site: Site):
    site.use_client()
    assert site.guarded.denials() == []


def test_a_web_application_sends_placed_and_plain_tasks_and_waits_for_results(site: Site, tiles):
    placed = tiles.send_task("tiles.render", (3,), parsync={"slots": 1})
    plain = tiles.send_task("tiles.ping")
    assert isinstance(placed, AsyncResult)
    assert len(placed.get(timeout=PATIENCE_S)) == 48
    assert plain.get(timeout=PATIENCE_S) == "pong"
    with pytest.raises(UnknownLimit, match="no limit 'stripe'; there are no limits"):
        tiles.send_task("tiles.render", (3,), parsync={"limits": ["stripe"]})
    assert site.guarded.denials() == []


def test_a_chord_over_chains_runs_through_the_workers(site: Site, tiles):
    from celery import chord

    render, summarize = (
        tiles.signature(f"tiles.{name}", options={"parsync": {}})
        for name in ("render", "summarize")
    )
    steps = [render.clone((tile,)) | summarize.clone() for tile in (0, 1)]
    drawn = chord(steps, tiles.signature("tiles.area"), app=tiles)
    assert drawn.apply_async().get(timeout=PATIENCE_S) >= 0
    assert site.guarded.denials() == []


def test_the_viewers_commands_list_everything_under_way(site: Site):
    with site.client() as client:
        late = client.submit("tiles.render", [1], countdown=3600)
        try:
            for line in (
                "nodes",
                "partitions",
                "schedulers",
                f"status {late}",
                "tasks --state waiting",
            ):
                done = site.parsync(Role.VIEWER, *line.split(), "--json")
                assert done.returncode == 0, done.stderr
                assert json.loads(done.stdout)
            assert site.parsync(Role.VIEWER, "demand").stdout == "no tasks wait\n"
            for words in (("dead", "list"), ("tasks", "--state", "dead")):
                assert site.parsync(Role.VIEWER, *words).returncode == 0
            assert site.guarded.denials() == []
            every = site.parsync(Role.VIEWER, "tasks")
            assert every.returncode == 0, every.stderr
            assert late in every.stdout
            doctor = site.parsync(Role.VIEWER, "doctor")
            assert "fail" not in doctor.stdout
            assert "accepts writes" in doctor.stdout or doctor.returncode == 0
        finally:
            client.cancel(late)
            site.guarded.admin.execute_command("ACL LOG RESET")


def test_a_viewers_login_is_enough_to_serve(site: Site):
    env = site.env(Role.VIEWER)
    with site.client() as client, serving(env["PARSYNC_URL"], CLUSTER, **env) as serve:
        waits = client.submit(
            "tiles.render", [1], require={"zone": "nowhere"}, wait_for_capacity=True
        )
        late = client.submit("tiles.render", [1], countdown=3600)
        try:
            serve.until_json("/readyz", lambda found: found["ready"])
            serve.until_json("/api/v1/kinds", lambda found: found["total"] == 1)
            for path in (
                "nodes",
                "partitions",
                "schedulers",
                "names",
                "tasks",
                f"tasks/{late}",
                f"explain/{waits}",
                "demand",
            ):
                assert serve.json(f"/api/v1/{path}")[0] == 200
            oldest = "parsync_oldest_waiting_by_name_seconds{"
            until(
                lambda: oldest in serve.get("/metrics")[1],
                "the oldest tasks are looked for at every second survey",
            )
            assert site.guarded.denials() == []
        finally:
            client.cancel_many([late, waits])
        site.outputs += serve.process.lines


def test_serve_submits_and_operates_with_its_own_login(site: Site, tmp_path: Path):
    table = (
        f'token_sha256 = ["{hash_token("shop")}"]\nnames = ["tiles.*"]\nresources = {{mem = 1}}\n'
    )
    (tmp_path / "submitters").write_text(f"[shop]\n{table}")
    env = site.env(Role.SERVE)
    flags = ("--submitters", str(tmp_path / "submitters"))
    proxy = ("--operator-header", "X-User", "--trusted-proxy", "127.0.0.1")
    with (
        site.client() as client,
        serving(env["PARSYNC_URL"], CLUSTER, *flags, *proxy, **env) as serve,
    ):

        def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            status, text, _ = serve.ask(
                method, f"/api/v1/tasks{path}", body, {"Authorization": "Bearer shop"}
            )
            return status, json.loads(text)

        def operate(action: str, of: str, target: str, **more: str) -> str:
            page = serve.ask("GET", f"/operator/{action}?{of}={target}", None, {"X-User": "al"})[1]
            mark = re.findall(r'name="mark" value="(\w+)"', page)[0]
            form = Form({of: target, "mark": mark, **more})
            return serve.ask("POST", f"/operator/{action}", form, {"X-User": "al"})[1]

        status, made = ask("POST", "", {"name": "tiles.render", "args": [3]})
        assert status == 201, made
        assert client.wait([made["id"]], PATIENCE_S)[made["id"]].state == "succeeded"
        assert ask("GET", f"/{made['id']}")[1]["task"]["state"] == "succeeded"
        refused = [
            ({"name": "tiles.no"}, "known are tiles."),
            ({"name": "tiles.ping", "resources": {"mem": 1}}, "it asks for slots=1 mem=1"),
        ]
        for task, error in refused:
            status, found = ask("POST", "", task)
            assert (status, error in found["error"], "n1" in found["error"]) == (
                422,
                True,
                False,
            ), found
        ask(
            "POST",
            "",
            [
                {"name": "tiles.render", "args": [1], "countdown": 3600, "id": f"shop:{at}"}
                for at in (1, 2)
            ],
        )
        assert ask("DELETE", "/shop:1") == (200, {"id": "shop:1", "state": "cancelled"})
        assert "task shop:2 is cancelled" in operate("cancel", "id", "shop:2", state="waiting")
        assert "n1 is draining" in operate("drain", "node", "n1")
        assert client.nodes()[0].note == "no deadline: by al over HTTP"
        assert "n1 is up" in operate("undrain", "node", "n1")
        with site.client(Role.SERVE) as own:
            assert own.requests.revive(["none"], "al") == ["gone"]
        assert site.guarded.denials() == []
        site.outputs += serve.process.lines


def test_a_viewers_login_lets_nobody_submit_or_drain(site: Site, tmp_path: Path):
    table = f'token_sha256 = ["{hash_token("shop")}"]\nnames = ["*"]\n'
    (tmp_path / "submitters").write_text(f"[shop]\n{table}")
    env = site.env(Role.VIEWER)
    flags = ("--submitters", str(tmp_path / "submitters"), "--submit-only")
    with serving(env["PARSYNC_URL"], CLUSTER, *flags, **env) as serve:
        status, text, _ = serve.ask(
            "POST", "/api/v1/tasks", {"name": "tiles.ping"}, {"Authorization": "Bearer shop"}
        )
        assert (status, "has no rights to do this on its Redis server" in text) == (503, True)
        said = "a request of a submitter failed"
        until(lambda: any(said in line for line in list(serve.process.lines)), "the log says it")
    site.guarded.admin.execute_command("ACL LOG RESET")


def test_a_viewer_lists_tasks_that_have_ended_and_audits_if_it_may_scan(site: Site):
    try:
        with site.client() as client:
            client.wait([client.submit("tiles.render", [1])], PATIENCE_S)
        assert "succeeded" in site.parsync(Role.VIEWER, "tasks", "--state", "succeeded").stdout
        site.guarded.login(site.guarded.admin, Role.VIEWER, RightsOptions(scan=True))
        audit = site.parsync(Role.VIEWER, "doctor", "--audit")
        assert audit.returncode == 0, audit.stdout
        assert {what for _, what in site.guarded.denials()} <= {"config|get"}
    finally:
        site.guarded.login(site.guarded.admin, Role.VIEWER)
        site.guarded.admin.execute_command("ACL LOG RESET")


def test_a_login_that_may_list_tasks_and_cancel_them_cancels_all_of_a_kind(site: Site):
    with site.client() as client:
        wide = {"name": "tiles.render", "args": [1], "slots": 64, "wait_for_capacity": True}
        ids = client.submit_many([wide, wide, {**wide, "countdown": 3600}])
        assert [kind.waiting for kind in client.demand()] == [2]
        done = site.parsync(Role.SCHEDULER, "cancel", "--kind", client.demand()[0].kind, "--yes")
        assert done.stdout == "3 waiting tasks cancelled\n", done.stderr
        assert {found.state for found in client.statuses(ids)} == {"cancelled"}
    assert site.guarded.denials() == []


def test_an_audit_by_a_viewer_who_may_not_scan_fails_beside_the_other_checks(site: Site):
    ended = site.parsync(Role.VIEWER, "doctor", "--audit")
    site.guarded.admin.execute_command("ACL LOG RESET")
    assert ended.returncode == 1
    assert ended.stdout.count("\n") > 5
    assert "audit with a viewer's login that parsync acl --scan of this version" in ended.stdout


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (Role.VIEWER, ("submit", "tiles.ping")),
        (Role.VIEWER, ("cancel", "t1")),
        (Role.CLIENT, ("cancel", "--name", "tiles.*", "--yes")),
        (Role.VIEWER, ("drain", "n1")),
        (Role.CLIENT, ("tasks", "--state", "failed")),
        (Role.CLIENT, ("dead", "list")),
        (Role.CLIENT, ("drain", "n1")),
        (Role.CLIENT, ("scheduler",)),
        (Role.VIEWER, ("scheduler",)),
    ],
)
def test_a_denied_command_ends_at_once_with_one_line(
    site: Site, role: Role, words: tuple[str, ...]
):
    done = site.parsync(role, *words)
    site.guarded.admin.execute_command("ACL LOG RESET")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "may not" in done.stderr


def test_a_wrong_password_ends_at_once_with_one_line(site: Site, tmp_path: Path):
    (tmp_path / "wrong").write_text("hunter2-wrong")
    for role in (Role.CLIENT, Role.SCHEDULER):
        words = ("scheduler",) if role is Role.SCHEDULER else ("nodes",)
        done = site.parsync(role, *words, PARSYNC_PASSWORD_FILE=str(tmp_path / "wrong"))
        assert done.returncode == 2
        assert "refuses the login" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert "hunter2" not in done.stdout + done.stderr
    site.guarded.admin.execute_command("ACL LOG RESET")


def test_after_the_server_forgot_the_scripts_a_client_waits_for_a_scheduler_to_load_them(
    site: Site,
):
    with site.client() as client:
        site.guarded.admin.script_flush()
        id = client.submit("tiles.render", [5])
        assert client.wait([id], PATIENCE_S)[id].state == "succeeded"
    assert {what for _, what in site.guarded.denials()} <= {"script|load"}, "the client may try"
    site.guarded.admin.execute_command("ACL LOG RESET")


def test_rubbish_that_a_client_publishes_to_a_scheduler_ends_none(site: Site):
    with site.client() as client:
        names: Any = site.guarded.admin.hkeys(client.store.keys.shared("schedulers"))
        assert names
        for data in (
            b"tick a b",
            b"",
            b"\xff",
            b"tick 1",
            b"wake x",
            b"freed 99 1 1",
            b"tick " + b"9" * 9000 + b" 0",
        ):
            for name in names:
                client.store.client.spublish(f"{client.store.keys.wakes()}:{readable(name)}", data)
        id = client.submit("tiles.render", [5])
        assert client.wait([id], PATIENCE_S)[id].state == "succeeded"
    assert "scheduler-1" in site.stack.alive()
    assert "Traceback" not in site.lines()


class Bomb:
    """An object whose pickle makes a file when a process unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickled_message_is_refused_unopened_and_the_worker_lives(site: Site, tmp_path: Path):
    opened = tmp_path / "opened"
    assert pickle.dumps(Bomb(opened))
    with site.client() as client:
        bad = client.submit("tiles.render", [Bomb(opened)], serializer="pickle")
        good = client.submit("tiles.render", [5])
        states = client.wait([bad, good], PATIENCE_S)
    assert (states[bad].state, states[good].state) == ("failed", "succeeded")
    assert not opened.exists()
    assert "n1" in site.stack.alive()
    assert "pickle" in site.lines()


def test_access_denied_names_no_password(site: Site):
    with site.client(Role.VIEWER) as viewer, pytest.raises(AccessDenied) as caught:
        viewer.submit("tiles.ping")
    site.guarded.admin.execute_command("ACL LOG RESET")
    assert (
        "pw-"
        not in repr(caught.value)
        + repr(viewer.settings)
        + repr(viewer.store.client)
        + viewer.store.address
    )


def test_no_password_shows_in_lines_outputs_or_the_list_of_processes(site: Site):
    """Runs last: over everything that the tests before it have made the processes say."""
    with site.client() as client:
        client.cancel("nobody")
    bad = site.parsync(
        Role.CLIENT, "nodes", PARSYNC_URL="redis://u:pw-typed@@host:x/0", PARSYNC_PASSWORD_FILE=""
    )
    assert bad.returncode == 2
    commands = "\n".join(
        path.read_bytes().replace(b"\0", b" ").decode(errors="replace") for path in cmdlines()
    )
    assert "examples.tiles" in commands
    for where, text in (
        ("lines", site.lines()),
        ("outputs", "\n".join(site.outputs)),
        ("processes", commands),
    ):
        lines = [line for line in text.splitlines() if "pw-" in line]
        assert not lines, f"{where}: {lines[:5]}"


def cmdlines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            path.read_bytes()
        except OSError:
            continue
        yield path


def test_a_stack_that_stops_was_denied_nothing(site: Site):
    site.guarded.admin.execute_command("ACL LOG RESET")
    site.stack.terminate("n1")
    site.stack.terminate("scheduler-1")
    assert site.guarded.denials() == []
    assert "pw-" not in site.lines()
