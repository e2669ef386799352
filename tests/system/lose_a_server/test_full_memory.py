"""A server whose memory is full refuses calls that bring work in, and accepts calls that bring work to its end.

A refused call writes nothing. Row F19 of docs/failure-modes.md.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from redis.exceptions import ResponseError

from parsync_redis import ParsyncClient
from parsync_redis.errors import ServerFull
from parsync_redis.model.task import Submission
from parsync_redis.store import Store
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.worker.celery.results_outbox import Owed, announce
from tests.kit.driver import Driver, dump
from tests.kit.oracle.audit import audit
from tests.kit.sample import rare_calls, sample_calls
from tests.kit.small_cluster import LEASE_S, SmallCluster
from tests.store.lua.test_refusals import busy_cluster

REFUSED = {
    "submit",
    "take",
    "commit",
    "register_node",
    "deal_node",
    "offer",
    "configure",
    "quarantine",
    "revive",
    "write_policy",
}


@contextmanager
def full(store: Store) -> Iterator[None]:
    """Keep the server's memory full meanwhile."""
    client: Any = store.client
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


@pytest.fixture
def busy(store: Store) -> Driver:
    """Return the driver of a cluster in which each of `calls` would change something."""
    drive = Driver(store)
    return busy_cluster(drive)


@pytest.mark.unaudited  # a script alone leaves a state that the next script of the task completes
@pytest.mark.parametrize("verb", [script.verb for script in ALL_SCRIPTS])
def test_each_script_is_refused_whole_or_carried_out(busy: Driver, verb: str) -> None:
    call = sample_calls(busy.commands)[verb]
    if verb == "configure":
        busy.store.client.delete(busy.keys.shared("config"))
    before = dump(busy.store)
    with full(busy.store):
        if verb in REFUSED:
            with pytest.raises(ServerFull, match="is full, nothing was done: give it more"):
                busy.run(call)
            assert dump(busy.store) == before
        else:
            busy.run(call)
    busy.run(call)


@pytest.mark.unaudited
@pytest.mark.parametrize(
    ("verb", "at"),
    [(verb, at) for verb in ("submit", "take", "start", "finish") for at in range(4)],
)
def test_each_rare_call_is_refused_whole_or_carried_out(busy: Driver, verb: str, at: int) -> None:
    calls = rare_calls(busy.commands)[verb]
    if at >= len(calls):
        return
    before = dump(busy.store)
    with full(busy.store):
        try:
            busy.run(calls[at])
        except ServerFull:
            assert dump(busy.store) == before
            assert verb in REFUSED
    busy.run(calls[at])


@pytest.mark.unaudited
def test_old_records_are_forgotten_though_memory_is_full(busy: Driver) -> None:
    client: Any = busy.store.client
    client.hset(busy.keys.queue("meta"), "rotated_ms", 1)
    client.hset(busy.keys.queue("ended_2"), "old", "x")
    with full(busy.store):
        assert busy.run(busy.commands.rotate()) == 1
    assert client.exists(busy.keys.queue("ended_2")) == 0


def test_a_successor_and_a_cancel_of_a_running_task_are_accepted_while_memory_is_full(
    busy: Driver,
) -> None:
    attempt = busy.record("a").attempt
    with full(busy.store):
        assert busy.submit("a", after=attempt) == "next"
        assert busy.cancel("a") == ("asked", "")


def test_a_batch_of_claims_and_a_batch_of_tasks_are_refused_whole(busy: Driver) -> None:
    inc = busy.node("n2", 2)
    claims = [
        busy.claim("gone", node="nowhere"),
        busy.claim("taken", "1@2", node="n2", inc=inc),
        busy.claim("b", node="n2", slots=(1,), inc=inc),
    ]
    tasks = [
        Submission("a", "work", b""),
        Submission("b", "work", b""),
        Submission("c", "work", b""),
    ]
    before = dump(busy.store)
    with full(busy.store):
        for call in (busy.commands.commit(0, claims), busy.commands.submit(tasks)):
            with pytest.raises(ServerFull):
                busy.run(call)
            assert dump(busy.store) == before


