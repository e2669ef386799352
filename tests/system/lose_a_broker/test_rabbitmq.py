"""F41 to F45: the app's broker is a RabbitMQ that is not there at start, paused, slow, killed;
parsync works on.

The tests of this file are one history with one RabbitMQ, in their order: it is not there, starts,
is paused, is killed.
"""

import importlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery.result import AsyncResult

from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.rabbit import RabbitMQ, epmd_program, named_program, rabbitmq_program
from tests.kit.rig import CLUSTER, LONG_LEASE_S, Rig
from tests.kit.servers import server_programs

pytestmark = pytest.mark.serial
APP = "tests.kit.apps.rabbit:app"
GET_S = 180
needs_rabbitmq = pytest.mark.skipif(
    not (named_program() or (rabbitmq_program() and epmd_program())),
    reason="needs RabbitMQ: apt-get install rabbitmq-server",
)


class Site(Rig):
    """A cluster whose app's broker is not parsync's server."""

    def worker(
        self, node: str, *extra: str, up: bool = True, broker: str = "", **options: Any
    ) -> str:
        """Start a worker of two slots with all that Celery does by default: mingle, gossip,
        heartbeats, events.
        """
        before = ["-b", broker] if broker else []
        self.stack.start(
            node,
            [
                "env",
                *options.get("env", []),
                sys.executable,
                "-m",
                "celery",
                "-A",
                APP,
                *before,
                "worker",
                "-l",
                "info",
                "-n",
                f"{node}@%h",
                "-E",
                "-P",
                options.get("pool", "prefork"),
                "-c",
                "2",
                "--parsync-node",
                node,
                "--parsync-label",
                f"node={node}",
                *extra,
            ],
        )
        if up:
            self.until_up(node)
        return node

    def add(self, node: str, a: int = 1) -> AsyncResult:
        """Submit a task for that node."""
        result: AsyncResult = self.tasks.add.apply_async(
            (a, a), parsync={"require": {"node": node}}
        )
        return result

    def works(self, *nodes: str) -> None:
        """Wait until a new task on each of the nodes has come to its end."""
        results = [self.add(node, number) for node in nodes for number in range(5)]
        assert [result.get(timeout=GET_S) for result in results] == [0, 2, 4, 6, 8] * len(nodes)
        assert {self.status(result.id).node for result in results} == set(nodes)

    def held(self, node: str, gate: str) -> AsyncResult:
        """Submit a task that runs on that node until the gate is opened, and wait
        until it runs.
        """
        result: AsyncResult = self.tasks.gated.apply_async(
            (gate,), parsync={"require": {"node": node}}
        )
        self.until(lambda: self.redis.exists(f"test:held:{gate}"), f"{gate} runs")
        return result


@pytest.fixture(scope="module")
def state() -> Iterator[EmbeddedServer]:
    with EmbeddedServer(next(iter(server_programs().values()))) as server:
        yield server


@pytest.fixture(scope="module")
def rabbit() -> Iterator[RabbitMQ]:
    """Yield the app's broker, which has not been started."""
    server = RabbitMQ()
    yield server
    server.close()


