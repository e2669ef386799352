"""Compare what submit judges by with the nodes: offers of nodes that there are not, damaged names, wrong answers.

What a live node offers its agent tells again by itself, if it is missing or different.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final, cast

from ...model.apps import TASKS_LABEL, KnownTasks
from ...model.ids import readable
from ...store.store import Store
from ..age_tracker import AgeTracker
from .guarded import unless_away

JUDGED: Final = 100
"""So many answers are judged again in a pass, of those that are new to this leader."""


class OfferDuty:
    """The offers, names and answers of each shard. An offer without a node counts from when it was seen first."""

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store, self._lease_s = store, lease_s
        self._ghosts = AgeTracker(lease_s / 2)
        self._sound: dict[int, tuple[object, set[bytes]]] = {}

    def work(self, now_s: float, nodes: Collection[str] | None) -> None:
        """Forget what is wrong. nodes: the names of all nodes that there are; None if that is not known."""
        offered: set[str] = set()
        for shard in range(self._store.keys.shards):
            with unless_away(self._store):
                offered |= self._look(shard)
        ghosts = self._ghosts.look(now_s, () if nodes is None else offered - set(nodes))
        for name in [name for name, age_s in ghosts.items() if age_s >= self._lease_s]:
            self._store.run(self._store.commands.offer(cast(str, name), ""))

    def _look(self, shard: int) -> set[str]:
        """Forget damaged names and wrong answers of a shard; return the nodes that have an offer there."""
        keys, commands = self._store.keys, self._store.commands
        kinds = ("shapes", "names", "feasible")
        reads: list[tuple[Any, ...]] = [("hgetall", keys.queue(kind, shard)) for kind in kinds]
        shapes, names, answers, apps = self._store.pipe([*reads, ("zrevrange", keys.queue("apps", shard), 0, -1)])
        wrong = [*_wrong_digests(shapes, names, apps)]
        basis = (frozenset(shapes.items()), frozenset(names))
        before, known = self._sound.get(shard, (None, set()))
        known = (known if before == basis else set()) & answers.keys()
        new = [question for question in answers if question not in known][:JUDGED]
        self._sound[shard] = basis, known | set(new)
        if wrong or new:
            self._store.run(commands.repair_offers(shard, [*wrong, *(("question", question) for question in new)]))
        return {readable(name) for name in shapes}


def _wrong_digests(
    shapes: dict[bytes, bytes], names: dict[bytes, bytes], apps: list[bytes]
) -> Iterator[tuple[str, bytes]]:
    """Yield, for repair_offers, the digests whose text is another one, and those that no node seems to offer."""
    label = f" {TASKS_LABEL}:".encode()
    used = {digest.split(b" ")[0] for offer in shapes.values() for digest in offer.split(label)[1:]}
    for digest in {*names, *apps}:
        text = names.get(digest)
        if text is not None and KnownTasks(readable(text)).digest.encode() != digest:
            yield "digest", digest
        elif digest not in used:
            yield "unused", digest
