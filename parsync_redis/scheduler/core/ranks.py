"""The rank of each node by the soft rules (placement/preferences/), 0 the best.

The bucket of the first rule is the first digit of the rank, in base MAX_BUCKET + 1. So ten rules
fit in 63 bits.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ...model.explanation import Ranked
from ...model.needs import Resources
from ...placement.columns import Mask
from ...placement.preferences.preference import MAX_BUCKET, Lasts, NodesNow, Preference
from ...placement.strategy import Ints
from .offers import keep

_RADIX: Final = MAX_BUCKET + 1


def kept_back_from(rules: Sequence[Preference]) -> int:
    """Return the lowest rank of nodes that the first rule, ScarcePreference, keeps back."""
    return int(_RADIX ** (len(rules) - 1))


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
        self,
        rules: Sequence[Preference],
        needs: Resources,
        read_last: bool,
        read: Callable[[], NodesNow],
    ) -> Ints:
        """Return the rank of each node for a task of these needs.

        read_last: no partition was read after the partition.
        read: returns the facts that the rules need.
        """
        key = ("last" if read_last else "", needs.text, *(rule.name for rule in rules))
        ranks = self._now.get(key)
        if ranks is None:
            nodes = read()
            ranks = nodes.everyone()
            for rule in rules:
                ranks = ranks * _RADIX + self._buckets(rule, needs, nodes)
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


def compare(rules: Sequence[Preference], ranks: Ints, rank: int) -> tuple[Mask, tuple[Ranked, ...]]:
    """Return which nodes are as good as a chosen node, and how they compare by each rule.

    ranks: of all nodes with a seat.
    rank: of the chosen node, which is among them.
    """
    equal: Mask = np.full(len(ranks), True)
    ranked = list[Ranked]()
    for power, rule in zip(reversed(range(len(rules))), rules, strict=True):
        buckets = ranks // _RADIX**power % _RADIX
        bucket = rank // _RADIX**power % _RADIX
        best = int(buckets[equal].min())
        equal = equal & (buckets == bucket)
        ranked.append(Ranked(rule.name, bucket, best, int(equal.sum())))
    return equal, tuple(ranked)
