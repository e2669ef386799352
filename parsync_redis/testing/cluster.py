"""A whole cluster in the process of a test.

A server is a child process; a scheduler and a node that runs tasks are threads.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import redis
from celery import Celery, signals
from celery.contrib.testing.worker import start_worker

from ..client import ParsyncClient
from ..errors import InvalidInput, ParsyncError
from ..model.task import FINAL
from ..scheduler.process.loop import Scheduler
from ..settings import Settings
from ..store.cluster import join_cluster
from ..store.reads.cancel import Selection, find_selected
from ..store.server.embedded import EmbeddedServer
from ..store.store import Store
from .nodes import worker_options

TEST_CLUSTER: Final = "test"
TEST_NODE: Final = "n1"
CLUSTER_DEFAULTS: Final = {"partitions": 1, "gap_s": 0.1, "lease_s": 60.0}
"""Settings of the cluster, unless the app's settings have other values.

A debugger may stop a test for less than a lease.
"""

READY_S: Final = 30.0
ENDS_S: Final = 10.0
"""Seconds that the tasks of a test may take to end when the test is over."""

_RESULTS: Final = 1
"""The number of the database for results, which a reset empties."""


class TestCluster:
    """A server, a scheduler and a node of `app` in this process.

    The app submits to this cluster until `stop`.

    node: the node's offer, a mapping of slots, score, labels, resources, taints, and the queues
        that the node consumes. The node runs one task at a time.
    client: a ParsyncClient of the cluster.
    url: the server's address.

    Raises InvalidInput, and ServerUnreachable if there is no server program.
    """

    __test__ = False  # pytest takes classes of this name for tests

    def __init__(self, app: Celery, node: Mapping[str, Any] | None = None) -> None:
        if getattr(app, "parsync", None) is None:
            raise InvalidInput(
                f"the app {app.main} has no Parsync: call Parsync(app) where the app is made"
            )
        if Settings.load().password_file is not None:
            raise InvalidInput(
                "a password_file is set, but the server of tests has no password: test without it"
            )
        self.app = app
        self._options = worker_options(node or {})
        self.url = ""
        self.client: ParsyncClient
        self._held = ExitStack()

    def start(self) -> None:
        """Start everything, and wait until the node takes tasks."""
        with ExitStack() as stack:
            self.url = stack.enter_context(EmbeddedServer()).url
            stack.enter_context(_used_by(self.app, self.url))
            shared = Settings.load(url=self.url, cluster=TEST_CLUSTER)
            shared_settings: dict[str, Any] = {
                name: getattr(shared, name) or value for name, value in CLUSTER_DEFAULTS.items()
            }
            settings = Settings.load(url=self.url, cluster=TEST_CLUSTER, **shared_settings)
            stack.enter_context(_scheduler(settings))
            self.client = stack.enter_context(ParsyncClient(settings))
            stack.enter_context(_worker(self.app, self._options))
            self._wait_for_node()
            self._held = stack.pop_all()

    def stop(self) -> None:
        """Stop everything; the app has its own addresses again."""
        self._held.close()

    def __enter__(self) -> "TestCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reset(self) -> None:
        """Cancel waiting tasks, let running ones finish, and remove all records and results.

        Raises AssertionError.

        The node runs tasks in a thread, which nobody can end: a task that does not end fails the
        test.
        """
        client = self.client
        while ids := [id for state in ("waiting", "placed", "running") for id in self._ids(state)]:
            client.cancel_many(ids)
            try:
                client.wait(ids, ENDS_S)
            except TimeoutError as error:
                raise AssertionError(
                    f"after the test tasks still run, and nobody can end them: {error}"
                ) from None
        for state in FINAL:
            client.purge(state)
        with redis.Redis.from_url(_results(self.url)) as results:
            results.flushdb()

    def _ids(self, state: str) -> list[str]:
        return self.client.requests.do(lambda: find_selected(self.client.store, Selection(state)))

    def _wait_for_node(self) -> None:
        until_s = time.monotonic() + READY_S
        while not any(node.state == "up" for node in self.client.nodes()):
            if time.monotonic() >= until_s:
                raise ParsyncError(
                    f"its node has not joined within {READY_S:g} s: the log of this test says why"
                )
            time.sleep(0.005)


_OF_ITS_BROKER: Final[dict[str, Any]] = {"broker_use_ssl": False, "redis_backend_use_ssl": None}
"""Configuration of an app's own servers, with the values for this server, which has no TLS."""


def _results(url: str) -> str:
    return f"{url.rpartition('/')[0]}/{_RESULTS}"


@contextmanager
def _used_by(app: Celery, url: str) -> Iterator[None]:
    """Have an app use this server as broker, for results and for parsync.

    The programs that the tests start use the server as well.
    """
    new = dict.fromkeys(
        ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "PARSYNC_URL"),
        url,
    )
    new |= {"CELERY_RESULT_BACKEND": _results(url), "PARSYNC_CLUSTER": TEST_CLUSTER}
    node_variables = [name for name in os.environ if name.startswith("PARSYNC_NODE")]
    before = {name: os.environ.pop(name, None) for name in (*new, *node_variables)}
    os.environ.update(new)  # Celery's variables come before an app's configuration
    place = app.parsync.move_to(url, TEST_CLUSTER)
    of_its_broker = {name: app.conf[name] for name in _OF_ITS_BROKER}
    app.conf.update(_OF_ITS_BROKER)
    _forget_connections(app)
    try:
        yield
    finally:
        app.conf.update(of_its_broker)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        app.parsync.move_to(*place)
        _forget_connections(app)


def _forget_connections(app: Celery) -> None:
    """Have an app open new connections, as Celery does after a fork."""
    app._pool = app.amqp._producer_pool = app._backend_cache = None
    app._local.__dict__.pop("backend", None)


@contextmanager
def _scheduler(settings: Settings) -> Iterator[None]:
    """Run a scheduler in a thread."""
    store = Store.from_url(
        settings.url, settings.cluster, settings.retention_s, settings.max_starts
    )
    config = join_cluster(store, settings, create=True)
    assert config is not None
    stop = threading.Event()
    scheduler = Scheduler(store, config, settings, "test")
    thread = threading.Thread(
        target=scheduler.run, args=(stop,), name="parsync-scheduler", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(READY_S)
        store.disconnect()


@contextmanager
def _worker(app: Celery, options: Mapping[str, Any]) -> Iterator[None]:
    """Run a worker that is a node in a thread; the log of the tests stays as it is."""

    def keep_log(**_: object) -> None:
        """Do nothing: Celery sets up no log if this signal has a receiver."""

    signals.setup_logging.connect(keep_log, weak=False)
    flags = {
        "parsync_node": TEST_NODE,
        "parsync_isolate": False,
        "shutdown_timeout": READY_S,
        **options,
    }
    try:
        with start_worker(app, pool="solo", perform_ping_check=False, **flags):
            yield
    except SystemExit:
        raise ParsyncError(
            "its node could not be made: the lines that begin with 'error:' say why"
        ) from None
    finally:
        signals.setup_logging.disconnect(keep_log)
