"""A worker as a node: what it offers, when it is refused, how it ends, and what it does when things
go wrong.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from celery.exceptions import NotRegistered

from parsync_redis.store.reads.tasks import ANY, list_tasks
from parsync_redis.wire.envelope import open_envelope
from parsync_redis.worker.celery.rate_limits import LONGEST_HOLD_S
from tests.kit import REPO
from tests.kit.rig import APP, CLUSTER, LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with a stack of a scheduler and a solo node; each test starts the workers that
    it needs.
    """
    rig = new_rig()
    rig.worker("early", pool="solo", slots=1, labels={"kind": "early"}, up=False)
    rig.until(lambda: "ready" in rig.lines("early"), "a worker is ready before there is a cluster")
    assert rig.tasks.plain.delay(1).get(timeout=GET_S) == 2
    assert rig.client.nodes() == []
    rig.schedulers(1, lease_s=LONG_LEASE_S)
    rig.until_up("early")
    return rig


@pytest.fixture
def worker(rig: Rig) -> Any:
    """Start workers that leave after the test; their processes may end beside the next."""
    started: list[str] = []

    def start(node: str, *extra: str, **options: Any) -> str:
        started.append(node)
        return rig.worker(node, *extra, **options)

    yield start
    for node in started:
        rig.stack.processes[node].send(signal.SIGTERM)
    rig.until(
        lambda: all(rig.node(node).state in ("down", "") for node in started),
        f"{started} have left",
    )


def on(kind: str, **more: Any) -> dict[str, Any]:
    """Return the options of a task for the node with this label."""
    return {"parsync": {"require": {"kind": kind}, **more}}


def test_a_worker_that_was_there_before_the_cluster_becomes_a_node_when_it_appears(
    rig: Rig,
) -> None:
    assert rig.tasks.where.delay().get(timeout=GET_S)["node"] == "early"


def test_a_task_goes_to_the_better_node_and_holds_the_slots_and_amounts_that_it_needs(
    rig: Rig, worker: Any
) -> None:
    worker(
        "good",
        score=1e6,
        slots=3,
        pool="threads",
        labels={"kind": "good"},
        resources={"mem": "8GiB", "gpu": 1},
    )
    # so that the scheduler has seen the new node
    rig.tasks.where.apply_async(**on("good")).get(timeout=GET_S)
    places = [
        rig.tasks.where.apply_async(parsync={"strategy": "quality"}).get(timeout=GET_S)
        for _ in range(2)
    ]
    assert {place["node"] for place in places} == {"good"}, "both nodes are free, and one is better"
    # a result is stored before its slot is free
    rig.until_idle()
    large = rig.tasks.gated.apply_async(
        ("large",), **on("good", slots=2, resources={"mem": "6GiB", "gpu": 1})
    )
    rig.until(lambda: rig.marks("held", "large"), "the large task runs")
    assert [len(lease.place.slots) for lease in rig.leases() if lease.leads] == [2], (
        "one lease leads two slots"
    )
    assert len(rig.leases()) == 2
    assert rig.node("good").left == {"mem": 2 * 2**30, "gpu": 0}
    waits = rig.tasks.where.apply_async(**on("good", resources={"gpu": 1}))
    rig.until(
        lambda: "short of gpu" in rig.status(waits).why, "it is said why the second task waits"
    )
    rig.open()
    assert large.get(timeout=GET_S) == "large"
    assert waits.get(timeout=GET_S)["node"] == "good"


def test_a_warm_shutdown_finishes_its_runs_and_gives_unstarted_tasks_to_other_workers(
    rig: Rig, worker: Any
) -> None:
    rig.worker("leaves", score=50.0, slots=2, labels={"kind": "leaves"})
    runs = rig.tasks.gated.apply_async(("runs",), **on("leaves"))
    cancelled = rig.tasks.gated.apply_async(("cancelled",), **on("leaves"))
    rig.until(lambda: rig.marks("held", "runs") and rig.marks("held", "cancelled"), "two tasks run")
    waits = [rig.tasks.where.apply_async(**on("leaves")) for _ in range(3)]
    os.kill(rig.pid("leaves"), signal.SIGTERM)
    rig.until(lambda: rig.node("leaves").state == "leaving", "the node takes no more claims")
    cancelled.revoke(terminate=True)
    rig.until_state(cancelled, "cancelled")
    rig.open()
    assert runs.get(timeout=GET_S) == "runs"
    rig.until(lambda: not rig.stack.processes["leaves"].alive, "the worker has ended")
    assert rig.node("leaves").state == "", "it has left, and is forgotten"
    assert [lease for lease in rig.leases() if lease.place.node == "leaves"] == []
    assert {rig.status(r).state for r in waits} == {"waiting"}
    worker("heir", labels={"kind": "leaves"}, pool="solo", slots=1)
    assert {r.get(timeout=GET_S)["node"] for r in waits} == {"heir"}
    assert rig.until_state(runs, "succeeded").starts == 1


