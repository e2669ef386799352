"""A Celery caller whose server is away: errors are Celery's own too; `retry` and `retry_policy` are
obeyed.
"""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Producer
from kombu.exceptions import OperationalError

from parsync_redis import InvalidInput, Parsync
from parsync_redis.errors import ServerFull, ServerReadOnly, ServerUnreachable
from parsync_redis.integration.publish import pauses_of
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.needs import parse_resources
from parsync_redis.store.server.embedded import EmbeddedServer


class Deaf:
    """A server that hangs up on whoever calls, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._socket.getsockname()[1]}/0"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                found, _ = self._socket.accept()  # limit: in a daemon thread, until `close`
            except OSError:
                return
            self.calls += 1
            found.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=5)


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    deaf = Deaf()
    yield deaf
    deaf.close()


def task(url: str, retry_for_s: float = 0.3, **conf: Any) -> Any:
    app = Celery("publish", broker=url, set_as_current=False)
    app.conf.update(conf)
    Parsync(app).client.requests.retry_for_s = retry_for_s

    @app.task(shared=False, name="publish.placed", parsync=True)
    def placed() -> None: ...

    return placed


POLICY = {"max_retries": 2, "interval_start": 0, "interval_step": 0.01, "interval_max": 0.01}


@pytest.mark.parametrize(
    ("conf", "call", "tries"),
    [
        ({}, {"retry": False}, 1),
        ({"task_publish_retry": False}, {}, 1),
        ({}, {"retry_policy": POLICY}, 3),
        ({"task_publish_retry_policy": {**POLICY, "max_retries": 4}}, {}, 5),
        ({"task_publish_retry_policy": POLICY}, {"retry_policy": {"max_retries": 0}}, 1),
    ],
)
def test_a_publish_is_retried_as_often_as_the_call_or_the_app_sets(
    deaf: Deaf, conf: Any, call: Any, tries: int
) -> None:
    placed = task(deaf.url, **conf)
    with pytest.raises(OperationalError) as raised:
        placed.apply_async(**call)
    assert isinstance(raised.value, ServerUnreachable)
    assert deaf.calls == tries


def test_with_the_default_retry_policy_a_publish_is_retried_for_the_clients_patience(
    deaf: Deaf,
) -> None:
    with pytest.raises(OperationalError):
        task(deaf.url, retry_for_s=3).delay()
    assert deaf.calls > 2
    assert pauses_of(True, task(deaf.url).app.conf.task_publish_retry_policy) is None


@pytest.mark.one_server(-1)
def test_a_full_server_and_a_replica_are_operational_errors_too(server: EmbeddedServer) -> None:
    placed = task(server.url, task_publish_retry=False)
    placed.delay()
    admin: Any = placed.app.parsync.client.store.client
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(OperationalError, match="is full") as full:
            placed.delay()
    finally:
        admin.config_set("maxmemory", 0)
    assert isinstance(full.value, ServerFull)
    admin.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(OperationalError, match="read-only replica") as replica:
            placed.delay()
    finally:
        admin.execute_command("REPLICAOF", "NO", "ONE")
    assert isinstance(replica.value, ServerReadOnly)
    admin.flushall()


OTHER = r"other\.plain is placed by parsync, .* parsync=False sends it to the broker"


def test_send_task_of_a_name_that_was_never_looked_up_is_refused_after_one_try(deaf: Deaf) -> None:
    app = Celery("caller", broker="memory://", set_as_current=False)
    Parsync(app, deaf.url)
    for _ in range(3):
        with pytest.raises(OperationalError, match=OTHER):
            app.send_task("other.plain")
    assert deaf.calls == 1, "it is not asked again for a while"
    assert app.send_task("other.plain", parsync=False).id


@pytest.mark.one_server(-1)
def test_the_answer_about_a_name_is_kept_while_the_server_is_away(
    server: EmbeddedServer, deaf: Deaf
) -> None:
    app = Celery("caller", broker="memory://", set_as_current=False)
    parsync: Any = Parsync(app, server.url)
    assert app.send_task("other.plain").id
    parsync._client = Parsync(Celery("away", broker=deaf.url, set_as_current=False)).client
    assert app.send_task("other.plain").id
    assert deaf.calls == 0, "the answer holds for some seconds"
    parsync.options._known = {
        name: (said, 0.0) for name, (said, _) in parsync.options._known.items()
    }
    assert app.send_task("other.plain").id
    assert app.send_task("other.plain").id
    assert deaf.calls == 1
    with pytest.raises(OperationalError, match="parsync=False"):
        app.send_task("another")


def test_a_revoke_reaches_the_workers_while_the_server_is_away(deaf: Deaf) -> None:
    app = Celery("revoker", broker="memory://", set_as_current=False)
    Parsync(app, deaf.url)
    told: list[Any] = []
    app.control.broadcast = lambda command, **kwargs: told.append(
        (command, kwargs["arguments"]["task_id"])
    )
    with pytest.raises(OperationalError) as raised:
        app.control.revoke("abc", terminate=True)
    assert isinstance(raised.value, ServerUnreachable)
    assert told == [("revoke", "abc")]
    with pytest.raises(InvalidInput, match="signal"):
        app.control.revoke("abc", terminate=True, signal="SIGNOT")
    assert len(told) == 1


class Noting(Producer):  # type: ignore[misc,unused-ignore]
    """A producer of the caller's own that notes what is published over it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.published: list[str] = []

    def publish(self, body: Any, **options: Any) -> Any:  # type: ignore[override,unused-ignore]
        self.published.append(body["type"])
        return super().publish(body, **options)


