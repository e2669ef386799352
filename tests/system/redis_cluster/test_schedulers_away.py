"""A primary dies or hangs while schedulers place: its partitions and shards stop, and all others go
on.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from parsync_redis.model.ids import id_in_shard
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.store.server.embedded_cluster import EmbeddedCluster
from tests.kit.oracle.audit import audit
from tests.kit.waiting import ended

PARTITIONS = range(8)
SHARDS = range(16)
SLOTS = 200


class Placing:
    """Two schedulers without membership threads, and a node in each partition, on a cluster with
    replicas.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        settings = Settings(
            url=cluster.url, cluster="dies", partitions=8, shards=16, gap_s=0.2, lease_s=4
        )
        self.cluster = cluster
        self.store = Store.from_url(cluster.url, "dies")
        config = join_cluster(self.store, settings, create=True)
        assert config is not None
        self.store.run(self.store.commands.offer("n", f"slots={SLOTS}"))
        for p in PARTITIONS:
            register = self.store.commands.register_node(
                p, f"n{p}", 0, 1.0, Resources.of(SLOTS).text
            )
            self.store.run(register)
        self.schedulers = [
            Scheduler(self.store.with_own_connections(), config, settings, name)
            for name in ("s1", "s2")
        ]
        for one in self.schedulers:
            assert one.enter()
        self.longest_s = 0.0

    def turn_until(self, is_so: Callable[[], bool], seconds: float = 60) -> None:
        """Let the schedulers take turns until this is so."""
        deadline_s = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline_s, "it did not come to be"
            for one in self.schedulers:
                began_s = time.monotonic()
                one.turn()
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)

    def submit(self, count: int, shards: set[int]) -> list[str]:
        """Submit so many tasks to each of some shards."""
        ids = [id_in_shard(shard, 16) for shard in sorted(shards) for _ in range(count)]
        for at in range(0, len(ids), count):
            tasks = [Submission(id, "work", b"{}") for id in ids[at : at + count]]
            words = self.store.run(self.store.commands.submit(tasks))
            assert set(words) == {"submitted"}
        return ids

    def places(self, of: list[str] | None = None) -> list[Place]:
        """Return the places that hold slots now: all, or those of some tasks."""
        nodes = {p: list(self.store.nodes(p).values()) for p in PARTITIONS}
        leases = [lease for p in PARTITIONS for lease in self.store.leases(p, nodes[p])]
        return [
            lease.place
            for lease in leases
            if lease.leads and (of is None or lease.place.task in of)
        ]

    def holds(self, ids: list[str]) -> Callable[[], bool]:
        """Return a test whether each of these tasks holds a slot on a server that answers."""

        def all_hold() -> bool:
            held = self.store.pipe_each(
                [("hvals", self.store.keys.partition(p, "slots")) for p in PARTITIONS]
            )
            there = {
                value.split()[0].decode()
                for some in held
                if not isinstance(some, Exception)
                for value in some
            }
            return set(ids) <= there

        return all_hold

    def play_agents(self) -> list[str]:
        """Start whatever holds a slot, and release what may not start; return the tasks that have
        started now.
        """
        commands = self.store.commands
        found = list[str]()
        for place in self.places():
            ((word, _),) = self.store.run(commands.start([place]))
            found += [place.task] if word == "ok" else []
            if word not in ("ok", "yours"):
                self.store.run(commands.release(place.partition, [place]))
        return found

    def replica_of(self, server: EmbeddedServer) -> EmbeddedServer:
        """Return the replica of a primary."""
        return self.cluster.servers[self.cluster.servers.index(server) + 3]

    def wait_for(self, parts: set[int]) -> None:
        """Wait until these partitions can be read, while schedulers take turns."""

        def readable() -> bool:
            answers = self.store.run_each(
                [self.store.commands.read_partition(p) for p in sorted(parts)]
            )
            return not any(isinstance(answer, Exception) for answer in answers)

        self.turn_until(readable)

    def end(self) -> None:
        """Let the schedulers leave; the state is whole then."""
        for one in self.schedulers:
            assert not one._taken.confirm(one.core.won.unconfirmed)
            one.leave()
        count = Counter(place.task for place in self.places())
        assert set(count.values()) <= {1}
        assert not audit(self.store)

    def victim(self) -> tuple[EmbeddedServer, set[int], set[int]]:
        """Return a primary, the partitions that it has, and the shards: some of each,
        and not all.
        """
        keys = self.store.keys
        find = self.cluster.primary_of
        for server in self.cluster.servers[:3]:
            parts = {p for p in PARTITIONS if find(keys.partition(p, "meta")) is server}
            shards = {shard for shard in SHARDS if find(keys.queue("meta", shard)) is server}
            if parts and shards and len(parts) < 8 and len(shards) < 16:
                return server, parts, shards
        raise AssertionError("no primary has some of the partitions and some of the shards")

    def close(self) -> None:
        for one in self.schedulers:
            one.listener.close()
        self.store.disconnect()


@pytest.fixture
def placing(replicated: EmbeddedCluster) -> Iterator[Placing]:
    placing = Placing(replicated)
    yield placing
    placing.close()


@pytest.fixture
def stopped() -> Iterator[Callable[[EmbeddedServer], None]]:
    """Return a function that stops a server until the end of the test."""
    pids: list[int] = []

    def stop(server: EmbeddedServer) -> None:
        pids.append(server.process.pid)
        os.kill(server.process.pid, signal.SIGSTOP)

    yield stop
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def go_on(server: EmbeddedServer) -> None:
    os.kill(server.process.pid, signal.SIGCONT)


def test_partitions_and_shards_of_other_primaries_go_on_and_those_of_the_lost_primary_return(
    placing: Placing, stopped: Callable[[EmbeddedServer], None]
) -> None:
    server, parts, shards = placing.victim()
    placing.turn_until(placing.holds(placing.submit(10, set(SHARDS))))
    replica = placing.replica_of(server)
    stopped(replica)  # nobody takes over before the test says so
    os.kill(server.process.pid, signal.SIGKILL)
    ended(server.process)
    placing.longest_s = 0.0
    placing.turn_until(placing.holds(placing.submit(10, set(SHARDS) - shards)))
    print(f"the longest turn while one of three primaries was away: {placing.longest_s:.3f} s")
    go_on(replica)
    placing.wait_for(parts)
    placing.turn_until(placing.holds(placing.submit(10, shards)))
    more = list[str]()

    def used_again() -> bool:
        more.extend(placing.submit(1, set(SHARDS)))
        return parts <= {place.partition for place in placing.places(more)}

    placing.turn_until(used_again)
    placing.turn_until(placing.holds(more))
    placing.end()


def test_claims_and_takes_whose_primary_hangs_are_settled_and_no_task_has_two_starts(
    placing: Placing, stopped: Callable[[EmbeddedServer], None]
) -> None:
    server, parts, _ = placing.victim()
    ids = placing.submit(60, set(SHARDS))
    placing.turn_until(lambda: any(one.core.in_flight for one in placing.schedulers))
    stopped(placing.replica_of(server))
    stopped(server)
    placing.turn_until(lambda: min(one.core.counters.given_back for one in placing.schedulers) > 0)
    go_on(server)  # what was sent before is executed now
    placing.wait_for(parts)
    started: Counter[str] = Counter()

    def all_started() -> bool:
        started.update(placing.play_agents())
        return len(started) == len(ids)

    placing.turn_until(all_started)
    assert set(started.values()) == {1}
    placing.end()