def test_a_cold_shutdown_kills_its_runs_and_they_run_again_elsewhere(rig: Rig, worker: Any) -> None:
    rig.worker("cold", slots=1, labels={"kind": "cold"})
    result = rig.tasks.gated.apply_async(("cold",), **on("cold"))
    rig.until(lambda: rig.marks("held", "cold"), "the task runs")
    os.kill(rig.pid("cold"), signal.SIGQUIT)
    rig.until(lambda: not rig.stack.processes["cold"].alive, "the worker has ended")
    assert rig.node("cold").state == ""
    assert rig.status(result).state == "waiting"
    assert rig.leases() == []
    rig.open()
    worker("warm", labels={"kind": "cold"}, pool="threads")
    assert result.get(timeout=GET_S) == "cold"
    assert rig.until_state(result, "succeeded").starts == 2


def test_of_two_workers_with_one_name_the_older_ends_and_its_task_runs_on_the_newer(
    rig: Rig, worker: Any
) -> None:
    rig.worker("twin", slots=1, labels={"kind": "twin"})
    result = rig.tasks.gated.apply_async(("twin",), **on("twin"))
    rig.until(lambda: rig.marks("held", "twin"), "the task runs on the older")
    older = rig.stack.processes.pop("twin")
    rig.stack.processes["older twin"] = older
    worker("twin", labels={"kind": "twin"}, slots=1, up=False)
    rig.until(lambda: not older.alive, "the older has ended")
    rig.open()
    assert result.get(timeout=GET_S) == "twin"
    assert len(rig.marks("end", "twin")) == 1
    assert rig.node("twin").state == "up"


def test_a_node_that_was_paused_past_its_lease_registers_again_and_its_stale_run_does_not_count(
    rig: Rig, worker: Any
) -> None:
    worker("paused", slots=1, labels={"kind": "paused"})
    before = rig.node("paused").inc
    result = rig.tasks.gated.apply_async(("paused",), **on("paused"))
    rig.until(lambda: rig.marks("held", "paused"), "the task runs")
    pid = int(rig.marks("held", "paused")[0][2])
    rig.signal_all("paused", signal.SIGSTOP)
    rig.until(lambda: rig.node("paused").state == "down", "the leader gave the node up")
    rig.until_state(result, "waiting")
    rig.signal_all("paused", signal.SIGCONT)
    rig.until(lambda: rig.node("paused").state == "up", "it is up again")
    assert rig.node("paused").inc > before
    rig.until(lambda: len(rig.marks("held", "paused")) == 2, "the task runs anew")
    rig.until(lambda: not alive(pid), "the stale run was ended")
    assert rig.redis.get(f"celery-task-meta-{result.id}") is None, (
        "nobody was told that the task was revoked"
    )
    rig.open()
    assert result.get(timeout=GET_S) == "paused"
    assert len(rig.marks("end", "paused")) == 1
    assert rig.until_state(result, "succeeded").starts == 2


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_broken_connection_costs_nothing_and_the_inbox_is_consumed_once(
    rig: Rig, worker: Any
) -> None:
    worker("cut", slots=2, labels={"kind": "cut"})
    inbox = rig.store.keys.inbox(rig.node("cut").partition, "cut")
    result = rig.tasks.gated.apply_async(("cut",), **on("cut"))
    rig.until(lambda: rig.marks("held", "cut"), "the task runs")
    rig.until(
        lambda: len(blocked(rig)) == 4,
        "each of two workers waits for its inbox and for plain tasks",
    )
    for _ in range(2):
        lost = rig.lines("cut").count("Connection to broker lost")
        for server, connection in blocked(rig):
            server.client_kill_filter(_id=connection)
        rig.until(
            lambda lost=lost: rig.lines("cut").count("Connection to broker lost") > lost,  # type: ignore[misc]
            "it was noticed",
        )
        rig.until(
            lambda: len(blocked(rig)) == 4,
            "each of two workers waits for its inbox and for plain tasks",
        )
    rig.open()
    assert result.get(timeout=GET_S) == "cut"
    more = [rig.tasks.where.apply_async(**on("cut")) for _ in range(20)]
    assert {r.get(timeout=GET_S)["node"] for r in more} == {"cut"}
    assert rig.until_state(result, "succeeded").starts == 1
    assert rig.state.llen(inbox) == 0


