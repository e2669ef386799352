"""The view: a scheduler's own, slightly stale copy of all partitions.

The view also has the facts that follow from all nodes together.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType

import numpy as np

from ...model.near import near_of, settled
from ...model.needs import Resources
from ...model.node import Notice
from ...model.views import AGES_TOLD, VIEW_AGES
from ...placement.facts import NodeFacts
from ...placement.now import LEAVES_NOW
from ...placement.preferences.preference import ClusterNow, fifths, find_scarce, parts_in_use
from ...placement.reasons import (
    MAX_NAMED,
    NAMES_UNREAD,
    NO_NAME,
    NO_NODE,
    explain_fitting,
    explain_none,
)
from ...placement.strategy import SHARPNESS, Ints
from .offers import DistinctOffers, Knowers, share_judgements
from .partition import PartitionCopy, Reservation
from .reservations import Bar
from .run_times import RunTimesCopy
from .warm_sets import WarmSets


class View:
    """The copies of all partitions.

    A node's quality is its score among all nodes, in standard deviations from the mean.

    known: by digest, the task names it stands for.
    cluster: what preferences read of all nodes together, but for warm sets and run times.
    notices: by node, when it leaves.
    run_times: of the names whose tasks prefer fast nodes.
    """

    def __init__(self, partitions: int, sharpness: float = SHARPNESS) -> None:
        self.sharpness = sharpness
        self.partitions = [PartitionCopy(number) for number in range(partitions)]
        self.known: dict[str, Collection[str]] = {}
        self._knowers: dict[str, Knowers] = {}
        self._offers: dict[tuple[str, str], tuple[str, Resources]] = {}
        self._digests: frozenset[str] = frozenset()
        self.run_times = RunTimesCopy(self.partitions)
        self.cluster = ClusterNow()
        self.warm_sets = WarmSets()
        self._alive: set[str] = set()
        self.notices: dict[str, Notice] = {}
        self._distinct = DistinctOffers([])

    def set_names(self, digest: str, names: Collection[str]) -> None:
        """Store the task names that a digest stands for; they never change."""
        self.known[digest] = names

    def unread(self) -> set[str]:
        """Return the digests whose names are not known yet: nothing is placed on their nodes."""
        return {
            digest for p in self.partitions for digest in p.offers.digests if digest
        } - self.known.keys()

    def knowers(self, name: str) -> Knowers:
        """Return the digests of the nodes that know a task's name; None if all nodes do. Cached."""
        if name not in self._knowers:
            digests = frozenset(
                digest for digest in self._digests if name in self.known.get(digest, ())
            )
            self._knowers[name] = None if digests == self._digests else digests
        return self._knowers[name]

    def settled(self, needs: str) -> str:
        """Return the needs of a task without a node that it must be near, if that node is away.

        A node is away if it is down or does not exist. While a partition has never been read, its
        nodes may be alive, so the needs stay as they are.
        """
        if any(p.read_s == float("-inf") for p in self.partitions):
            return needs
        return settled(needs, self._alive)

    @property
    def free_count(self) -> int:
        """Number of free slots, by this copy."""
        return sum(partition.free_count for partition in self.partitions)

    def totals(self) -> dict[str, int]:
        """Return what all open nodes have, in thousandths, `slots` too."""
        return _sum(partition.offers.totals for partition in self.partitions)

    def used(self) -> dict[str, int]:
        """Return what is not free on all open nodes, by this copy."""
        return _sum(partition.used() for partition in self.partitions)

    def used_by(self, label: str, reserved: Sequence[Reservation] = ()) -> Mapping[str, float]:
        """Return by value of a label the part of its open nodes' slots in use, 0.0 to 1.0.

        reserved: the reservations whose seats count as free.
        """
        return parts_in_use(
            label,
            (
                (p.offers.capacities, p.offers.open_nodes, _free_slots(p, reserved))
                for p in self.partitions
            ),
        )

    def cluster_for(
        self, needs: Resources, knowers: Knowers, prefer: str, reserved: Sequence[Reservation] = ()
    ) -> ClusterNow:
        """Return what preferences of tasks of a group read of all nodes together.

        reserved: the reservations that the tasks have: their seats count as free.
        """
        cluster = self.cluster
        if "warm" in prefer:
            warm_set = cache(lambda key: self.warm_sets.of(key, needs, knowers, self.partitions))
            cluster = replace(cluster, warm_set=warm_set)
        if "fast" in prefer:
            run_ms = cache(lambda name: self._run_ms(name, needs, knowers))
            cluster = replace(cluster, run_ms=run_ms)
        if "spread=" in prefer:
            cluster = replace(cluster, used_by=cache(partial(self.used_by, reserved=reserved)))
        return cluster

    def _run_ms(self, name: str, needs: Resources, knowers: Knowers) -> Mapping[str, float]:
        """Return the mean run time (ms) of a name by class of open nodes that fit these needs."""
        run_ms = self.run_times.of(name)
        if not run_ms:
            return run_ms
        classes = frozenset().union(
            *(p.offers.open_classes(needs, knowers) for p in self.partitions)
        )
        return {node_class: run_ms[node_class] for node_class in classes & run_ms.keys()}

    def rescale(self) -> None:
        """Compute the facts that depend on all nodes.

        The facts are the quality of each node, who knows which names, which nodes leave, and what
        preferences read of all nodes.
        """
        self._digests = frozenset(
            digest for p in self.partitions for digest in p.offers.digests if digest
        )
        self._knowers.clear()
        self.warm_sets.on_offers()
        self._find_offers()
        self._distinct = share_judgements([p.offers for p in self.partitions], self._distinct)
        self._alive = {
            node.name for p in self.partitions for node in p.nodes if node.state != "down"
        }
        self.notices = {
            node.name: node.notice for p in self.partitions for node in p.nodes if node.notice
        }
        weights = np.array([n.offer.slots for p in self.partitions for n in p.nodes], dtype=float)
        scores = np.array([n.score for p in self.partitions for n in p.nodes], dtype=float)
        self.cluster = ClusterNow(
            fifths(scores),
            find_scarce(p.offers.columns for p in self.partitions),
            self.used_by,
            leaving=frozenset(self.notices),
        )
        self.run_times.on_nodes()
        mean = 0.0
        spread = 1.0
        if len(scores):
            mean = float(np.average(scores, weights=weights))
            spread = float(np.sqrt(np.average((scores - mean) ** 2, weights=weights))) or 1.0
        for partition in self.partitions:
            quality = np.array(
                [(node.score - mean) / spread for node in partition.nodes], dtype=float
            )
            partition.set_quality(quality, self.sharpness)

    def ages_s(self, now_s: float) -> list[float]:
        """Return the age of each copy in seconds, without partitions that were never read."""
        return [now_s - p.read_s for p in self.partitions if p.read_s > float("-inf")]

    def age_figures(self, now_s: float) -> dict[str, str | float]:
        """Return the ages of the copies for people, in milliseconds.

        The figures are the mean age, the oldest age, and, once all partitions were read, each age.
        """
        ages = self.ages_s(now_s)
        ages_text = " ".join(f"{1e3 * age:.0f}" for age in ages[:AGES_TOLD])
        return {
            "view_age_ms": round(1e3 * sum(ages) / len(ages), 1) if ages else 0,
            "view_age_max_ms": round(1e3 * max(ages), 1) if ages else 0,
            VIEW_AGES: ages_text if len(ages) == len(self.partitions) else "",
        }

    def explain(
        self,
        needs: Resources,
        knowers: Knowers = None,
        barred_by: Mapping[str, Bar] = MappingProxyType({}),
    ) -> str:
        """Return the reason, in words, why a task of these needs finds no seat now.

        barred_by: by node where such tasks may not go, why.
        """
        if not any(partition.nodes for partition in self.partitions):
            return NO_NODE
        if (
            knowers is not None
            and not knowers
            and "" not in {digest for p in self.partitions for digest in p.offers.digests}
        ):
            return NAMES_UNREAD if self.unread() else NO_NAME
        shown = list[NodeFacts]()
        total = 0
        for partition in self.partitions:
            facts, count = fitting(partition, needs, knowers, MAX_NAMED)
            shown += facts
            total += count
        if total:
            shown.sort(key=lambda node: not node.open)
            facts_shown = [
                replace(node, **barred_by[node.name]._asdict()) if node.name in barred_by else node
                for node in shown[:MAX_NAMED]
            ]
            return explain_fitting(needs, facts_shown, total)
        if node_name := near_of(needs):
            nodes = (node for partition in self.partitions for node in partition.nodes)
            return explain_none(
                needs, {node.name: node.offer for node in nodes if node.name == node_name}
            )
        offers = self._offers.items()
        knows = {
            name: offer
            for (_, digest), (name, offer) in offers
            if knowers is None or digest in ("", *knowers)
        }
        return explain_none(needs, knows)

    def _find_offers(self) -> None:
        """Find the distinct offers, each with its digest and the first node that has the offer.

        Most nodes are equal, so there are few distinct offers.
        """
        self._offers = {}
        for partition in self.partitions:
            for node, digest in zip(partition.nodes, partition.offers.digests, strict=True):
                first_with_offer = self._offers.get((node.offer.text, digest))
                if first_with_offer is None or node.name < first_with_offer[0]:
                    self._offers[node.offer.text, digest] = node.name, node.offer


