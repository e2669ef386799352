"""A broker or a result backend in Redis that refuses: what a node does, in this process."""

import threading
from typing import Any

import pytest
from billiard.exceptions import WorkerLostError
from celery import Celery
from kombu import Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from parsync_redis.errors import ServerReadOnly
from parsync_redis.model.task import TaskState
from parsync_redis.store import Store
from parsync_redis.store.embedded import EmbeddedServer
from parsync_redis.worker.garbage import connect_carefully
from parsync_redis.worker.refusing_broker import Refused, as_refused
from parsync_redis.worker.results import announce
from parsync_redis.worker.storing import is_unstored, patient, watch_results
from tests.faults.refusals import admin, full_memory, missing_replicas
from tests.lua.driver import Driver
from tests.waiting import joined, until

pytestmark = pytest.mark.one_server(-1)


@pytest.mark.parametrize("refusal", [missing_replicas, full_memory])
def test_a_node_connects_to_its_broker_when_the_server_takes_writes(server: EmbeddedServer, refusal: Any) -> None:
    connection = Connection(server.url)
    connect_carefully(connection)
    with refusal(server), pytest.raises(Refused, match="nothing was done"):
        connection.connect()
    tries: list[BaseException] = []
    with missing_replicas(server):
        thread = threading.Thread(
            target=lambda: connection.ensure_connection(
                lambda error, interval_s: tries.append(error), interval_start=0, interval_step=0, interval_max=0
            )
        )
        thread.start()
        until(lambda: len(tries) > 2, "it is tried again and again")
    joined(thread)
    assert connection.connected
    assert "NOREPLICAS" not in str(tries[0]), "the error says what that means"
    channel: Any = connection.default_channel
    channel.client.set("broker:probe", "1")
    assert admin(server).get("broker:probe") == b"1"
    connection.release()


def test_a_login_that_may_not_probe_connects(server: EmbeddedServer) -> None:
    client = admin(server)
    client.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "&*", "+@all", "-zadd")
    connection = Connection(server.url.replace("redis://", "redis://narrow:pw@"))
    connect_carefully(connection)
    try:
        connection.connect()
        assert connection.connected
    finally:
        connection.release()
        client.execute_command("ACL", "DELUSER", "narrow")


@pytest.mark.parametrize(
    "reply",
    [
        "MISCONF Errors writing to the AOF file",
        "NOREPLICAS Not enough good replicas to write.",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        "MASTERDOWN Link with MASTER is down",
        "BUSY Redis is busy running a script.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "NOPERM this user has no permissions to run the 'brpop' command",
        "Command # 1 (ZADD unacked_index 1 x) of pipeline caused error: MISCONF Errors writing to the AOF file",
    ],
)
def test_a_refusal_is_a_lost_connection_also_as_the_cause_of_another_error(reply: str) -> None:
    error = ResponseError(reply)
    assert isinstance(as_refused(Connection("redis://h:1/0"), error), OSError), "every consumer recovers from one"
    hidden = RuntimeError("kombu's")
    hidden.__cause__ = error
    assert as_refused(Connection("redis://h:1/0"), hidden)
    assert as_refused(Connection("redis://h:1/0"), ServerReadOnly("parsync's own"))


@pytest.mark.parametrize(
    "error", [ResponseError("ERR unknown command"), ResponseError("WRONGTYPE Operation"), KeyError("x"), ValueError()]
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert as_refused(Connection("redis://h:1/0"), error) is None


def test_a_run_waits_for_a_result_backend_that_refuses_and_the_event_loop_does_not(
    server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    app = Celery("storing", broker="memory://", backend=server.url, set_as_current=False)
    watch_results(app)
    watch_results(app)

    def run() -> None:
        with patient():
            app.backend.store_result("patient", 1, "SUCCESS")

    thread = threading.Thread(target=run)
    with missing_replicas(server):
        with pytest.raises(ResponseError, match="NOREPLICAS") as caught:
            app.backend.store_result("loop", 1, "SUCCESS")
        assert is_unstored(caught.value)
        thread.start()
        until(lambda: "a result waits for its backend" in caplog.text or not thread.is_alive(), "a run waits")
    joined(thread)
    assert app.AsyncResult("patient").get(timeout=60) == 1
    app.backend.client.close()


def test_who_waits_for_a_result_that_was_not_stored_gets_an_error_when_the_backend_is_back(store: Store) -> None:
    app = Celery("unstored", broker="memory://", backend=f"redis://{store.address}/0", set_as_current=False)

    @app.task(name="work", shared=False)
    def work() -> None:
        """Never runs."""

    app.finalize()
    drive = Driver(store)
    place = drive.bring(TaskState.RUNNING)
    why = "its result could not be stored: ReadOnlyError You can't write"
    assert drive.finish(place, "unstored failed", why) == "ok"
    with missing_replicas(store), pytest.raises(ResponseError, match="NOREPLICAS"):
        announce(store, app)
    assert announce(store, app) == 1
    with pytest.raises(WorkerLostError, match="its result could not be stored: ReadOnlyError You can't write"):
        app.AsyncResult("a").get(timeout=60)
    app.backend.client.close()


def test_a_lost_connection_is_celerys_to_retry(server: EmbeddedServer) -> None:
    options = {"retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}}
    app = Celery("storing", broker="memory://", backend="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.result_backend_transport_options = options
    watch_results(app)
    with patient(), pytest.raises(RedisConnectionError) as caught:
        app.backend.store_result("away", 1, "SUCCESS")
    assert is_unstored(caught.value)