@pytest.mark.parametrize("how", ["cut", "terminated"])
def test_a_task_that_waits_for_a_thread_runs_once(rig: Rig, worker: Any, how: str) -> None:
    """Plain tasks hold the other threads.

    If the server is cut off, the task runs on. In a shutdown a task that has not begun goes to
    another node.
    """
    node = f"thread-{how}"
    worker(node, "-Q", node, pool="threads", slots=3, labels={"kind": node}, score=2.0)
    pid = str(rig.pid(node))
    holders = [
        rig.tasks.gated.apply_async((f"{how}-plain{i}",), queue=node, parsync=False)
        for i in range(2)
    ]
    rig.until(lambda: rig.counts("held").total() == 2, "plain tasks have two of the three threads")
    results = [rig.tasks.gated.apply_async((f"{how}{i}",), **on(node)) for i in range(3)]
    rig.until(
        lambda: {rig.status(r).state for r in results} == {"running"},
        "one runs and two wait for the thread",
    )
    if how == "cut":
        for server, connection in blocked(rig):
            server.client_kill_filter(_id=connection)
        rig.until(lambda: "Connection to broker lost" in rig.lines(node), "it was noticed")
    else:
        worker("heir", slots=1, labels={"kind": node})
        rig.until(
            lambda: len(blocked(rig)) == 6,
            "each of three workers waits for its inbox and for plain tasks",
        )
        rig.stack.processes[node].send(signal.SIGTERM)
        rig.until(
            lambda: len(blocked(rig)) == 5,
            "it has closed its inbox, and next what waits for its thread goes",
        )
        # would the one that runs end before they went, they would begin here; a task's whole way
        # takes far longer
        assert rig.tasks.where.apply_async(**on(node)).get(timeout=GET_S)["node"] == "heir"
        assert rig.counts("held").total() == 3, "the two others have not begun"
    rig.open()
    assert [result.get(timeout=GET_S) for result in holders] == [f"{how}-plain0", f"{how}-plain1"]
    assert {result.get(timeout=GET_S) for result in results} == {f"{how}{i}" for i in range(3)}
    assert {rig.until_state(result, "succeeded").starts for result in results} == {1}
    keys = [*(f"{how}{i}" for i in range(3)), *(f"{how}-plain{i}" for i in range(2))]
    assert rig.counts("end") == rig.counts("held") == dict.fromkeys(keys, 1)
    there = sum(mark[2] == pid and "plain" not in mark[1] for mark in rig.marks("end"))
    assert there == (3 if how == "cut" else 1), "of a node that shuts down only what had begun"


def blocked(rig: Rig) -> list[tuple[Any, str]]:
    """Return the connections that wait for something to come into a list: a client of their server,
    and their ids there.
    """
    found = []
    for server in (rig.redis, *rig.state_servers()):
        found += [
            (server, told["id"])
            for told in server.client_list()
            if told["cmd"] in ("brpop", "blmpop")
        ]
    return found


