"""The leader mends a thousand lost nodes in some dozens of round trips: these hardly grow with the
nodes.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from parsync_redis.model.claim import Claim
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.task import Submission, Taken
from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.settings import DEFAULT_FORGET_S
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit
from tests.kit.servers import server_programs

LEASE_S = 10.0
PARTITIONS = 8
RUNS = 8


class CountingConnection(redis.Connection):
    """Counts round trips: a reply that is read after something was sent."""

    trips = 0
    _sent = False

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        self._sent = True
        super().send_packed_command(*args, **kwargs)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        CountingConnection.trips = CountingConnection.trips + self._sent
        self._sent = False
        return super().read_response(*args, **kwargs)


def lost_cluster(store: Store, nodes: int) -> None:
    """Let this many nodes run 8 tasks each, which nobody looks after."""
    drive = Driver(store)
    commands = store.commands
    ids = [f"t{i}" for i in range(nodes * RUNS)]
    for at in range(0, len(ids), MAX_BATCH):
        store.run(
            commands.submit([Submission(id, "work", b"{}") for id in ids[at : at + MAX_BATCH]])
        )
    taken: list[Taken] = []
    while len(taken) < len(ids):
        taken += drive.take_tasks(limit=MAX_BATCH)
    offer = [
        commands.register_node(i % PARTITIONS, f"n{i}", 0, 1.0, f"slots={RUNS}")
        for i in range(nodes)
    ]
    store.run_all(offer)
    firsts = [store.nodes(p) for p in range(PARTITIONS)]
    epochs = [int(drive.hash("meta", p)["epoch"]) for p in range(PARTITIONS)]
    claims: dict[int, list[Any]] = {}
    for at, task in enumerate(taken):
        p = at // RUNS % PARTITIONS
        name = f"n{at // RUNS}"
        node = firsts[p][name]
        claim = Claim(
            task.id, task.attempt, p, name, (at % RUNS,), node.inc, "", node.first, epochs[p]
        )
        claims.setdefault(p, []).append(claim)
    places = []
    for p, some in claims.items():
        for at in range(0, len(some), MAX_BATCH):
            part = some[at : at + MAX_BATCH]
            verdicts = store.run(commands.commit(p, part)).verdicts
            places += [
                claim.won(int(verdict.detail))
                for claim, verdict in zip(part, verdicts, strict=True)
            ]
    for at in range(0, len(places), MAX_BATCH):
        store.run(commands.start(places[at : at + MAX_BATCH]))


def mend(store: Store) -> int:
    """Do passes of a leader until it has judged the nodes; return the round trips of
    the last one.
    """
    now_s = 0.0
    janitor = Janitor(store, PARTITIONS, LEASE_S)
    for _ in range(3):
        janitor.work(lambda: now_s, {})  # noqa: B023 - it is called at once
        now_s += 4.9
    before = CountingConnection.trips
    janitor.work(lambda: now_s, {})
    return CountingConnection.trips - before


def count_states(store: Store, nodes: int) -> Counter[str]:
    return Counter(store.states([f"t{i}" for i in range(nodes * RUNS)]))


@pytest.fixture
def counted() -> Iterator[Store]:
    """Yield an empty cluster on a real server, whose round trips are counted."""
    with EmbeddedServer(next(iter(server_programs().values()))) as server:
        store = Store(redis.Redis.from_url(server.url, connection_class=CountingConnection), "many")
        yield store
        store.client.close()


def test_ten_times_the_nodes_take_hardly_more_round_trips(counted: Store) -> None:
    trips = {}
    for nodes in (100, 1000):
        lost_cluster(counted, nodes)
        trips[nodes] = mend(counted)
        assert count_states(counted, nodes) == {"pending": nodes * RUNS}
        assert not any(
            counted.read("hlen", counted.keys.partition(p, "slots")) for p in range(PARTITIONS)
        )
        assert {node.state for p in range(PARTITIONS) for node in counted.nodes(p).values()} == {
            "down"
        }
        assert not audit(counted)
        counted.client.flushall()
    assert trips[1000] <= trips[100] + 20, trips


def test_nodes_that_are_forgotten_or_whose_drains_end_take_hardly_more_round_trips(
    counted: Store,
) -> None:
    trips = {}
    for nodes in (20, 200):
        drive = Driver(counted)
        now_s = 0.0
        janitor = Janitor(counted, 1, LEASE_S)
        for i in range(nodes):
            drive.node(f"n{i}")
            counted.run(counted.commands.set_node(0, f"n{i}", "drain", note="deadline_s=1: a test"))
        janitor.work(lambda: now_s, {})  # noqa: B023 - it is called at once
        before = CountingConnection.trips
        now_s = 2.0
        janitor.work(lambda: now_s, {})  # noqa: B023
        trips["drains", nodes] = CountingConnection.trips - before
        assert {node.drain for node in counted.nodes(0).values()} == {2}
        for node in counted.nodes(0).values():
            drive.lose(node.name, node.inc)
        while now_s <= DEFAULT_FORGET_S + 3 and counted.nodes(0):
            now_s += DEFAULT_FORGET_S / 2
            before = CountingConnection.trips
            janitor.work(lambda: now_s, {})  # noqa: B023
        trips["forgotten", nodes] = CountingConnection.trips - before
        assert not counted.nodes(0)
        counted.client.flushall()
    for what in ("drains", "forgotten"):
        assert trips[what, 200] <= trips[what, 20] + 5, trips


def test_a_damaged_lease_of_one_lost_node_holds_up_no_other(counted: Store) -> None:
    lost_cluster(counted, 3 * PARTITIONS)
    counted.client.hset(counted.keys.partition(0, "slots"), "n0/0", "t0 1@1 p0 n0/1 inc=1 since=1")
    counted.client.hset(counted.keys.queue("tasks", counted.keys.shard_of("t9")), "t9", "damaged")
    mend(counted)
    down = {
        name
        for p in range(PARTITIONS)
        for name, node in counted.nodes(p).items()
        if node.state == "down"
    }
    assert len(down) >= 3 * PARTITIONS - 1
    assert count_states(counted, 3 * PARTITIONS)["pending"] >= 3 * PARTITIONS * RUNS - RUNS - 1
