"""Nothing waits in silence: whatever keeps tasks from being placed is said by who waits, and by the
command that looks.

The five hangs that used to be silent: no scheduler, no node, all nodes drained, a worker without
flags, the name of a cluster that is mistyped. Real processes; the tests of this module go on from
each other's stack.
"""

import json
import logging
import os
import re
import signal
import sys
import time

import pytest

from parsync_redis.inspect import outlook
from parsync_redis.model.task import TaskState
from parsync_redis.store.reads.schedulers import read_schedulers
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.rig import APP, CLUSTER, Rig
from tests.kit.waiting import ended, run

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def rig(new_rig) -> Rig:
    """Return a rig with an empty server: tests start what they need."""
    return new_rig()


@pytest.fixture(autouse=True)
def first_submit(monkeypatch):
    """Make each test look like a process that has not submitted yet."""
    monkeypatch.setattr(outlook, "_checked_clusters", set())


def parsync(rig: Rig, *words: str, code: int = 0, cluster: str = CLUSTER) -> str:
    """Run a command; return what it printed on both streams. `pytest -rP` shows how long it took."""
    began_s = time.monotonic()
    env = {**os.environ, "PARSYNC_URL": rig.url, "PARSYNC_CLUSTER": cluster}
    done = run(
        [sys.executable, "-m", "parsync_redis.cli", *words], capture_output=True, text=True, env=env
    )
    assert done.returncode == code, done.stdout + done.stderr
    print(f"after {time.monotonic() - began_s:.2f} s: parsync {words[0]} has ended with {code}")
    return done.stdout + done.stderr


def warned(caplog) -> str:
    """Return the one warning of this process's client."""
    (line,) = [
        r.getMessage()
        for r in caplog.records
        if r.name == "parsync.client" and r.levelno == logging.WARNING
    ]
    return line


def submit(rig: Rig) -> str:
    """Submit a task with a client that has submitted nothing yet, twice: it warns once at most."""
    rig.client.requests.warned = False
    ids = [
        rig.client.submit("tests.kit.apps.marks.noted", ["x"], wait_for_capacity=True)
        for _ in range(2)
    ]
    return ids[0]


def why(rig: Rig, id: str) -> str:
    """Return the reason why a task waits, as `parsync status` prints it; `parsync tasks` must print the same reason."""
    answer = json.loads(parsync(rig, "status", id, "--json"))
    assert answer["state"] == "waiting"
    listed = json.loads(parsync(rig, "tasks", "--state", "waiting", "--json"))
    assert re.sub(r"\d+ s", "", answer["why"]) in [
        re.sub(r"\d+ s", "", t["why"]) for t in listed if t["id"] == id
    ]
    return str(answer["why"])


# -- the five hangs --------------------------------------------------------------------------------


def test_no_scheduler(rig: Rig, caplog):
    rig.worker("n1", up=False)
    repair = f"parsync scheduler --cluster {CLUSTER}"
    missing = f"no scheduler has joined cluster '{CLUSTER}' on {rig.store.address}"
    id = submit(rig)
    assert f"{missing}: {repair}" in warned(caplog)
    assert why(rig, id).startswith(f"{missing}: {repair}")
    assert missing in parsync(rig, "doctor", code=1)
    rig.until(
        lambda: f"node n1 gets no tasks: {missing}: {repair}" in rig.lines("n1"),
        "the worker says so",
    )
    rig.schedulers()
    rig.until(
        lambda: "node n1: a scheduler is there now" in rig.lines("n1"), "it says that it is over"
    )
    rig.until_state(id, TaskState.SUCCEEDED)
    parsync(rig, "doctor")


def test_a_scheduler_that_stands_still_is_none(rig: Rig, caplog):
    pid = rig.pid("scheduler-1")
    os.kill(pid, signal.SIGSTOP)
    try:
        alive = lambda: any(s.alive for s in read_schedulers(rig.store))  # noqa: E731
        rig.until(lambda: not alive(), "it has not renewed for a lease")
        assert "none is alive" in parsync(rig, "doctor", code=1)
        id = submit(rig)
        assert "is alive: scheduler-1 (silent for" in warned(caplog)
        assert "is alive: scheduler-1 (silent for" in why(rig, id)
    finally:
        os.kill(pid, signal.SIGCONT)
    rig.until_state(id, TaskState.SUCCEEDED)