def _sum(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of amounts, by name."""
    total: dict[str, int] = {}
    for of_partition in amounts:
        for name, amount in of_partition.items():
            total[name] = total.get(name, 0) + amount
    return total


def _free_slots(partition: PartitionCopy, reserved: Iterable[Reservation]) -> Ints:
    """Return the number of free slots of each node.

    reserved: the reservations whose seats count as free.
    """
    reservations = [
        reservation
        for reservation in reserved
        if reservation and reservation.partition is partition
    ]
    if not reservations:
        return partition.free_slots()
    free = partition.free.copy()
    for reservation in reservations:
        free[reservation.bits] = True
    return partition.layout.count(free & partition.layout.is_slot)


def fitting(
    partition: PartitionCopy, needs: Resources, knowers: Knowers, most: int
) -> tuple[list[NodeFacts], int]:
    """Return facts of up to `most` nodes that fit when empty, and the number of all that fit.

    Open nodes come first.
    """
    fitting_nodes = np.flatnonzero(partition.offers.fitting(needs, knowers))
    if not len(fitting_nodes):
        return [], 0
    chosen = [*np.flatnonzero(partition.offers.open(needs, knowers))[:most], *fitting_nodes[:most]]
    indexes = [*dict.fromkeys(map(int, chosen))][:most]
    return [_facts(partition, index) for index in indexes], len(fitting_nodes)


def _facts(partition: PartitionCopy, index: int) -> NodeFacts:
    """Return the facts of the node with this index."""
    node = partition.nodes[index]
    free = int(np.count_nonzero(partition.free[node.first : node.first + node.offer.slots]))
    return NodeFacts(
        node.name,
        node.state,
        node.draining,
        node.offer,
        free,
        partition.amounts_left.of_node(index),
        score=node.score,
        leaves=LEAVES_NOW if node.notice and node.notice.over else "",
        has_notice=node.notice is not None,
    )
