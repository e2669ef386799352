"""Several scheduler processes place on the same partitions at the same time; the test plays the
agents.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Lease
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.record import owner_of
from parsync_redis.model.task import Submission
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.oracle.audit import audit
from tests.kit.waiting import until

pytestmark = [pytest.mark.serial, pytest.mark.one_server(0)]
LEASE_S = 4.0
GAP_S = 0.1


class Cluster:
    """Scheduler processes on one server, and nodes whose agents the test plays."""

    def __init__(self, url: str, shards: int = 1) -> None:
        self.url = url
        self.shards = shards
        self.store = Store.from_url(url, "race")
        if shards > 1:  # known to this process before it submits
            settings = Settings(
                url=url, cluster="race", partitions=1, shards=shards, gap_s=GAP_S, lease_s=LEASE_S
            )
            join_cluster(self.store, settings, create=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.places: dict[str, int] = {}
        self.offers: dict[str, tuple[int, float]] = {}
        self.incs: dict[str, int] = {}
        self.history: list[tuple[str, str, str]] = []

    def schedulers(self, *names: str, partitions: int = 1, strategy: str = "quality") -> None:
        env = {
            **os.environ,
            "PARSYNC_URL": self.url,
            "PARSYNC_CLUSTER": "race",
            "PARSYNC_PARTITIONS": str(partitions),
            "PARSYNC_SHARDS": str(self.shards),
            "PARSYNC_GAP_S": str(GAP_S),
            "PARSYNC_LEASE_S": str(LEASE_S),
            "PARSYNC_STRATEGY": strategy,
        }
        for name in names:
            command = [sys.executable, "-m", "parsync_redis.cli", "scheduler", "--name", name]
            self.processes[name] = subprocess.Popen(command, env=env, start_new_session=True)
        self.wait(lambda: self.work() < 0 or len(self.members()) == len(self.alive()))

    def alive(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None]

    def wait(self, fact: Callable[[], object], timeout_s: float = 180.0) -> None:
        """Wait for a fact while the nodes' agents renew."""

        def renewed() -> object:
            self.renew()
            return fact()

        until(renewed, f"{fact}", timeout_s)

    def members(self) -> dict[str, str]:
        return self.store.hash(self.store.keys.shared("schedulers"))

    def stats(self, field: str) -> int:
        return sum(
            int(self.store.hash(self.store.keys.stats(name)).get(field, 0))
            for name in self.processes
        )

    def leader(self) -> str:
        return self.store.hash(self.store.keys.shared("leader")).get("holder", " ").split()[0]

    def node(self, p: int, name: str, slots: int, score: float = 1.0) -> None:
        self.places[name] = p
        self.offers[name] = (slots, score)
        call = self.store.commands.register_node(
            p, name, self.incs.get(name, 0), score, Resources.of(slots).text
        )
        self.incs[name], _ = self.store.run(call)

    def renew(self) -> None:
        """Renew the nodes' leases; a node that was given up, as this process had no time,
        registers again.
        """
        commands = self.store.commands
        nodes = list(self.places.items())
        replies = self.store.run_all(
            [commands.renew(p, name, self.incs[name]) for name, p in nodes]
        )
        for (name, p), (word, *_) in zip(nodes, replies, strict=True):
            if word == "lapsed":
                self.node(p, name, *self.offers[name])

    def submit(self, count: int, slots: int = 1, prefix: str = "t") -> list[str]:
        options = TaskOptions.of({"slots": slots})
        tasks = [Submission(f"{prefix}{i}", "job", b"{}", options) for i in range(count)]
        for at in range(0, count, 500):
            words = self.store.run(self.store.commands.submit(tasks[at : at + 500]))
            assert set(words) == {"submitted"}
        return [task.id for task in tasks]

    def leases(self) -> list[Lease]:
        found = []
        for p in set(self.places.values()):
            nodes = [node for node in self.store.nodes(p).values() if node.name in self.incs]
            found += [lease for lease in self.store.leases(p, nodes) if lease.leads]
        return found

    def work(self) -> int:
        """Play all agents once: start and finish whatever holds a slot, and release it; return how
        many it finished.
        """
        self.renew()
        self.store.client.delete(
            *(self.store.keys.inbox(p, name) for name, p in self.places.items()), "none"
        )
        commands = self.store.commands
        finished = 0
        for lease in self.leases():
            place = lease.place
            ((word, _),) = self.store.run(commands.start([place]))
            self.history.append((lease.place.task, lease.place.attempt, word))
            if word == "ok":
                finished += 1
                assert self.store.run(commands.finish([(place, "succeeded", "")])) == ["ok"]
            self.store.run(commands.release(place.partition, [place]))
            self.renew()
        return finished

    def takers(self) -> set[str]:
        """Return the schedulers that have taken tasks and not placed them yet."""
        taken = [self.store.hash(key) for key in self.store.keys.queues("taken")]
        return {owner_of(attempt) for some in taken for attempt in some.values()}

    def work_until_done(self, ids: list[str], timeout_s: float = 180.0) -> None:
        def done() -> bool:
            self.work()
            return all(state == "succeeded" for state in self.store.states(ids))

        self.wait(done, timeout_s)

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(timeout=180)


