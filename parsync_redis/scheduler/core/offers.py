"""The offers of a partition's nodes: which nodes fit a task, and which take new tasks."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from ...model.amount import THOUSANDTHS
from ...model.apps import TASKS_LABEL, digest_of
from ...model.near import near_of
from ...model.needs import Resources
from ...model.node import Node
from ...model.options import ONE_SLOT
from ...placement.columns import Columns, Mask
from ...placement.fits import fitting
from ...placement.preferences.ring import Hashes, hashes_of
from ...placement.rules import PLACEMENT_RULES
from ...placement.strategy import Floats, Ints
from .free_amounts import AmountsLeft, AmountsReader

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Knowers = frozenset[str] | None
"""The digests (model/apps.py) of the nodes that know a task's name; None if all nodes do."""

MAX_CACHED: Final = 256
"""Maximum number of answers in a cache of a partition."""

MAX_RANKED: Final = 1024
"""Maximum number of answers in a cache of ranks or rings: as many keys of `warm` may be in use.

An answer has 8 bytes for each node: 80 MB for 10,000 nodes in a full cache.
"""


def keep(cache: dict[K, V], key: K, value: V, most: int = MAX_CACHED) -> None:
    """Add an answer to a cache; a cache of `most` answers is emptied first."""
    if len(cache) >= most:
        cache.clear()
    cache[key] = value


MAX_DISTINCT: Final = 500
"""Up to so many different offers are judged once for all partitions."""


class DistinctOffers:
    """The different offers of the nodes of all partitions.

    Most nodes are equal, so the hard rules judge each different offer once.
    """

    def __init__(self, offers: Sequence[Resources]) -> None:
        self.texts = [offer.text for offer in offers]
        self._columns = Columns(offers)
        self._fitting: dict[str, Mask] = {}

    def fitting(self, needs: Resources) -> Mask:
        """Return which offers fit. Cached."""
        mask = self._fitting.get(needs.text)
        if mask is None:
            mask = fitting(self._columns, needs)
            keep(self._fitting, needs.text, mask)
        return mask


def share_judgements(all_offers: Iterable["Offers"], shared: DistinctOffers) -> DistinctOffers:
    """Let partitions share what the rules say of each different offer; return what they share.

    shared: what partitions shared until now; it stays if the offers have not changed. If there are
    more than MAX_DISTINCT different offers, each partition judges for itself.
    """
    different = {offer.text: offer for offers in all_offers for offer in offers.different}
    if len(different) > MAX_DISTINCT:
        for offers in all_offers:
            offers.set_shared(None)
        return shared
    if shared.texts != [*different]:
        shared = DistinctOffers([*different.values()])
    for offers in all_offers:
        offers.set_shared(shared)
    return shared


