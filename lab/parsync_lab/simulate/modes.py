"""The modes of a scheduler's core: which partitions it reads at a tick, and in which order."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from parsync_redis.model.options import ONE_SLOT, Strategy
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.freshness import ORDERS, PartitionOrder, TurnRule, partitioned
from parsync_redis.scheduler.core.partition import PartitionCopy

from .parameters import Parameters, SimStrategy, Sync


def whole_state(ordinal: int, members: int, tick: int, partitions: int) -> range:
    """Return all partitions once a gap, each scheduler at its own tick: StateSync, as in Omega."""
    return range(partitions) if (ordinal + tick) % members == 0 else range(0)


def all_the_same(ordinal: int, members: int, tick: int, partitions: int) -> range:
    """Return the same partitions for all schedulers at a tick."""
    return range(tick % members, partitions, members)


def best_partition(partitions: Sequence[PartitionCopy]) -> Sequence[Sequence[PartitionCopy]]:
    """Return the partitions in order of the mean score of their free slots, the best first."""

    def mean(partition: PartitionCopy) -> float:
        return float(partition.quality[partition.seats(ONE_SLOT).nodes].mean())

    return [[partition] for partition in sorted(partitions, key=mean, reverse=True)]


TURNS_OF_SYNC: Final[Mapping[Sync, TurnRule]] = {
    Sync.PARSYNC: partitioned,
    Sync.STATE: whole_state,
    Sync.SAME: all_the_same,
}
_BEST_PARTITION: Final[Mapping[Strategy, PartitionOrder]] = {
    **ORDERS,
    Strategy.QUALITY: best_partition,
}


def make_core(name: str, parameters: Parameters, rng: np.random.Generator) -> Core:
    """Make the product's core in the mode of the parameters."""
    by_partition = parameters.strategy is SimStrategy.QUALITY_PARTITION
    strategy = Strategy.QUALITY if by_partition else Strategy(parameters.strategy)
    return Core(
        name,
        parameters.partitions,
        strategy,
        parameters.tau_s,
        rng,
        parameters.ema,
        parameters.sharpness,
        TURNS_OF_SYNC[parameters.sync],
        _BEST_PARTITION if by_partition else ORDERS,
        asks=False,
    )
