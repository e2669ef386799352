"""Tasks under a full limit start when it has room again, without a tick: the gap is a minute."""

from collections.abc import Iterator
from typing import Any

import pytest

from parsync_redis.model.needs import Resources
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.oracle.audit import audit

pytestmark = pytest.mark.one_server(0)

TURNS = 20
"""Maximum number of turns from the moment at which a task may start until its claim."""


class LimitedCluster:
    """A node of four slots, the limit `stripe` of one unit, and a scheduler without ticks.

    The test is the node, and lets the scheduler make its turns.
    """

    def __init__(self, url: str, shards: int = 1) -> None:
        settings = Settings(url=url, cluster="lim", partitions=1, gap_s=60, lease_s=600)
        self.store = Store.from_url(url, "lim")
        config = join_cluster(self.store, settings, create=True)
        assert config is not None
        self.commands = self.store.commands
        self.run = self.store.run
        self.run(self.commands.register_node(0, "n1", 0, 1.0, Resources.of(4).text))
        self.run(self.commands.set_policy([("stripe", "units=1")]))
        self.scheduler = Scheduler(self.store.with_own_connections(), config, settings, "s1")
        assert self.scheduler.enter()
        self.turns(3)

    def turns(self, count: int) -> None:
        """Let the scheduler make turns."""
        for _ in range(count):
            self.scheduler.turn()

    def submit(self, *ids: str, name: str = "job") -> None:
        """Submit tasks under the limit."""
        options = TaskOptions(limits="stripe")
        self.run(self.commands.submit([Submission(id, name, b"", options) for id in ids]))

    def place_of(self, id: str) -> Place:
        """Return the place that a task gets within TURNS."""
        for _ in range(TURNS):
            nodes = self.store.nodes(0).values()
            places = [lease.place for lease in self.store.leases(0, [*nodes])]
            if found := [place for place in places if place.task == id]:
                return found[0]
            self.scheduler.turn()
        raise AssertionError(f"{id} waits, although the limit has room")

    def start(self, id: str) -> Place:
        """Start a task, as soon as it is placed."""
        place = self.place_of(id)
        assert self.run(self.commands.start([place]))[0][0] == "ok"
        return place

    def end(self, place: Place) -> None:
        """End a run, and free its slot."""
        self.run(self.commands.finish([(place, "succeeded", "")]))
        self.run(self.commands.release(0, [place]))

    def rest(self) -> None:
        """Let the scheduler make turns until it waits for a message."""
        for _ in range(TURNS):
            if self.scheduler.core.at_rest:
                return
            self.scheduler.turn()
        raise AssertionError("the scheduler does not come to rest")


@pytest.fixture
def limited(server: EmbeddedServer) -> Iterator[LimitedCluster]:
    cluster = LimitedCluster(server.url)
    yield cluster
    cluster.scheduler.leave()
    cluster.scheduler.listener.close()
    assert not audit(cluster.store)
    cluster.store.client.flushall()


def test_tasks_under_a_limit_of_one_run_one_behind_the_other(limited: LimitedCluster):
    ids = [f"t{number}" for number in range(8)]
    limited.submit(*ids)
    for id in ids:
        limited.rest()
        limited.end(limited.start(id))


def test_a_task_that_comes_while_the_limit_is_exactly_full_starts_at_the_end_of_the_run(
    limited: LimitedCluster,
):
    limited.submit("a")
    place = limited.start("a")
    limited.rest()
    for number in range(3):  # the kind is new, and the limit was never asked for more
        limited.submit(f"b{number}", name=f"job{number}")
        limited.turns(3)
        limited.rest()
        limited.end(place)
        place = limited.start(f"b{number}")


def test_kinds_that_share_a_limit_run_one_behind_the_other(limited: LimitedCluster):
    for number in range(4):
        limited.submit(f"t{number}", name=f"job{number}")
    for number in range(4):
        limited.rest()
        limited.end(limited.start(f"t{number}"))


def test_a_limit_that_is_lowered_and_raised_leaves_nobody_waiting(limited: LimitedCluster):
    limited.submit("a", "b", "c")
    first = limited.start("a")
    limited.rest()
    limited.run(limited.commands.set_policy([("stripe", "units=0")]))
    limited.turns(3)
    limited.end(first)
    limited.turns(3)
    limited.run(limited.commands.set_policy([("stripe", "units=1")]))
    second = limited.start("b")
    limited.rest()
    limited.end(second)
    limited.end(limited.start("c"))


@pytest.mark.parametrize("how", ["cancel", "recall", "lost"])
def test_a_task_that_leaves_a_full_limit_before_its_end_lets_the_next_task_start(
    limited: LimitedCluster, how: str
):
    limited.submit("a")
    limited.submit("b", name="other")
    place = limited.place_of("a")
    limited.rest()
    commands = limited.commands
    call: Any = {
        "cancel": commands.cancel(["a"]),
        "recall": commands.requeue([(place, "its worker shuts down")], "recalled", [10**6]),
        "lost": commands.requeue([(place, "lost")], delays_ms=[10**6]),
    }[how]
    limited.run(call)
    assert limited.place_of("b")
    limited.run(commands.release(0, [place]))
