"""A primary dies while a worker runs tasks of all shards: the tasks of the other shards go on at once."""

import os
import signal
from collections.abc import Callable

from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Lease
from parsync_redis.model.place import Place
from parsync_redis.worker.isolation.machine import Isolation
from parsync_redis.worker.node.node import NodeSpec
from parsync_redis.worker.node.node_state import AgentState
from parsync_redis.worker.node.reconciler import Reconciler
from parsync_redis.worker.node.reporter import Reporter
from parsync_redis.worker.node.run_starter import Starter
from tests.kit.waiting import ended, joined, until
from tests.system.redis_cluster.test_schedulers_away import (
    PARTITIONS,
    SHARDS,
    SLOTS,
    Placing,
    go_on,
    placing,
    stopped,
)
from tests.system.run.test_inbox import NoWorker

__all__ = ["placing", "stopped"]


def pairs_on_one_node(
    placing: Placing, parts: set[int], shards: set[int]
) -> tuple[list[Place], list[Place]]:
    """Return places on a node that lives on, two of tasks whose shards' primary will die, and two
    of others.
    """
    by_node: dict[str, tuple[list[Place], list[Place]]] = {}
    for place in placing.places():
        if place.partition not in parts:
            dying = placing.store.keys.shard_of(place.task) in shards
            by_node.setdefault(place.node, ([], []))[0 if dying else 1].append(place)
    ours, theirs = next(both for both in by_node.values() if min(map(len, both)) >= 2)
    return ours[:2], theirs[:2]


def test_outcomes_and_starts_of_other_shards_do_not_wait_for_a_primary_that_is_away(
    placing: Placing, stopped: Callable[..., None]
) -> None:
    server, parts, shards = placing.victim()
    placing.turn_until(placing.holds(placing.submit(8, set(SHARDS))))
    ours, theirs = pairs_on_one_node(placing, parts, shards)
    store = placing.store
    place = theirs[0]
    node = AgentState(NodeSpec(place.node, Resources.of(SLOTS), 1.0), Isolation())
    node.partition = place.partition
    node.inc = place.inc
    reporter = Reporter(store, node.runs)
    starter = Starter(store, node, reporter)
    started = [run for run, _ in starter.answer([ours[0], theirs[0]])]
    assert len(started) == 2
    replica = placing.replica_of(server)
    stopped(replica)  # nobody takes over before the test says so
    os.kill(server.process.pid, signal.SIGKILL)
    ended(server.process)
    reporter.start()
    try:
        for run in sorted(started, key=lambda run: run.place != ours[0]):
            reporter.ended(run, "succeeded")

        def freed(place: Place) -> bool:
            return place.text not in {lease.place.text for lease in leases(placing, place)}

        until(lambda: freed(theirs[0]))
        assert store.states([theirs[0].task]) == ["succeeded"]
        assert not freed(ours[0]), "its outcome is not known"
        assert [run.place for run, _ in starter.answer([ours[1], theirs[1]])] == [theirs[1]]
        go_on(replica)
        until(lambda: freed(ours[0]))
        until(
            lambda: (
                not isinstance(
                    store.run_each([store.commands.read_tasks([ours[0].task])])[0], Exception
                )
            )
        )
        assert store.states([ours[0].task]) == ["succeeded"]
        assert [run.place for run, _ in starter.answer([ours[1]])] == [ours[1]], (
            "its doorbell rings again"
        )
    finally:
        reporter.close()
        joined(reporter)


def test_a_node_registers_while_a_primary_is_away_and_its_shards_hear_of_it_later(
    placing: Placing, stopped: Callable[..., None]
) -> None:
    server, parts, shards = placing.victim()
    store = placing.store
    keys = placing.store.keys
    partition = min(set(PARTITIONS) - parts)
    known = KnownTasks("\nwork \n")
    node = AgentState(NodeSpec("late", offer_with(Resources.of(2), known), 1.0, known), Isolation())
    replica = placing.replica_of(server)
    stopped(replica)  # nobody takes over before the test says so
    os.kill(server.process.pid, signal.SIGKILL)
    ended(server.process)
    node.spec.tell(store)
    node.partition = partition
    node.inc, _ = store.run(
        store.commands.register_node(partition, "late", 0, 1.0, node.spec.offer.text)
    )

    def told() -> set[int]:
        replies = store.pipe_each(
            [("hget", keys.queue("shapes", shard), "late") for shard in SHARDS]
        )
        return {
            shard for shard, reply in enumerate(replies) if reply == node.spec.offer.text.encode()
        }

    assert told() == set(SHARDS) - shards
    reconciler = Reconciler(node, NoWorker())
    reconciler.reconcile(store)
    go_on(replica)

    def all_know() -> bool:
        reconciler.reconcile(store)
        return told() == set(SHARDS)

    until(all_know)
    store.run(store.commands.offer("late", ""))


def test_leases_of_an_absent_shard_are_kept_and_other_leases_are_given_back(
    placing: Placing, stopped: Callable[..., None]
) -> None:
    server, parts, shards = placing.victim()
    placing.turn_until(placing.holds(placing.submit(8, set(SHARDS))))
    ours, theirs = pairs_on_one_node(placing, parts, shards)
    store = placing.store
    place = theirs[0]
    node = AgentState(NodeSpec(place.node, Resources.of(SLOTS), 1.0), Isolation())
    node.partition = place.partition
    node.inc = place.inc
    replica = placing.replica_of(server)
    stopped(replica)
    os.kill(server.process.pid, signal.SIGKILL)
    ended(server.process)
    Reconciler(node, NoWorker()).give_back_all(store)
    left = {lease.place.text for lease in leases(placing, place)}
    assert left, "a task keeps its slot while its shard cannot be told"
    assert {store.keys.shard_of(text.split()[0]) for text in left} <= shards
    assert {place.text for place in ours} <= left
    assert not {place.text for place in theirs} & left
    go_on(replica)

    def gone() -> bool:
        Reconciler(node, NoWorker()).give_back_all(store)
        return not leases(placing, place)

    until(gone)


def leases(placing: Placing, place: Place) -> list[Lease]:
    """Return the leases of a node."""
    return placing.store.leases(place.partition, [placing.store.nodes(place.partition)[place.node]])