class Offers:
    """The offers and scores of some nodes, by the node's index.

    columns: the offers as arrays.
    capacities: the same, of what the nodes can give now.
    different: each different offer.
    open_nodes: which nodes take new tasks.
    choosy: some node turns away tasks that ask for one slot only.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.scores: Floats = np.array([node.score for node in nodes], dtype=np.float64)
        self.digests = [digest_of(node.offer) for node in nodes]
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self.open_nodes = np.array(
            [node.state == "up" and not node.draining for node in nodes], dtype=bool
        )
        self._looks_ahead = np.array([node.has_waiting_seats for node in nodes], dtype=bool)
        self.columns = Columns([node.offer for node in nodes])
        self.capacities = (
            Columns([node.given for node in nodes])
            if any(node.capacity for node in nodes)
            else self.columns
        )
        by_text = {node.offer.text: node.offer for node in nodes}
        self.different = [*by_text.values()]
        numbers = {text: number for number, text in enumerate(by_text)}
        self._different_of = np.array([numbers[node.offer.text] for node in nodes], dtype=np.int64)
        self._shared: tuple[DistinctOffers, Ints] | None = None
        self._known: dict[Knowers, Mask] = {}
        self._fitting: dict[tuple[str, Knowers], Mask] = {}
        self._fitting_open: dict[tuple[str, Knowers], Mask] = {}
        self._open_classes: dict[tuple[str, Knowers], frozenset[str]] = {}
        self._censuses: dict[tuple[str, Knowers], Sequence[int]] = {}
        self._amounts_reader = AmountsReader(self.columns, self._index)
        self.choosy = not fitting(self.columns, ONE_SLOT).all()

    def index_of(self, name: str) -> int:
        """Return the index of the node of this name; -1 if it is not here."""
        return self._index.get(name, -1)

    def _knowing(self, knowers: Knowers) -> Mask:
        """Return which nodes know a task's name. Cached.

        A node that does not say which tasks it knows counts as knowing all.
        """
        mask = self._known.get(knowers)
        if mask is None:
            column = self.columns.labels.get(TASKS_LABEL)
            if knowers is None or column is None:
                mask = np.full(len(self.nodes), True)
            else:
                mask = column.judge(lambda digests: not digests or digests[0] in knowers)
            self._known[knowers] = mask
        return mask

    def fitting(self, needs: Resources, knowers: Knowers) -> Mask:
        """Return which nodes fit when they are empty. Cached."""
        mask = self._fitting.get((needs.text, knowers))
        if mask is None:
            mask = self._near(self._knowing(knowers) & self._judge(needs), needs)
            keep(self._fitting, (needs.text, knowers), mask)
        return mask

    def set_shared(self, shared: DistinctOffers | None) -> None:
        """Read what the rules say of an offer from `shared`, which has all offers of these nodes.

        None: judge the offers here.
        """
        self._shared = None
        if shared is not None:
            numbers = {text: number for number, text in enumerate(shared.texts)}
            of_different = [numbers[offer.text] for offer in self.different]
            self._shared = shared, np.array(of_different, dtype=np.int64)[self._different_of]

    def _judge(self, needs: Resources) -> Mask:
        """Return which nodes fit by the hard rules when they are empty."""
        if self._shared is None:
            return fitting(self.columns, needs)
        shared, numbers = self._shared
        mask: Mask = shared.fitting(needs)[numbers]
        return mask

    def _near(self, mask: Mask, needs: Resources) -> Mask:
        """Return the mask, with only one node left if the needs name a node (the option `near`)."""
        if node := near_of(needs):
            mask = mask & np.array([candidate.name == node for candidate in self.nodes], dtype=bool)
        return mask

    def census(self, needs: Resources, knowers: Knowers) -> Sequence[int]:
        """Return how many nodes remain after each test, beginning with all nodes. Cached.

        The tests are: name, near, each rule in order, and state.
        """
        counts = self._censuses.get((needs.text, knowers))
        if counts is None:
            masks = [self.columns.everyone(), self._knowing(knowers)]
            masks.append(self._near(masks[-1], needs))
            for rule in PLACEMENT_RULES:
                masks.append(masks[-1] & rule.mask(self.columns, needs))
            counts = [int(mask.sum()) for mask in (*masks, masks[-1] & self.open_nodes)]
            keep(self._censuses, (needs.text, knowers), counts)
        return counts

    def open(self, needs: Resources, knowers: Knowers) -> Mask:
        """Return which nodes fit when they are empty, and take new tasks. Cached."""
        mask = self._fitting_open.get((needs.text, knowers))
        if mask is None:
            mask = self.fitting(needs, knowers) & self.open_nodes
            keep(self._fitting_open, (needs.text, knowers), mask)
        return mask

    def open_classes(self, needs: Resources, knowers: Knowers) -> frozenset[str]:
        """Return the classes of the nodes that `open` returns. Cached."""
        classes = self._open_classes.get((needs.text, knowers))
        if classes is None:
            values, codes = self.columns.classes
            indexes = np.unique(codes[self.open(needs, knowers)])
            classes = frozenset(values[index] for index in indexes.tolist())
            keep(self._open_classes, (needs.text, knowers), classes)
        return classes

    def without(self, names: Iterable[str]) -> Mask | None:
        """Return which nodes have none of these names; None if all."""
        indexes = [self._index[name] for name in names if name in self._index]
        if not indexes:
            return None
        mask = self.columns.everyone()
        mask[indexes] = False
        return mask

    def looks_ahead(self, needs: Resources, knowers: Knowers) -> bool:
        """Return True if a node with waiting seats fits when it is empty."""
        return bool((self.fitting(needs, knowers) & self._looks_ahead).any())

    @cached_property
    def hashes(self) -> Hashes:
        """The hashes of the names of the nodes, for rings."""
        return hashes_of(node.name for node in self.nodes)

    @cached_property
    def totals(self) -> Mapping[str, int]:
        """The slots and amounts that the open nodes can give now, in thousandths, by resource.

        Devices count to their kinds.
        """
        slots = int(self.capacities.slots[self.open_nodes].sum())
        return {"slots": slots * THOUSANDTHS, **self._sums(self.capacities.amounts)}

    def used(self, free: Ints, amounts_left: AmountsLeft) -> Mapping[str, int]:
        """Return what is not free on the open nodes, as `totals`. free: free slots of each node.

        A change of a capacity keeps the epoch, so a node may have more free than its record says.
        """
        slots = np.maximum(self.capacities.slots - free, 0)
        free_amounts = amounts_left.amounts
        amounts = {
            name: np.maximum(most - free_amounts.get(name, 0), 0)
            for name, most in self.capacities.amounts.items()
        }
        return {"slots": int(slots[self.open_nodes].sum()) * THOUSANDTHS, **self._sums(amounts)}

    def _sums(self, amounts: Mapping[str, Ints]) -> dict[str, int]:
        """Return the sums of amounts over the open nodes, devices by their kinds."""
        sums: dict[str, int] = {}
        for name, of_nodes in amounts.items():
            resource = name.partition("@")[0]
            sums[resource] = sums.get(resource, 0) + int(of_nodes[self.open_nodes].sum())
        return sums

    def amounts_left(self, texts: Mapping[str, str], whole: bool = True) -> AmountsLeft:
        """Return what each node has left, by the texts of a snapshot. whole: as in `Snapshot`."""
        return self._amounts_reader.read(texts, whole)
