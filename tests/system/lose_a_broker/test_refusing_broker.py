"""A broker or a result backend in Redis that refuses: what a node does, in this process."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.exceptions import WorkerLostError
from celery import Celery
from celery.concurrency.solo import TaskPool as SoloPool
from kombu import Connection
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from parsync_redis.errors import ServerReadOnly
from parsync_redis.model.needs import Resources
from parsync_redis.model.task import TaskState
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.worker.celery.isolated_pool import IsolatedPool
from parsync_redis.worker.celery.message_filter import connect_carefully
from parsync_redis.worker.celery.port import CeleryWorker
from parsync_redis.worker.celery.refusing_broker import Refused, as_refused
from parsync_redis.worker.celery.results_outbox import Owed, announce
from parsync_redis.worker.celery.storing import is_of_backend, patient, watch_results
from parsync_redis.worker.node.agent import Agent
from parsync_redis.worker.node.node import NodeSpec
from tests.kit.driver import Driver
from tests.kit.refusals import admin, full_memory, missing_replicas
from tests.kit.waiting import joined, until

pytestmark = pytest.mark.one_server(-1)


@pytest.mark.parametrize("refusal", [missing_replicas, full_memory])
def test_a_node_connects_to_its_broker_when_the_server_takes_writes(
    server: EmbeddedServer, refusal: Any
) -> None:
    connection = Connection(server.url)
    connect_carefully(connection)
    with refusal(server), pytest.raises(Refused, match="nothing was done"):
        connection.connect()
    tries: list[BaseException] = []
    with missing_replicas(server):
        thread = threading.Thread(
            target=lambda: connection.ensure_connection(
                lambda error, interval_s: tries.append(error),
                interval_start=0,
                interval_step=0,
                interval_max=0,
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


def test_a_connection_that_cannot_be_probed_leaves_no_channel(server: EmbeddedServer) -> None:
    connection = Connection(server.url, transport_options={"socket_timeout": 0.2, "max_retries": 0})
    connect_carefully(connection)
    transport: Any = connection.transport
    client = admin(server)
    try:
        for _ in range(3):
            client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
            with pytest.raises((OperationalError, OSError, RedisError)):
                transport.establish_connection()
            client.execute_command("CLIENT", "UNPAUSE")
            assert (transport._avail_channels, transport.channels) == ([], [])
    finally:
        client.execute_command("CLIENT", "UNPAUSE")
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
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> "
        "replica?)",
        "MASTERDOWN Link with MASTER is down",
        "BUSY Redis is busy running a script.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "NOPERM this user has no permissions to run the 'brpop' command",
        "Command # 1 (ZADD unacked_index 1 x) of pipeline caused error: MISCONF Errors writing to "
        "the AOF file",
    ],
)
def test_a_refusal_is_a_lost_connection_also_as_the_cause_of_another_error(reply: str) -> None:
    error = ResponseError(reply)
    assert isinstance(as_refused(Connection("redis://h:1/0"), error), OSError), (
        "every consumer recovers from one"
    )
    hidden = RuntimeError("kombu's")
    hidden.__cause__ = error
    assert as_refused(Connection("redis://h:1/0"), hidden)
    assert as_refused(Connection("amqp://h:1//"), error) is None, "it is none of this broker's"


@pytest.mark.parametrize(
    "error",
    [
        ResponseError("ERR unknown command"),
        ResponseError("WRONGTYPE Operation"),
        KeyError("x"),
        ServerReadOnly("parsync's own server"),
    ],
)
def test_an_error_that_is_no_refusal_is_not_translated(error: Exception) -> None:
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
        assert is_of_backend(caught.value)
        thread.start()
        until(
            lambda: "a result waits for its backend" in caplog.text or not thread.is_alive(),
            "a run waits",
        )
    joined(thread)
    assert app.AsyncResult("patient").get(timeout=60) == 1
    app.backend.client.close()


@pytest.fixture
def ended(store: Store) -> Iterator[Celery]:
    """Yield an app whose task 'a' has failed, which is in the results outbox."""
    app = Celery(
        "unstored", broker="memory://", backend=f"redis://{store.address}/0", set_as_current=False
    )

    @app.task(name="work", shared=False)
    def work() -> None:
        """Do nothing: no test runs the task."""

    app.finalize()
    drive = Driver(store)
    place = drive.bring(TaskState.RUNNING)
    why = "its result could not be stored: ReadOnlyError You can't write"
    assert drive.finish(place, "unstored failed", why) == "ok"
    yield app
    app.backend.client.close()


def announce_too_late(store: Store, app: Celery, owed: Owed) -> None:
    """Take an entry of the outbox, and then neither tell it nor put it back: the server refuses from then on."""
    tell = app.backend.mark_as_failure
    with ExitStack() as refusing:

        def refuse(*args: Any, **options: Any) -> None:
            refusing.enter_context(missing_replicas(store))
            tell(*args, **options)

        app.backend.mark_as_failure = refuse
        with pytest.raises(ResponseError, match="NOREPLICAS"):
            announce(store, app, owed)
    app.backend.mark_as_failure = tell


def test_a_caller_waiting_for_an_unstored_result_gets_an_error_when_the_backend_is_back(
    store: Store, ended: Celery
) -> None:
    owed: Owed = deque()
    outbox = store.keys.queue("outbox")
    announce_too_late(store, ended, owed)
    assert ([key for key, _ in owed], admin(store).llen(outbox)) == ([outbox], 0)
    with missing_replicas(store), pytest.raises(ResponseError, match="NOREPLICAS"):
        announce(store, ended, owed)
    assert len(owed) == 1, "it is owed until the server takes it"
    assert announce(store, ended, owed) == 1
    assert not owed
    with pytest.raises(
        WorkerLostError, match="its result could not be stored: ReadOnlyError You can't write"
    ):
        ended.AsyncResult("a").get(timeout=60)


@pytest.mark.parametrize("how", ["it leaves", "it has left"])
def test_a_leaving_node_puts_back_the_results_that_it_could_not_announce(
    store: Store, ended: Celery, how: str
) -> None:
    settings = Settings.load(url=f"redis://{store.address}/0", cluster=store.keys.cluster)
    worker: Any = SimpleNamespace(app=ended, pool_cls=SoloPool)
    port = CeleryWorker(worker)
    agent = Agent(settings, store, NodeSpec("n1", Resources.of(1), 1.0), port)
    announce_too_late(store, ended, port._owed)
    if how == "it leaves":
        agent.node.inc = 1
        agent.leave()
        vars(agent.reconciler)["reconcile"] = lambda _: agent.node.stop()
        agent._tend()
    else:
        agent.depart()
    assert admin(store).llen(store.keys.queue("outbox")) == 1
    assert announce(store, ended, deque()) == 1


def test_a_lost_connection_is_celerys_to_retry(server: EmbeddedServer) -> None:
    options = {
        "retry_policy": {
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0,
            "interval_max": 0,
        }
    }
    app = Celery(
        "storing", broker="memory://", backend="redis://127.0.0.1:1/0", set_as_current=False
    )
    app.conf.result_backend_transport_options = options
    watch_results(app)
    with patient(), pytest.raises(RedisConnectionError) as caught:
        app.backend.store_result("away", 1, "SUCCESS")
    assert is_of_backend(caught.value)


class Refuser:
    """Counts the results that it refuses, in place of the storing of a result backend."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, *args: object, **options: object) -> None:
        self.asked += 1
        raise ReadOnlyError("You can't write against a read only replica.")


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_the_event_loop_of_a_solo_pool_waits_once_in_an_outage_and_other_runs_each(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parsync_redis.worker.celery.storing.BACKEND_PATIENCE_S", 0.3)
    app = Celery(
        "patience", broker="memory://", backend="redis://127.0.0.1:1/0", set_as_current=False
    )
    refuser = vars(app.backend)["store_result"] = Refuser()
    watch_results(app)

    def run(state: str) -> int:
        before = refuser.asked
        store = app.backend.store_result
        IsolatedPool(taker, None, {}).apply_async(lambda: store("t", 1, state), ())
        return refuser.asked - before

    taker: Any = InThisThread() if pool == "threads" else InThisThreadSolo.__new__(InThisThreadSolo)
    assert run("HALF") == 1, "a task's own state waits for nothing"
    assert run("SUCCESS") > 1
    assert (run("SUCCESS") == 1) is (pool == "solo")
    vars(app.backend).pop("store_result")


class InThisThread:
    """A pool that runs what it gets in this thread."""

    def apply_async(self, target: Any, args: Any, **options: Any) -> Any:
        return target(*args)


class InThisThreadSolo(InThisThread, SoloPool):
    """A pool that runs tasks in this thread, and is Celery's solo pool by its class."""