def test_all_nodes_drained(rig: Rig, caplog):
    parsync(rig, "drain", "n1", "--reason", "a new disk")
    id = submit(rig)
    advice = "none of its nodes takes tasks: n1 (draining): parsync nodes undrain NODE"
    assert advice in warned(caplog)
    assert why(rig, id) == "only node n1 fits: it is drained: a new disk"
    assert "none of 1 takes tasks" in parsync(rig, "doctor", code=1)
    rig.until(
        lambda: "node n1 gets no tasks: it is drained" in rig.lines("n1"), "the worker says so"
    )
    assert "waiting" in parsync(rig, "tasks")
    parsync(rig, "undrain", "n1")
    rig.until_state(id, TaskState.SUCCEEDED)


def test_explain_names_the_holder_of_the_amounts_that_a_task_waits_for(rig: Rig):
    holders = [rig.client.submit("tests.kit.apps.marks.gated", [key]) for key in ("a", "b")]
    for id in holders:
        rig.until_state(id, TaskState.RUNNING)
    waits = rig.client.submit("tests.kit.apps.marks.noted", ["w"])
    later = rig.client.submit("tests.kit.apps.marks.noted", ["l"], countdown=3600)
    first, second = sorted(holders)
    assert (
        why(rig, waits)
        == f"only node n1 fits: it is full until one of the tasks {first}, {second} ends"
    )
    assert re.fullmatch(r"it is due at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", why(rig, later))
    impossible = rig.client.submit(
        "tests.kit.apps.marks.noted", ["i"], require={"kind": "gpu"}, wait_for_capacity=True
    )
    assert why(rig, impossible) == "no node fits: no node has label kind:gpu; there are no labels"
    rig.open()
    rig.until_state(waits, TaskState.SUCCEEDED)
    for id in (later, impossible):
        rig.client.cancel(id)


def test_no_node(rig: Rig, caplog):
    os.kill(rig.pid("n1"), signal.SIGKILL)
    rig.until(lambda: rig.node("n1").state == "down", "n1 is lost")
    id = submit(rig)
    assert "none of its nodes takes tasks: n1 (down)" in warned(caplog)
    assert re.fullmatch(r"only node n1 fits: it is down since \d{4}-.* UTC", why(rig, id))
    assert "none of 1 takes tasks" in parsync(rig, "doctor", code=1)
    rig.client.cancel(id)


def test_a_worker_without_flags(rig: Rig):
    rig.stack.start(
        "plain",
        [sys.executable, "-m", "celery", "-A", APP, "worker", "-P", "solo", "-n", "plain@h"],
    )
    warning = (
        r"this worker is no node: tasks of its app that parsync places "
        r"\(.*marks\.\w+.*and \d+ more\)"
    )
    rig.until(lambda: re.search(warning, rig.lines("plain")), "it says so")
    assert "start it with --parsync" in rig.lines("plain")
    rig.stack.terminate("plain")


def test_a_mistyped_cluster(rig: Rig):
    output = parsync(rig, "submit", "proj.x", "--id", "t1", cluster="sistem")
    assert (
        f"no scheduler has joined cluster 'sistem' on {rig.store.address} (other "
        f"clusters there: {CLUSTER})" in output
    )
    assert f"(other clusters there: {CLUSTER})" in parsync(rig, "status", "t1", cluster="sistem")
    assert f"(other clusters there: {CLUSTER})" in parsync(rig, "doctor", code=1, cluster="sistem")
    parsync(rig, "cancel", "t1", cluster="sistem")


# -- schedulers that wait --------------------------------------------------------------------------