def test_a_task_of_a_new_kind_is_refused_though_old_answers_must_be_forgotten_first(
    busy: Driver,
) -> None:
    busy.store.client.hset(
        busy.keys.queue("feasible"), mapping={f"f{n} slots=1": "yes" for n in range(1001)}
    )
    before = dump(busy.store)
    with full(busy.store), pytest.raises(ServerFull):
        busy.submit("new", name="new")
    assert dump(busy.store) == before


def test_a_result_in_the_outbox_waits_until_the_result_backend_on_that_server_takes_it(
    busy: Driver,
) -> None:
    port = busy.store.address.rpartition(":")[2]
    app = Celery("outbox", broker="memory://", backend=f"redis://127.0.0.1:{port}/0")

    @app.task(name="work", shared=False)
    def work() -> None:
        """Do nothing: no test runs the task."""

    app.finalize()
    busy.store.client.delete(busy.keys.queue("outbox"))
    assert busy.cancel("waits") == ("cancelled", "")
    with full(busy.store):
        assert announce(busy.store, app, deque()) == 0
        assert busy.store.client.llen(busy.keys.queue("outbox")) == 1
    assert announce(busy.store, app, deque()) == 1
    assert app.AsyncResult("waits").state == "REVOKED"
    app.backend.client.close()


def test_a_result_that_can_be_neither_delivered_nor_put_back_is_delivered_later(
    busy: Driver,
) -> None:
    port = busy.store.address.rpartition(":")[2]
    app = Celery("outbox", broker="memory://", backend=f"redis://127.0.0.1:{port}/0")
    admin: Any = busy.store.client
    owed: Owed = deque()

    @app.task(name="work", shared=False)
    def work() -> None:
        """Do nothing: no test runs the task."""

    app.finalize()
    outbox = busy.keys.queue("outbox")
    admin.delete(outbox)
    assert busy.cancel("waits") == ("cancelled", "")
    revoked = app.backend.mark_as_revoked

    def refuse(*args: Any, **options: Any) -> None:
        admin.config_set("min-replicas-to-write", 1)
        revoked(*args, **options)

    app.backend.mark_as_revoked = refuse
    try:
        with pytest.raises(ResponseError, match="NOREPLICAS"):
            announce(busy.store, app, owed)
    finally:
        admin.config_set("min-replicas-to-write", 0)
    assert admin.llen(outbox) == 0
    app.backend.mark_as_revoked = revoked
    assert announce(busy.store, app, owed) == 1
    assert app.AsyncResult("waits").state == "REVOKED"
    app.backend.client.close()


def test_full_memory_lets_runs_end_loses_no_process_and_afterwards_all_work_goes_on(
    server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    small_cluster = SmallCluster(server.url, "full")
    try:
        small_cluster.node("n1", 2)
        small_cluster.submit("t0", "t1", "t2", "t3")
        running = small_cluster.wait(
            lambda: (held := small_cluster.leases()) and len(held) == 2 and small_cluster.start(),
            "two run",
        )
        with full(small_cluster.store), ParsyncClient.from_url(server.url, "full") as client:
            with pytest.raises(ServerFull):
                client.submit("job", id="t4")
            assert small_cluster.end(running) == ["ok", "ok"], "their outcomes count"
            until_s = time.monotonic() + 2.5 * LEASE_S
            small_cluster.wait(lambda: time.monotonic() > until_s, "time passes")
            assert small_cluster.leases() == [], "their slots are free, and nothing new is placed"
            assert small_cluster.store.nodes(0)["n1"].state == "up", "its renewals are let pass"
            assert set(small_cluster.store.hash(small_cluster.store.keys.shared("schedulers"))) == {
                "s0",
                "s1",
            }
        small_cluster.submit("t4")
        small_cluster.wait(
            lambda: small_cluster.done(["t0", "t1", "t2", "t3", "t4"]),
            "all go on by themselves",
            working=True,
        )
        assert len(small_cluster.started) == 5, "each was started once"
        messages = [
            record.getMessage() for record in caplog.records if "is full" in record.getMessage()
        ]
        assert 0 < len(messages) <= 2, f"each scheduler says it once: {messages}"
    finally:
        small_cluster.close()
    assert not audit(small_cluster.store)
