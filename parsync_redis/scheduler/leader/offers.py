"""The duty to compare what `submit` judges by with the nodes: offers, names and answers.

The agent of a live node tells its offer again by itself, if the offer is missing or different. The
leader keeps the offer and the partition of a forgotten node for a while. Until then tasks for the
node are not refused, and a node that comes back goes on counting its incarnations in that
partition.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from ...model.apps import TASKS_LABEL, KnownTasks
from ...model.ids import readable
from ...store.store import Store
from ..process.guarded import run_guarded, unless_away
from ..process.lease_watch import AgeTracker

ANSWERS_PER_PASS: Final = 100
"""Maximum number of answers judged again in a pass, of those that are new to this leader."""


class OfferDuty:
    """The offers, names and answers of each shard.

    The offer of a forgotten node is forgotten after a lease if another node offers the same.
    Otherwise the offer is forgotten `forget_s` after this leader first saw that the node is not up.
    """

    def __init__(self, store: Store, partitions: int, lease_s: float, forget_s: float) -> None:
        self._store = store
        self._partitions = partitions
        self._lease_s = lease_s
        self._forget_s = forget_s
        self._idle = AgeTracker(lease_s / 2)
        self._sound: dict[int, tuple[object, set[bytes]]] = {}

    def work(self, now_s: float, nodes: Collection[str] | None, up: Collection[str] = ()) -> None:
        """Forget offers of nodes that no longer exist, damaged names, and wrong answers.

        nodes: the names of all nodes; None if they are not known.
        up: the names of those that are up.
        """
        offers: dict[str, bytes] = {}
        for shard in range(self._store.keys.shards):
            with unless_away(self._store):
                offers |= self._look(shard)
        ages = self._idle.look(now_s, () if nodes is None else offers.keys() - set(up))
        idle = {cast(str, name): age_s for name, age_s in ages.items()}
        spare = spare_offers(offers, idle)
        limits = {
            name: self._lease_s if name in spare else self._forget_s
            for name in idle.keys() - set(nodes or ())
        }
        with unless_away(self._store):
            self._forget(
                [
                    name
                    for name, limit_s in limits.items()
                    if idle[name] >= max(self._lease_s, limit_s)
                ]
            )

    def _forget(self, names: Sequence[str]) -> None:
        """Forget the partitions of these nodes, and then their offers; nodes that came back stay.

        The offers go last, because a later pass finds the nodes by them.
        """
        store = self._store
        commands = self._store.commands
        if not names:
            return
        registered = store.pipe(
            [("hkeys", store.keys.partition(number, "nodes")) for number in range(self._partitions)]
        )
        nodes = {readable(name) for partition_names in registered for name in partition_names}
        forgotten = [name for name in names if name not in nodes]
        calls = [commands.deal_node(name, self._partitions, "", 0, 0.0) for name in forgotten]
        homes = run_guarded(store, "forget", calls)
        without_home = [
            name for name, home in zip(forgotten, homes, strict=True) if home is not None
        ]
        run_guarded(store, "forget", [commands.offer(name, "") for name in without_home])

    def _look(self, shard: int) -> dict[str, bytes]:
        """Forget damaged names and wrong answers of a shard; return the offers there, by node."""
        keys = self._store.keys
        commands = self._store.commands
        kinds = ("shapes", "names", "feasible")
        reads: list[tuple[Any, ...]] = [("hgetall", keys.queue(kind, shard)) for kind in kinds]
        shapes, names, answers, apps = self._store.pipe(
            [*reads, ("zrevrange", keys.queue("apps", shard), 0, -1)]
        )
        wrong_digests = [*_wrong_digests(shapes, names, apps)]
        basis = (frozenset(shapes.items()), frozenset(names))
        before, sound_answers = self._sound.get(shard, (None, set()))
        sound_answers = (sound_answers if before == basis else set()) & answers.keys()
        new = [question for question in answers if question not in sound_answers][:ANSWERS_PER_PASS]
        self._sound[shard] = basis, sound_answers | set(new)
        if wrong_digests or new:
            self._store.run(
                commands.repair_offers(
                    shard, [*wrong_digests, *(("question", question) for question in new)]
                )
            )
        return {readable(name): offer for name, offer in shapes.items()}


def spare_offers(offers: Mapping[str, bytes], idle: Mapping[str, float]) -> set[str]:
    """Return the nodes whose offers are spare, because another node offers the same.

    Of equal offers one is not spare: that of a node that is up, else that of the node that was up
    last. idle: for how long each node has not been up, in seconds.
    """
    first: dict[bytes, str] = {}
    for name in sorted(offers, key=lambda name: (idle.get(name, -1.0), name)):
        first.setdefault(offers[name], name)
    return {name for name, offer in offers.items() if first[offer] != name}


def _wrong_digests(
    shapes: dict[bytes, bytes], names: dict[bytes, bytes], apps: list[bytes]
) -> Iterator[tuple[str, bytes]]:
    """Yield the digests to repair: those of another text, and those that no node offers."""
    label = f" {TASKS_LABEL}:".encode()
    used = {digest.split(b" ")[0] for offer in shapes.values() for digest in offer.split(label)[1:]}
    for digest in {*names, *apps}:
        text = names.get(digest)
        if text is not None and KnownTasks(readable(text)).digest.encode() != digest:
            yield "digest", digest
        elif digest not in used:
            yield "unused", digest