def test_an_unknown_or_unreadable_task_fails_and_the_worker_goes_on(rig: Rig) -> None:
    unknown = rig.client.submit(
        "tests.kit.apps.marks.where", wait_for_capacity=True, require={"kind": "none"}
    )
    rig.until(lambda: rig.status(unknown).state == "waiting", "it waits")
    damaged = []
    keys = rig.store.keys
    for field, right in (
        ("headers", {"task": 5}),
        ("body", "%%%"),
        ("headers", {"task": "a.stranger", "id": "x"}),
    ):
        id = rig.client.submit("tests.kit.apps.marks.where", countdown=10)
        messages = keys.in_shard_of("messages", id)
        message = {**open_envelope(rig.state.hget(messages, id)), field: right}
        rig.state.hset(messages, id, json.dumps(message))
        damaged.append(id)
    no_json = rig.client.submit("tests.kit.apps.marks.where", countdown=10)
    rig.state.hset(keys.in_shard_of("messages", no_json), no_json, b"\xff{")
    for id in [*damaged, no_json]:
        rig.until_state(id, "failed")
    rig.client.cancel(unknown)
    assert rig.tasks.app.AsyncResult(no_json).state == "FAILURE"
    with pytest.raises(NotRegistered):
        rig.tasks.app.AsyncResult("x").get(timeout=GET_S)
    assert rig.tasks.add.delay(1, 2).get(timeout=GET_S) == 3
    rig.until_idle()


def test_a_rate_limited_task_moves_to_another_worker_when_its_worker_stops(
    rig: Rig, worker: Any
) -> None:
    rig.worker("slow", slots=2, pool="threads", labels={"kind": "slow"})
    first = rig.tasks.hourly.apply_async(("first",), **on("slow"))
    assert first.get(timeout=GET_S) == "first"
    second = rig.tasks.hourly.apply_async(("second",), **on("slow"))
    rig.until(
        lambda: "rate limit" in rig.status(second).why,
        "it waits for the rate limit, without a slot",
    )
    rig.until(lambda: rig.leases() == [], "no slot is held")
    assert rig.status(second).state == "waiting"
    assert rig.stack.terminate("slow") == 0
    worker("slow2", pool="solo", slots=1, labels={"kind": "slow"})
    assert second.get(timeout=LONGEST_HOLD_S + GET_S) == "second"


def test_processes_that_end_after_a_few_tasks_and_pools_that_grow_lose_nothing(
    rig: Rig, worker: Any
) -> None:
    worker(
        "short",
        "--max-tasks-per-child",
        "2",
        "--autoscale",
        "3,1",
        slots=None,
        labels={"kind": "short"},
    )
    assert rig.node("short").slots == 3
    results = [rig.tasks.noted.apply_async((f"short{i}",), **on("short")) for i in range(20)]
    assert [r.get(timeout=GET_S) for r in results] == [f"short{i}" for i in range(20)]
    assert set(rig.counts("begin").values()) == {1}
    assert len({mark[2] for mark in rig.marks("begin")}) >= 5
    control = {"destination": [f"short@{platform.node()}"], "reply": True}
    assert rig.tasks.app.control.autoscale(2, 1, **control)[0]
    rig.until(lambda: rig.node("short").slots == 2, "its slots follow the autoscaler's limit")


def test_a_pool_that_changes_and_queues_that_come_and_go_change_what_the_node_offers(
    rig: Rig, worker: Any
) -> None:
    worker("changes", "-Q", "changes", slots=None, concurrency=2, labels={"kind": "changes"})
    control = rig.tasks.app.control
    say = {"destination": [f"changes@{platform.node()}"], "reply": True}
    assert control.pool_shrink(1, **say)[0]
    rig.until(lambda: rig.node("changes").slots == 1, "its slots follow the pool")
    assert control.pool_grow(3, **say)[0]
    rig.until(lambda: rig.node("changes").slots == 4, "its slots follow the pool")
    wide = rig.tasks.where.apply_async(**on("changes", slots=4, wait_for_capacity=True))
    assert wide.get(timeout=GET_S)["node"] == "changes"
    routed = rig.tasks.where.apply_async(queue="more", **on("changes"))
    assert control.add_consumer("more", **say)[0]
    assert routed.get(timeout=GET_S)["node"] == "changes"
    assert control.cancel_consumer("changes", **say)[0]
    rig.until(lambda: rig.node("changes").queues == ("more",), "it consumes one queue of two")


