"""Rebuild what leases and `running` know of each other: either has the same text, so one can be
made of the other.

A lease is the authority on which task holds a slot. `running` is left before a lease is freed, so
an entry of `running` that was seen after its lease was missing has lost it. Nothing is atomic
across hash tags, so what was put back is looked at again. Every function raises what `Runner.run`
raises.
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

_TASK: Final = attrgetter("task")
_HELD: Final = ("sound", "placed", "running")


def runs_by_leases(store: Store, partitions: int, now_ms: int) -> dict[str, str]:
    """Return for each task that holds slots of a living node what `running` should have.

    That is its lease, and for slots that are no waiting seats a start: then its node may end it,
    and a node that has not begun it is told "yours" when it asks to start it.
    """
    found: dict[str, str] = {}
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
                begins = max(lease.place.slots) < node.offer.slots
                found[lease.place.task] = lease.place.text + (
                    f" started={now_ms}" if begins else ""
                )
    return found


def places_in(store: Store, partition: int) -> list[Place]:
    """Return the places of a partition that `running` has."""
    found: list[Place] = []
    for key in store.keys.queues("running"):
        for _, text in cast(Any, store.client).hscan_iter(key, count=MAX_BATCH):
            place, _ = read_run(readable(text))
            if place is not None and place.partition == partition:
                found.append(place)
    return found


def put_back_leases(
    store: Store, places: Sequence[Place], runs: Mapping[str, str]
) -> tuple[list[Place], list[Place]]:
    """Put back the lost leases of these places; return those that have theirs now, and those that
    cannot have it.

    runs: what `runs_by_leases` returns. A task that another lease names is at that place instead.
    """
    lost: dict[int, list[Place]] = {}
    for place in _still_there(store, places):
        other = runs.get(place.task, "")
        run = other if place_text(other) != place.text else ""
        if repair_task(store, place.task, run=run) in _HELD and not run:
            lost.setdefault(place.partition, []).append(place)
    back: list[Place] = []
    gone: list[Place] = []
    for p, places in lost.items():
        for some in _batches(places):
            words = _restore(store, p, some)
            for place, word in zip(some, words, strict=True):
                (back if word in ("back", "yours") else gone).append(place)
            held = [place for place, word in zip(some, words, strict=True) if word == "back"]
            kept = {place.text for place in _still_there(store, held)}
            store.run(
                store.commands.release(p, [place for place in held if place.text not in kept])
            )
    return back, gone


def _batches(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    return (places[at : at + MAX_BATCH] for at in range(0, len(places), MAX_BATCH))


def _restore(store: Store, p: int, places: Sequence[Place]) -> list[str]:
    """Write these leases where nothing else is, and where only a lease of no task is; return the
    script's words.
    """
    words = store.run(store.commands.restore(p, places))
    if _free_dead(
        store, p, [place for place, word in zip(places, words, strict=True) if word == "other"]
    ):
        words = store.run(store.commands.restore(p, places))
    return words


def _free_dead(store: Store, p: int, places: Sequence[Place]) -> bool:
    """Free leases at the seats of these places whose attempt its task does not have; return whether
    there were any.

    A task has an attempt before the attempt has a lease, and never again once it has left it: such
    a lease is damage.
    """
    reads = [
        ("hmget", store.keys.partition(p, "slots"), [f"{at.node}/{n}" for n in at.slots])
        for at in places
    ]
    found: dict[str, Place] = {}
    for text in {text for texts in store.pipe(reads) for text in texts if text} if reads else ():
        with suppress(ValueError):
            found[readable(text)] = Place.of(readable(text))
    records = {
        record.id: record for record in store.records([place.task for place in found.values()])
    }
    dead = [place for place in found.values() if records[place.task].attempt != place.attempt]
    store.run_all([store.commands.release(p, some) for some in _batches(dead)])
    return bool(dead)


def _still_there(store: Store, places: Iterable[Place]) -> list[Place]:
    """Return those of these places that `running` has at this moment."""
    groups = store.keys.by_shard(list(places), _TASK)
    reads = [
        ("hmget", store.keys.queue("running", shard), [place.task for place in some])
        for shard, some in groups
    ]
    found: list[Place] = []
    for (_, some), texts in zip(groups, store.pipe(reads) if reads else [], strict=True):
        found += [
            p
            for p, text in zip(some, texts, strict=True)
            if text and place_text(readable(text)) == p.text
        ]
    return found


def now_ms(store: Store) -> int:
    """Return the server's time."""
    seconds, micros = cast(Any, store.read("time"))
    return int(seconds) * 1000 + int(micros) // 1000
