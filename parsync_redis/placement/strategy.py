"""The choice of slots: weighted sampling by score, and the three strategies.

Latency-first places in the partitions that were read last, the freshest first. No other scheduler
has read those partitions since, so claims hardly ever conflict. Quality-first samples the whole
view; better slots are more likely. Adaptive is quality-first until the smoothed scheduling delay
exceeds tau. Then it is latency-first until the delay is below 0.8 tau.

Source: Feng et al., "Scaling Large Production Clusters with Partitioned Synchronization", USENIX
ATC 2021, section 5. The paper leaves the smoothing constant and the hysteresis open; both are ours.
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

MAX_DEVIATIONS: Final = 100.0
"""Nodes that are more standard deviations below the mean count as equal: else weights overflow."""

EMA_WEIGHT: Final = 0.1
"""The weight of the newest delay in the smoothed delay."""
HYSTERESIS: Final = 0.8
"""Latency-first ends when the smoothed delay is below this part of tau."""


def pace(quality: Floats, sharpness: float = SHARPNESS) -> Floats:
    """Return the inverse weights e^(-sharpness * quality).

    quality: scores in standard deviations from the mean.
    """
    return np.asarray(np.exp(sharpness * np.minimum(-quality, MAX_DEVIATIONS)))


def sample(rng: np.random.Generator, paces: Floats, count: int) -> Ints:
    """Return the indices of `count` candidates, the best first, drawn with the weights 1 / pace.

    The draw is without replacement, and works like a race: each candidate arrives after an
    exponential time whose mean is its pace, and the first to arrive are the sample (Efraimidis and
    Spirakis 2006).
    """
    arrivals = rng.standard_exponential(len(paces)) * paces
    if count < len(arrivals):
        first = np.argpartition(arrivals, count)[:count]
        return first[np.argsort(arrivals[first])]
    return np.argsort(arrivals)


class StrategySelector:
    """The strategy in force: adaptive becomes quality or latency by the smoothed scheduling delay.

    ema: the weight of the newest delay.
    late: the delay was too long at the last task.
    """

    def __init__(self, strategy: Strategy, tau_s: float, ema: float = EMA_WEIGHT) -> None:
        self.strategy = strategy
        self.tau_s = tau_s
        self.ema = ema
        self.delay_s = 0.0
        self.late = False

    def observe(self, delays_s: Iterable[float]) -> None:
        """Take in the scheduling delays of placed tasks, in the order in which they were placed."""
        smoothed = self.delay_s
        late = self.late
        for delay_s in delays_s:
            smoothed += self.ema * (delay_s - smoothed)
            late = smoothed > (self.tau_s * HYSTERESIS if late else self.tau_s)
        self.delay_s = smoothed
        self.late = late

    def resolve(self, wish: str) -> Strategy:
        """Return LATENCY or QUALITY.

        wish: the task's own strategy; '' leaves the choice to the scheduler.
        """
        strategy = Strategy(wish) if wish else self.strategy
        if strategy is Strategy.ADAPTIVE:
            return Strategy.LATENCY if self.late else Strategy.QUALITY
        return strategy