def test_a_worker_ends_with_an_error_when_another_worker_takes_its_name(
    rig: Rig, worker: Any
) -> None:
    worker("twin", pool="solo", slots=1)
    p = rig.node("twin").partition
    commands = rig.store.commands
    inc, _ = rig.store.run(commands.register_node(p, "twin", 0, 1.0, "slots=1"))
    assert rig.stack.processes["twin"].end(time.monotonic() + GET_S) == 1, (
        "a service manager sees that"
    )
    assert "another worker has registered as node twin" in rig.lines("twin")
    assert rig.store.run(commands.reclaim(p, "twin", inc, 0))[0] == "down"


def test_a_pool_process_garbage_collects_no_object_shared_with_its_worker(
    rig: Rig, worker: Any
) -> None:
    worker("shares", slots=1, labels={"kind": "shares"})
    assert rig.tasks.frozen.apply_async(**on("shares")).get(timeout=GET_S) > 10_000


def test_a_pool_that_spawns_has_parsync_in_its_processes(rig: Rig, worker: Any) -> None:
    worker("spawned", "--pool-start-method", "spawn", slots=1, labels={"kind": "spawned"})
    found = rig.tasks.flaky_where.apply_async((1,), **on("spawned")).get(timeout=GET_S)
    assert (found["retries"], found["parsync"]["node"]) == (1, "spawned")


def test_beat_sends_tasks_through_parsync(rig: Rig, tmp_path: Any) -> None:
    schedule = str(tmp_path / "schedule")
    rig.stack.start("beat", [sys.executable, "-m", "celery", "-A", APP, "beat", "-s", schedule])
    try:
        rig.until(lambda: rig.marks("beaten") and rig.marks("plain", "beat2"), "both entries ran")
    finally:
        rig.stack.terminate("beat")
    names = {task.name for task in list_tasks(rig.store, ANY, 100)}
    assert {"tests.kit.apps.marks.beaten", "tests.kit.apps.marks.plain_mark"} <= names


REFUSED = [
    (["--parsync-slots", "0"], {}, "slots=0 is not valid"),
    (["--parsync"], {"PARSYNC_PARTITIONS": "16"}, "runs with partitions=2 (you asked for 16)"),
    (
        ["--parsync"],
        {"CELERY_BROKER_URL": "memory://"},
        "which the transport memory of the app's broker lacks",
    ),
    (["--parsync"], {"PARSYNC_URL": "SCHEME://nobody:wrong@SERVERS"}, "refuses the login"),
    (
        ["--parsync"],
        {"TEST_BAD_TASK": "slot"},
        "task tests.kit.apps.marks.bad: unknown parsync option 'slot'",
    ),
]


def test_a_worker_that_cannot_be_a_node_prints_one_line_and_exits_with_2(rig: Rig) -> None:
    command = [sys.executable, "-m", "celery", "-A", APP, "worker", "-P", "solo"]
    base = {**os.environ, "PARSYNC_CLUSTER": CLUSTER, "CELERY_BROKER_URL": rig.broker}
    base["PARSYNC_URL"] = rig.url
    scheme, servers = rig.url.split("://")
    refused = [
        (
            flags,
            {k: v.replace("SCHEME", scheme).replace("SERVERS", servers) for k, v in env.items()},
            text,
        )
        for flags, env, text in REFUSED
    ]
    for at in range(0, len(refused), 4):
        running = [
            (
                text,
                subprocess.Popen(
                    [*command, *flags],
                    env={**base, **env},
                    cwd=REPO,
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                ),
            )
            for flags, env, text in refused[at : at + 4]
        ]
        for text, process in running:
            _, errors = process.communicate(timeout=120)
            assert (process.returncode, "Traceback" in errors) == (2, False), f"{text}: {errors}"
            assert [text in line for line in errors.splitlines() if line.startswith("error:")] == [
                True
            ], errors


def test_the_lease_is_renewed_while_a_solo_node_runs_a_long_task(rig: Rig) -> None:
    before = rig.node("early").inc
    began = time.monotonic()
    assert (
        rig.tasks.noted.apply_async(("long", 1.5 * LONG_LEASE_S), **on("early")).get(timeout=GET_S)
        == "long"
    )
    assert time.monotonic() - began > LONG_LEASE_S
    assert "is suspect" not in rig.lines("early"), (
        "its event loop stood still because a task ran in it"
    )
    assert rig.node("early").inc == before
    assert len(rig.marks("begin", "long")) == 1
