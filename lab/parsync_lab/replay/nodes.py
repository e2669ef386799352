"""What the workers of a replay's nodes do: they register, and start and end tasks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from parsync_redis.errors import BrokenContract
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.model.place import Place
from parsync_redis.scheduler.core.core import Core
from parsync_redis.store.store import Store

SCORE: Final = 1.0
"""The score of each node: a trace does not say which are better."""

NODES_PER_CALL: Final = 100

T = TypeVar("T")


def batches(rows: Sequence[T], size: int = MAX_BATCH) -> Iterator[Sequence[T]]:
    """Yield the rows in batches, each as many as one call takes."""
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def register_nodes(
    store: Store, offers: Mapping[str, Resources], task: str, partitions: int
) -> None:
    """Register nodes that know one task, as their workers would.

    offers: by name of the node.
    """
    commands = store.commands
    tasks = KnownTasks.of({task: None})
    for batch in batches([*offers.items()], NODES_PER_CALL):
        batch_offers = {name: offer_with(offer, tasks) for name, offer in batch}
        deals = [
            commands.deal_node(
                name,
                partitions,
                " ".join(f"{k}:{v}" for k, v in offer.labels),
                offer.slots,
                SCORE,
            )
            for name, offer in batch
        ]
        dealt = dict(zip(batch_offers, store.run_all(deals), strict=True))
        store.run_all(
            [commands.offer(name, offer.text, tasks) for name, offer in batch_offers.items()]
        )
        store.run_all(
            [
                commands.register_node(dealt[name], name, 0, SCORE, offer.text)
                for name, offer in batch_offers.items()
            ]
        )


def start_tasks(store: Store, core: Core) -> Sequence[Place]:
    """Start the tasks of a scheduler's won claims, as their nodes' workers do."""
    places = [*core.won.unconfirmed]
    for batch in batches(places):
        words = {word for word, _ in store.run(store.commands.start(batch))}
        if words != {"ok"}:
            raise BrokenContract(f"a placed task was not started: {', '.join(sorted(words))}")
        inboxes = dict.fromkeys(store.keys.inbox(place.partition, place.node) for place in batch)
        store.pipe_each([("delete", inbox) for inbox in inboxes])
    core.won.confirmed(len(places))
    return places


def end_tasks(store: Store, places: Sequence[Place]) -> None:
    """End tasks that have started, and free their leases."""
    by_partition: defaultdict[int, list[Place]] = defaultdict(list)
    for place in places:
        by_partition[place.partition].append(place)
    for partition, places_there in by_partition.items():
        for batch in batches(places_there):
            store.run(store.commands.finish([(place, "succeeded", "") for place in batch]))
            store.run(store.commands.release(partition, batch))