@pytest.fixture(scope="module")
def site(
    state: EmbeddedServer, rabbit: RabbitMQ, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Yield the app here and in its workers, and a scheduler."""
    env = {"TEST_STATE_URL": state.url, "TEST_BROKER_URL": rabbit.url}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**env, "PARSYNC_CLUSTER": CLUSTER}.items():
            patch.setenv(name, value)
        tasks = importlib.import_module("tests.kit.apps.rabbit")
        env = {**env, "CELERY_BROKER_URL": ""}
        site = Site(state.url, tasks, tmp_path_factory.mktemp("logs"), env, celery_url=state.url)
        site.schedulers(1, lease_s=LONG_LEASE_S)
        yield site
        site.close()
        # Celery unsubscribes from a result that is forgotten later, and would wait for a server
        # that has stopped by then
        tasks.app.backend.result_consumer._pubsub = None


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_node_of_placed_tasks_only_needs_no_event_loop_of_its_broker(
    site: Site, pool: str
) -> None:
    """Kombu's memory and filesystem transports have none. Row F41 of docs/failure-modes.md."""
    node = site.worker(f"memory-{pool}", "--parsync-only", pool=pool, broker="memory://")
    try:
        site.works(node)
        result = site.held(node, node)
        site.redis.set(f"test:gate:{node}", "open")
        assert result.get(timeout=GET_S) == node
    finally:
        assert site.stack.terminate(node) == 0


def test_a_mixed_node_on_a_broker_without_an_event_loop_is_refused_with_the_repair(
    site: Site,
) -> None:
    site.worker("mixed-memory", broker="memory://", up=False)
    ended = site.stack.processes["mixed-memory"].popen
    assert ended.wait(timeout=GET_S) == 2
    why = "which the transport memory of the app's broker lacks: add --parsync-only"
    site.until(lambda: why in site.lines("mixed-memory"), "it says why")


def test_a_node_is_not_up_before_its_event_loop_turns(site: Site) -> None:
    """The node says what it waits for. Row F43 of docs/failure-modes.md."""
    site.worker(
        "early",
        "--parsync-only",
        pool="threads",
        broker="memory://",
        env=["TEST_BLOCKS=1"],
        up=False,
    )
    said = (
        "node early is not up yet: its event loop does not turn; it waits in "
        "tests.kit.apps.rabbit.wait_for"
    )
    site.until(lambda: said in site.lines("early"), "the node says what it waits for")
    assert site.node("early").state == ""
    site.redis.set("test:gate:start", "open")
    site.until_up("early")
    assert site.stack.terminate("early") == 0


@needs_rabbitmq
class TestRabbitMQ:
    """The history of one RabbitMQ; the node `mixed` runs all tasks, `only` placed tasks only."""

    def test_nodes_are_up_and_work_before_the_broker_is_there(
        self, site: Site, rabbit: RabbitMQ
    ) -> None:
        """The broker is not there when the workers start. Row F42 of docs/failure-modes.md."""
        site.worker("only", "--parsync-only", pool="threads")
        site.worker("mixed")
        site.works("only", "mixed")
        rabbit.start()
        assert site.tasks.plain.delay(4).get(timeout=GET_S) == 8
        site.works("only", "mixed")
        id = site.tasks.publishes.apply_async((7,), parsync={"require": {"node": "only"}}).get(
            timeout=GET_S
        )
        assert AsyncResult(id, app=site.tasks.app).get(timeout=GET_S) == 14
        for said in (f"Cannot connect to {rabbit.shown}", f"Connected to {rabbit.shown}"):
            assert said in site.lines("mixed"), "it has waited for the broker, and consumes from it"
            assert said not in site.lines("only"), "it has nothing to do with the broker"

    def test_a_node_whose_event_loop_stands_still_is_suspect_and_its_tasks_run_elsewhere(
        self, site: Site, rabbit: RabbitMQ
    ) -> None:
        """The node becomes suspect, so that no task is placed where nobody hears its doorbell.

        Row F43 of docs/failure-modes.md.
        """
        site.until(lambda: "ready" in site.lines("mixed"), "the node consumes its queue")
        site.tasks.app.control.broadcast(
            "stand_still", destination=[f"mixed@{socket.gethostname()}"]
        )
        site.until(lambda: site.redis.exists("test:held:loop"), "its event loop stands still")
        try:
            backs = self.runs_elsewhere(site)
        finally:
            site.redis.set("test:gate:loop", "open")
        assert any(why.startswith("its event loop stands still") for why in backs), (
            f"it gave none back: {backs}"
        )
        site.until(lambda: site.node("mixed").state == "up", "it is up when its loop turns")
        site.works("mixed")

    def test_a_paused_broker_keeps_nothing(self, site: Site, rabbit: RabbitMQ) -> None:
        """Placed tasks run, end and are cancelled while the broker is paused.

        Row F44 of docs/failure-modes.md.
        """
        running = [site.held("mixed", "paused-mixed"), site.held("only", "paused-only")]
        rabbit.pause()
        try:
            self.works_without(site, "paused", running)
        finally:
            rabbit.resume()
        assert site.tasks.plain.delay(5).get(timeout=GET_S) == 10

    def test_a_slow_broker_keeps_nothing(self, site: Site, rabbit: RabbitMQ) -> None:
        """Placed tasks run, end and are cancelled while the broker is slow.

        Row F44 of docs/failure-modes.md.
        """
        rabbit.start()
        with Slow(rabbit.port, 0.5) as proxy:
            site.worker("slow", broker=rabbit.url.replace(str(rabbit.port), str(proxy.port)))
            site.works("slow")
            assert site.stack.terminate("slow", 30) == 0

    def test_a_killed_broker_keeps_nothing(self, site: Site, rabbit: RabbitMQ) -> None:
        """Placed tasks run, end and are cancelled after the broker was killed.

        Row F45 of docs/failure-modes.md.
        """
        running = [site.held("mixed", "killed-mixed"), site.held("only", "killed-only")]
        rabbit.kill()
        site.until(
            lambda: "Connection to broker lost" in site.lines("mixed"), "the node has noticed"
        )
        self.works_without(site, "killed", running)
        began = site.held("mixed", "last")
        site.stack.processes["mixed"].send(15)
        site.redis.set("test:gate:last", "open")
        assert began.get(timeout=GET_S) == "last", "a warm shutdown waits for what runs"
        site.until(lambda: site.node("mixed").state == "", "the node leaves in order")
        assert site.stack.processes["mixed"].end(time.monotonic() + GET_S) == 0
        site.works("only")

    @staticmethod
    def runs_elsewhere(site: Site) -> list[str]:
        """Submit tasks while the loop of `mixed` stands still; wait until all have run on `only`.

        Returns:
            why `mixed` gave tasks back.
        """
        running = [site.held("only", f"busy-{slot}") for slot in range(2)]
        # two are placed on the node that does not hear, because only its slots are free; the
        # others may wait behind the tasks that run, and be given back because those take long
        waiting = [site.tasks.add.delay(a, a) for a in range(8)]
        site.until(lambda: site.node("mixed").state == "suspect", "the node is suspect")
        note = site.node("mixed").note
        assert note.startswith("its event loop stands still; it waits in ")
        assert note.split()[-1].startswith(("tests.kit.apps.rabbit", "redis.")), (
            "it polls a gate, a key in Redis"
        )
        for slot in range(2):
            site.redis.set(f"test:gate:busy-{slot}", "open")
        assert [result.get(timeout=GET_S) for result in running] == ["busy-0", "busy-1"]
        assert [result.get(timeout=GET_S) for result in waiting] == [2 * a for a in range(8)]
        statuses = [site.status(result.id) for result in waiting]
        assert {status.node for status in statuses} == {"only"}
        setbacks = [setback for status in statuses for setback in status.history]
        return [setback.why for setback in setbacks if setback.node == "mixed"]

    @staticmethod
    def works_without(site: Site, gate: str, running: list[AsyncResult]) -> None:
        """Submit, the end of what runs, new tasks and cancels."""
        site.works("only", "mixed")
        for name in ("mixed", "only"):
            site.redis.set(f"test:gate:{gate}-{name}", "open")
        assert [result.get(timeout=GET_S) for result in running] == [
            f"{gate}-mixed",
            f"{gate}-only",
        ]
        later = site.tasks.add.apply_async((1, 1), countdown=600)
        later.revoke()
        assert site.status(later.id).state == "cancelled"
        ends = site.held("mixed", f"{gate}-ends")
        ends.revoke(terminate=True, signal="SIGTERM")
        site.until_state(ends.id, "cancelled")
        assert {node.state for node in site.client.nodes() if node.name in ("only", "mixed")} == {
            "up"
        }


class Slow:
    """A proxy that lets each piece of a connection wait."""

    def __init__(self, to: int, delay_s: float) -> None:
        self._to = to
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()  # limit: in a daemon thread
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):  # limit: in a daemon thread
                time.sleep(self._delay_s)
                target.sendall(data)
        except OSError:
            pass
        finally:
            source.close()
            target.close()

    def __enter__(self) -> "Slow":
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()
