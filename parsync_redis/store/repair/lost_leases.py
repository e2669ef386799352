"""Rebuild leases from `running`, and `running` from leases: both have the same text.

A lease is the authority on which task holds a slot. A task leaves `running` before its lease is
freed. So an entry of `running` that was seen after its lease was missing has lost its lease.
Nothing is atomic across hash tags, so each restored lease is checked again. Every function raises
what `Runner.run` raises.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final, cast

from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.node import Lease
from ...model.place import Place
from ...model.record import place_text, read_run
from ..store import Store
from .repair import repair_task

_task_of: Final = attrgetter("task")
_SOUND_WORDS: Final = ("sound", "placed", "running")


def runs_by_leases(store: Store, partitions: int, now_ms: int) -> dict[str, str]:
    """Return, for each task that holds slots of a living node, what `running` should have.

    `running` should have the text of the task's lease, and a start unless the lease is at a waiting
    seat. With the start, the node may end the task, and a node that has not begun the task is
    answered "yours" when it asks to start the task.
    """
    runs: dict[str, str] = {}
    for p in range(partitions):
        nodes = store.nodes(p)
        rows = cast(Any, store.client).hscan_iter(store.keys.partition(p, "slots"), count=MAX_BATCH)
        for seat, text in rows:
            name, _, slot = readable(seat).rpartition("/")
            node = nodes.get(name)
            try:
                lease = Lease.of(name, int(slot), readable(text))
            except ValueError:
                continue
            if node is not None and node.state != "down" and lease.place.inc == node.inc:
                in_slots = max(lease.place.slots) < node.offer.slots
                started = f" started={now_ms}" if in_slots else ""
                runs[lease.place.task] = lease.place.text + started
    return runs


def places_in(store: Store, partition: int) -> list[Place]:
    """Return the places in a partition that `running` has."""
    places: list[Place] = []
    for key in store.keys.queues("running"):
        for _, text in cast(Any, store.client).hscan_iter(key, count=MAX_BATCH):
            place, _ = read_run(readable(text))
            if place is not None and place.partition == partition:
                places.append(place)
    return places


def put_back_leases(
    store: Store, places: Sequence[Place], runs: Mapping[str, str]
) -> tuple[list[Place], list[Place]]:
    """Put back the lost leases of these places.

    runs: what `runs_by_leases` returns; a task that another lease names is at that lease's place.
    Returns the places that have their leases now, and the places that cannot have them.
    """
    lost: dict[int, list[Place]] = {}
    for place in _still_there(store, places):
        leased_run = runs.get(place.task, "")
        run = leased_run if place_text(leased_run) != place.text else ""
        if repair_task(store, place.task, run=run) in _SOUND_WORDS and not run:
            lost.setdefault(place.partition, []).append(place)
    restored: list[Place] = []
    not_restored: list[Place] = []
    for p, places in lost.items():
        for batch in _batches(places):
            words = _restore(store, p, batch)
            for place, word in zip(batch, words, strict=True):
                (restored if word in ("back", "yours") else not_restored).append(place)
            written = [place for place, word in zip(batch, words, strict=True) if word == "back"]
            texts_in_running = {place.text for place in _still_there(store, written)}
            left_running = [place for place in written if place.text not in texts_in_running]
            store.run(store.commands.release(p, left_running))
    return restored, not_restored


def _batches(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    return (places[start : start + MAX_BATCH] for start in range(0, len(places), MAX_BATCH))


def _restore(store: Store, p: int, places: Sequence[Place]) -> list[str]:
    """Write the leases of these places; return the words of the script restore.

    A lease of no task is freed first. Any other lease stays.
    """
    words = store.run(store.commands.restore(p, places))
    occupied = [place for place, word in zip(places, words, strict=True) if word == "other"]
    if _free_dead(store, p, occupied):
        words = store.run(store.commands.restore(p, places))
    return words


def _free_dead(store: Store, p: int, places: Sequence[Place]) -> bool:
    """Free leases at the seats of these places whose task has another attempt.

    A task has an attempt before the attempt has a lease. After a task has left an attempt, the task
    never has that attempt again. So such a lease is damage. Returns whether a lease was freed.
    """
    reads = [
        ("hmget", store.keys.partition(p, "slots"), [f"{place.node}/{n}" for n in place.slots])
        for place in places
    ]
    replies = store.pipe(reads) if reads else []
    texts = {readable(text) for reply in replies for text in reply if text}
    leases: list[Place] = []
    for text in texts:
        with suppress(ValueError):
            leases.append(Place.of(text))
    records = store.records([lease.task for lease in leases])
    attempts = {record.id: record.attempt for record in records}
    dead = [lease for lease in leases if attempts[lease.task] != lease.attempt]
    store.run_all([store.commands.release(p, batch) for batch in _batches(dead)])
    return bool(dead)


def _still_there(store: Store, places: Iterable[Place]) -> list[Place]:
    """Return those of these places that `running` has at this moment."""
    groups = store.keys.by_shard(list(places), _task_of)
    reads = [
        ("hmget", store.keys.queue("running", shard), [place.task for place in shard_places])
        for shard, shard_places in groups
    ]
    running: list[Place] = []
    for (_, shard_places), texts in zip(groups, store.pipe(reads) if reads else [], strict=True):
        running += [
            p
            for p, text in zip(shard_places, texts, strict=True)
            if text and place_text(readable(text)) == p.text
        ]
    return running


def now_ms(store: Store) -> int:
    """Return the server's time in ms."""
    seconds, micros = cast(Any, store.read("time"))
    return int(seconds) * 1000 + int(micros) // 1000
