"""The rank of nodes by the soft rules, 0 the best, and how nodes compare by each rule.

The bucket of the first rule is the first digit of the rank, in base MAX_BUCKET + 1. So ten rules
fit in 63 bits.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from ...model.explanation import Ranked
from ..columns import Mask
from ..strategy import Ints
from .preference import MAX_BUCKET, NodesNow, Preference

_RADIX: Final = MAX_BUCKET + 1


def kept_back_from(rules: Sequence[Preference]) -> int:
    """Return the lowest rank of nodes that the first rule, ScarcePreference, keeps back."""
    return int(_RADIX ** (len(rules) - 1))


def rank_nodes(nodes: NodesNow, buckets_by_rule: Iterable[Ints]) -> Ints:
    """Return the rank of each node, from its buckets by each rule in order."""
    ranks = nodes.everyone()
    for buckets in buckets_by_rule:
        ranks = ranks * _RADIX + buckets
    return ranks


def with_second(
    rules: Sequence[Preference], rank: int, second: Preference, bucket: int
) -> tuple[Sequence[Preference], int]:
    """Return the rules and a rank by them with a further rule, and its bucket, at second place."""
    power = _RADIX ** (len(rules) - 1)
    high, low = divmod(rank, power)
    return (rules[0], second, *rules[1:]), (high * _RADIX + bucket) * power + low


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
        ranked.append(Ranked(rule.name, bucket, best, int(equal.sum()), rule.sentence(bucket)))
    return equal, tuple(ranked)