def test_of_three_schedulers_beside_workers_two_are_active_and_the_third_takes_over(rig: Rig):
    for name in [name for name in rig.stack.alive() if name.startswith("scheduler-")]:
        rig.stack.terminate(name)
    for name in ("w1", "w2", "w3"):
        extra = ("--parsync-with-scheduler",)
        rig.worker(
            name, *extra, up=False, slots=1, pool="threads"
        ) if name != "w3" else rig.stack.start(
            name,
            [
                sys.executable,
                "-m",
                "celery",
                "-A",
                APP,
                "worker",
                "-P",
                "solo",
                "-n",
                "w3@h",
                *extra,
            ],
        )

    def active() -> dict[str, int]:
        return {
            s.name: int(s.stats["pid"])
            for s in read_schedulers(rig.store)
            if s.alive and "pid" in s.stats
        }

    def children(worker: str) -> set[int]:
        done = run(
            ["pgrep", "-P", str(rig.pid(worker)), "-f", "scheduler"], capture_output=True, text=True
        )
        return {int(pid) for pid in done.stdout.split()}

    rig.until(lambda: all(children(name) for name in ("w1", "w2", "w3")), "each has its scheduler")
    rig.until(lambda: len(active()) == 2, "two are active")
    rig.until_up("w1", "w2")
    first = active()
    workers = {pid: name for name in ("w1", "w2", "w3") for pid in children(name)}
    lost = next(pid for pid in first.values() if workers[pid] != "w3")
    os.kill(rig.pid(workers[lost]), signal.SIGKILL)
    rig.until(lambda: lost not in active().values(), "it went with its worker")
    rig.until(
        lambda: len(active()) == 2 and set(active().values()) == set(workers) - {lost},
        "the third is active",
    )
    rig.stack.kill(workers.pop(lost))
    some = next(iter(workers))
    os.kill(some, signal.SIGKILL)
    rig.until(
        lambda: children(workers[some]) - {some},
        "a scheduler that dies is started again by its worker",
    )
    rig.until(lambda: len(active()) == 2 and some not in active().values(), "and is active again")
    id = rig.client.submit("tests.kit.apps.marks.noted", ["z"])
    rig.until_state(id, TaskState.SUCCEEDED)
    for name in workers.values():
        rig.stack.terminate(name)
    rig.until(lambda: not active(), "workers that stop take their schedulers along")


def test_an_app_that_submits_is_warned_and_its_control_purges_what_waits(rig: Rig, caplog):
    client = rig.tasks.app.parsync.client
    client.requests.warned = False
    results = [
        rig.tasks.noted.apply_async((key,), parsync={"wait_for_capacity": True}) for key in "ab"
    ]
    assert "is alive" in warned(caplog) or "no scheduler has joined" in warned(caplog)
    foreign = rig.client.submit("proj.of.another.app", wait_for_capacity=True)
    assert rig.tasks.app.control.purge() == 2
    assert [rig.status(result).why for result in results] == ["purged"] * 2
    assert rig.status(foreign).state == "waiting"
    rig.client.cancel(foreign)


def test_a_scheduler_waits_for_its_server_and_logs_the_wait(tmp_path, rig: Rig):
    with EmbeddedServer() as server:
        server.process.kill()
        ended(server.process)
        command = [
            sys.executable,
            "-m",
            "parsync_redis.cli",
            "scheduler",
            "--url",
            server.url,
            "--cluster",
            "late",
        ]
        process = rig.stack.start("late", command)
        rig.until(
            lambda: "this scheduler waits for it" in rig.lines("late"), "it says that it waits"
        )
        assert process.alive
        server.restart()
        rig.until(lambda: "runs in cluster late" in rig.lines("late"), "it goes on by itself")
        assert rig.stack.terminate("late") == 0


def test_a_scheduler_with_a_wrong_login_ends_at_once(rig: Rig):
    for server in rig.state_servers() or [rig.redis]:
        server.execute_command(
            "ACL SETUSER", "nobody", "on", ">secret", "+@connection", "+info", "+cluster"
        )
    url = rig.url.replace("://", "://nobody:{}@")
    for password, says in (("wrong", "refuses the login"), ("secret", "may not do this")):
        output = parsync(
            rig, "scheduler", "--url", url.format(password), "--cluster", "other", code=2
        )
        assert says in output
        assert password not in output.replace("the password", "")