def test_the_event_task_sent_goes_in_the_background_if_producers_have_no_limit(
    server: EmbeddedServer,
) -> None:
    placed = task(server.url, task_send_sent_event=True, broker_pool_limit=0)
    assert placed.apply_async().id
    assert placed.app.parsync.background._thread is not None


@pytest.mark.one_server(-1)
def test_the_event_task_sent_goes_over_the_callers_producer_and_its_failure_is_no_failure_of_the_call(
    server: EmbeddedServer, deaf: Deaf
) -> None:
    placed = task(server.url, task_send_sent_event=True)
    with placed.app.connection_for_write() as connection:
        own = Noting(connection)
        placed.apply_async(producer=own)
    assert own.published == ["task-sent"]
    with Connection(deaf.url) as connection:
        elsewhere = Noting(connection, auto_declare=False)
        assert placed.apply_async(producer=elsewhere, retry=False).id
    assert elsewhere.published == ["task-sent"]
    assert len(placed.app.amqp._event_dispatcher._outbound_buffer) == 1, (
        "Celery keeps the event, as of a plain task"
    )
    assert placed.app.parsync.background._thread is None, "nothing went over another producer"


@pytest.mark.one_server(-1)
@pytest.mark.parametrize("queue", ["video", "audio"])
def test_a_call_that_names_a_queue_outweighs_the_queue_that_the_workers_app_declares(
    server: EmbeddedServer, queue: str
) -> None:
    app = Celery("caller", broker="memory://", set_as_current=False)
    client = Parsync(app, server.url).client
    known = KnownTasks.of({"other.routed": {"place": True, "queue": "video"}})
    offer = offer_with(parse_resources("slots=1"), known).text
    client.store.run(client.store.commands.offer("n1", offer, known))
    id = app.send_task("other.routed", queue=queue, parsync={"wait_for_capacity": True}).id
    admin: Any = client.store.client
    line = admin.hget(client.store.keys.in_shard_of("tasks", id), id)
    assert f":{queue}".encode() in line
    message = admin.hget(client.store.keys.in_shard_of("messages", id), id)
    assert b"_queue" not in message
    admin.flushall()
