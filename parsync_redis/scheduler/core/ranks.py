"""The ranks of a partition's nodes by the soft rules, kept while they are right."""

from collections.abc import Callable, Sequence

from ...model.needs import Resources
from ...placement.preferences.preference import Lasts, NodesNow, Preference
from ...placement.preferences.ranks import rank_nodes
from ...placement.strategy import Ints
from .offers import keep


class Ranks:
    """The ranks of the nodes of a partition, which are kept until they may have changed."""

    def __init__(self) -> None:
        self._of_offers: dict[tuple[str, str], Ints] = {}
        self._now: dict[tuple[str, ...], Ints] = {}

    def on_free(self) -> None:
        """Forget what depends on what the nodes have left."""
        self._now.clear()

    def on_offers(self) -> None:
        """Forget all ranks: the nodes have changed, or the facts of all nodes together."""
        self._of_offers.clear()
        self._now.clear()

    def of(
        self, rules: Sequence[Preference], needs: Resources, read: Callable[[], NodesNow]
    ) -> Ints:
        """Return the rank of each node for a task of these needs.

        read: returns the facts that the rules need.
        """
        key = (needs.text, *(rule.name for rule in rules))
        ranks = self._now.get(key)
        if ranks is None:
            nodes = read()
            ranks = rank_nodes(nodes, (self._buckets(rule, needs, nodes) for rule in rules))
            if all(rule.lasts is not Lasts.MOMENT for rule in rules):
                keep(self._now, key, ranks)
        return ranks

    def _buckets(self, rule: Preference, needs: Resources, nodes: NodesNow) -> Ints:
        """Return the buckets of a rule."""
        if rule.lasts is not Lasts.OFFERS:
            return rule.buckets(nodes, needs)
        key = needs.text if rule.reads_needs else "", rule.name
        buckets = self._of_offers.get(key)
        if buckets is None:
            buckets = rule.buckets(nodes, needs)
            keep(self._of_offers, key, buckets)
        return buckets