@pytest.fixture
def cluster(server: EmbeddedServer, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Yield a cluster with one shard, or with as many as the test's parameter says."""
    cluster = Cluster(server.url, getattr(request, "param", 1))
    yield cluster
    cluster.stop()
    assert not audit(cluster.store)
    assert not cluster.members(), "schedulers that were asked to stop leave the cluster"
    cluster.store.client.flushall()


@pytest.mark.parametrize("cluster", [1, 4], indirect=True)
def test_on_one_partition_each_task_is_started_once_and_conflicts_are_confirmed_by_first_claim(
    cluster: Cluster,
) -> None:
    cluster.node(0, "n1", 12)
    cluster.node(0, "n2", 12, score=2.0)
    cluster.schedulers("s1", "s2", "s3", "s4")
    ids = cluster.submit(600)
    cluster.work_until_done(ids)
    assert Counter(task for task, _, word in cluster.history if word == "ok") == dict.fromkeys(
        ids, 1
    )
    cluster.wait(lambda: cluster.stats("placed") >= 600)
    takers = [
        name
        for name in cluster.processes
        if int(cluster.store.hash(cluster.store.keys.stats(name))["placed"])
    ]
    assert len(takers) > 1, "more than one scheduler placed"


def test_tasks_of_several_slots_and_of_one_share_nodes_without_a_slot_held_twice(
    cluster: Cluster,
) -> None:
    for p in range(3):
        cluster.node(p, f"n{p}", 7)
    cluster.schedulers("s1", "s2", "s3", partitions=3)
    ids = cluster.submit(120, slots=3, prefix="wide") + cluster.submit(240, prefix="narrow")
    cluster.work_until_done(ids)
    assert Counter(task for task, _, word in cluster.history if word == "ok") == dict.fromkeys(
        ids, 1
    )


def test_schedulers_join_and_leave_while_tasks_flow(cluster: Cluster) -> None:
    for p in range(4):
        cluster.node(p, f"n{p}", 8)
    cluster.schedulers("s1", "s2", partitions=4)
    ids = cluster.submit(200, prefix="a")
    cluster.work()
    cluster.schedulers("s3", partitions=4)
    ids += cluster.submit(200, prefix="b")
    cluster.work()
    cluster.processes["s1"].send_signal(signal.SIGTERM)
    ids += cluster.submit(200, prefix="c")
    cluster.work_until_done(ids)
    cluster.processes["s1"].wait(timeout=180)
    assert sorted(cluster.members()) == ["s2", "s3"]


@pytest.mark.parametrize("cluster", [1, 4], indirect=True)
def test_a_killed_scheduler_costs_no_task_and_is_made_good_within_two_leases(
    cluster: Cluster,
) -> None:
    cluster.node(0, "n1", 4)
    cluster.schedulers("s1", "s2", "s3")
    ids = cluster.submit(400)
    cluster.wait(lambda: [cluster.work(), "s2" in cluster.takers()][1])
    os.kill(cluster.processes["s2"].pid, signal.SIGKILL)
    killed_s = time.monotonic()

    def given_back() -> bool:
        cluster.work()
        return "s2" not in cluster.members() and "s2" not in cluster.takers()

    cluster.wait(given_back)
    print(f"made good after {(time.monotonic() - killed_s) / LEASE_S:.2f} leases")
    cluster.work_until_done(ids)
    assert Counter(task for task, _, word in cluster.history if word == "ok") == dict.fromkeys(
        ids, 1
    )


def test_when_the_leader_is_killed_another_takes_over_and_ticks_go_on(cluster: Cluster) -> None:
    cluster.node(0, "n1", 4)
    cluster.schedulers("s1", "s2", "s3")
    cluster.wait(cluster.leader)
    first = cluster.leader()
    os.kill(cluster.processes[first].pid, signal.SIGKILL)
    killed_s = time.monotonic()
    cluster.wait(lambda: cluster.leader() != first)
    print(f"another leader after {(time.monotonic() - killed_s) / LEASE_S:.2f} leases")
    cluster.wait(lambda: first not in cluster.members())
    print(
        f"the lost leader is no member after {(time.monotonic() - killed_s) / LEASE_S:.2f} leases"
    )
    ids = cluster.submit(50)
    cluster.work_until_done(ids)
    rest = next(name for name in cluster.processes if name != first)
    own = int(cluster.store.hash(cluster.store.keys.stats(rest))["own_ticks"])
    assert own > 0, "while no leader ticked, schedulers went on by their own clock, and counted it"


def test_a_node_that_stands_still_is_down_and_its_tasks_run_elsewhere(cluster: Cluster) -> None:
    cluster.node(0, "dies", 4, score=9.0)
    cluster.schedulers("s1", "s2")
    ids = cluster.submit(4)
    cluster.wait(lambda: len(cluster.leases()) == 4)
    for lease in cluster.leases():
        assert cluster.store.run(cluster.store.commands.start([lease.place]))[0][0] == "ok"
    died_s = time.monotonic()
    del cluster.places["dies"], cluster.incs["dies"]
    cluster.node(0, "lives", 4)
    cluster.wait(lambda: all(status.node == "lives" for status in cluster.store.statuses(ids)))
    print(f"elsewhere after {(time.monotonic() - died_s) / LEASE_S:.2f} leases")
    cluster.work_until_done(ids)
    assert cluster.store.nodes(0)["dies"].state == "down"
    assert {status.starts for status in cluster.store.statuses(ids)} == {2}
