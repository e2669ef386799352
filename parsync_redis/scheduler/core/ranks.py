"""The ranks of a partition's nodes by the soft rules, kept while they are right."""

from collections.abc import Callable, Hashable, Sequence

from ...model.needs import Resources
from ...placement.preferences.preference import ClusterNow, Lasts, NodesNow, Preference
from ...placement.preferences.ranks import rank_nodes
from ...placement.strategy import Ints
from .offers import MAX_RANKED, keep


class Ranks:
    """The ranks of the nodes of a partition, which are kept until they may have changed."""

    def __init__(self) -> None:
        self._of_offers: dict[tuple[str, str], Ints] = {}
        # the ranks by rules that all last as long as the offers, and other ranks
        self._lasting: dict[tuple[Hashable, ...], Ints] = {}
        self._now: dict[tuple[Hashable, ...], Ints] = {}

    def on_free(self) -> None:
        """Forget what depends on what the nodes have left."""
        self._now.clear()

    def on_offers(self) -> None:
        """Forget all ranks: the nodes have changed, or the facts of all nodes together."""
        self._of_offers.clear()
        self._lasting.clear()
        self._now.clear()

    def of(
        self,
        rules: Sequence[Preference],
        needs: Resources,
        cluster: ClusterNow,
        read_last: bool,
        read: Callable[[], NodesNow],
    ) -> Ints:
        """Return the rank of each node for a task of these needs.

        cluster: the facts of all nodes together.
        read_last: no partition was read after the partition.
        read: returns the facts that the rules need.
        """
        states = ((rule.key, rule.state(cluster)) for rule in rules)
        key = ("last" if read_last else "", needs.text, *states)
        is_lasting = all(rule.lasts is Lasts.OFFERS for rule in rules)
        cache = self._lasting if is_lasting else self._now
        ranks = cache.get(key)
        if ranks is None:
            nodes = read()
            ranks = rank_nodes(nodes, (self._buckets(rule, needs, nodes) for rule in rules))
            if all(rule.lasts is not Lasts.MOMENT for rule in rules):
                keep(cache, key, ranks, MAX_RANKED)
        return ranks

    def _buckets(self, rule: Preference, needs: Resources, nodes: NodesNow) -> Ints:
        """Return the buckets of a rule."""
        if rule.lasts is not Lasts.OFFERS:
            return rule.buckets(nodes, needs)
        key = needs.text if rule.reads_needs else "", rule.key
        buckets = self._of_offers.get(key)
        if buckets is None:
            buckets = rule.buckets(nodes, needs)
            keep(self._of_offers, key, buckets, MAX_RANKED)
        return buckets
