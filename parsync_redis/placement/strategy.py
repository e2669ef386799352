"""Choose slots: weighted sampling by score, and the three strategies.

latency-first places in the partitions that were read last, freshest first; nobody else has seen
them since, so that claims hardly ever conflict. quality-first samples the whole view, better slots
more likely. adaptive is quality-first until the smoothed scheduling delay exceeds tau, then
latency-first, and back below 0.8 tau. Source: Feng et al., "Scaling Large Production Clusters with
Partitioned Synchronization", USENIX ATC 2021, section 5; the paper leaves open the smoothing
constant and the hysteresis, both are ours.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from ..model.options import Strategy

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHARPNESS: Final = 4.0
"""A slot whose score is one standard deviation better is e^4 times as likely to be sampled."""

MOST: Final = 100.0
"""Standard deviations below the mean beyond which all candidates are the same, so that no weight
leaves the floats.
"""

EMA_WEIGHT: Final = 0.1
HYSTERESIS: Final = 0.8


def pace(quality: Floats, sharpness: float = SHARPNESS) -> Floats:
    """Return the inverse weights e^(-sharpness * quality); quality: scores in standard deviations
    from the mean.
    """
    return np.asarray(np.exp(sharpness * np.minimum(-quality, MOST)))


def sample(rng: np.random.Generator, paces: Floats, count: int) -> Ints:
    """Sample indices of `count` candidates without replacement, each with the weight 1 / pace; best
    first.

    A race: each candidate arrives after an exponential time with its pace as the mean, and the
    first to arrive are that sampling (Efraimidis and Spirakis 2006).
    """
    arrivals = rng.standard_exponential(len(paces)) * paces
    if count < len(arrivals):
        first = np.argpartition(arrivals, count)[:count]
        return first[np.argsort(arrivals[first])]
    return np.argsort(arrivals)


class StrategySelector:
    """The strategy in force: the cluster's, with adaptive resolved by the scheduling delay,
    smoothed.

    `ema` is the weight of the newest delay in the smoothed one.
    """

    def __init__(self, strategy: Strategy, tau_s: float, ema: float = EMA_WEIGHT) -> None:
        self.strategy = strategy
        self.tau_s = tau_s
        self.ema = ema
        self.delay_s = 0.0
        self.late = False

    def observe(self, delays_s: Iterable[float]) -> None:
        """Take in the scheduling delays of placed tasks, in seconds, in their order."""
        smoothed = self.delay_s
        late = self.late
        for delay_s in delays_s:
            smoothed += self.ema * (delay_s - smoothed)
            late = smoothed > (self.tau_s * HYSTERESIS if late else self.tau_s)
        self.delay_s = smoothed
        self.late = late

    def resolve(self, asked: str) -> Strategy:
        """Return LATENCY or QUALITY for a task that asks for a strategy ('' is the scheduler's
        own).
        """
        strategy = Strategy(asked) if asked else self.strategy
        if strategy is Strategy.ADAPTIVE:
            return Strategy.LATENCY if self.late else Strategy.QUALITY
        return strategy
