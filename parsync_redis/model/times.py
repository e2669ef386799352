"""Learnt run times: how long the tasks of each name run, as counts of quarter octaves."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import log2
from random import Random
from typing import Final

from .needs import Resources, amounts_text, labels_of
from .octaves import OCTAVES_PATTERN, no_octaves, octave_of, octaves_text, read_octaves

_PER_OCTAVE: Final = 4
_LEAST_MS: Final = 0.125
_BIN_TEXT: Final = r"[0-9]{1,3}:[0-9]{1,15}"
_RUN_TIMES_TEXT: Final = re.compile(
    r"([0-9]{1,15}) ([0-9]{1,15}(?:\.[0-9]{1,3})?) "
    rf"({_BIN_TEXT}(?:,{_BIN_TEXT})*)(?: ({OCTAVES_PATTERN}))?"
)
HALVE_ABOVE: Final = 1000
"""The number of runs at which a name's counts are halved, so that recent runs weigh more."""
P95: Final = 0.95
MIN_LEARNT_RUNS: Final = 10
"""Runs of a name, at least, before people read how long a run may take."""


def bin_of(ms: float) -> int:
    """Return the quarter octave of a run time, from 0."""
    return max(0, int(_PER_OCTAVE * log2(max(ms, _LEAST_MS) / _LEAST_MS)))


def end_of(number: float) -> float:
    """Return the longest run time (ms) of a quarter octave.

    number: a fraction gives a run time within the following quarter octave.
    """
    return float(_LEAST_MS * 2 ** ((number + 1) / _PER_OCTAVE))


@dataclass(slots=True)
class RunTimes:
    """The run times of one name.

    count and total_ms: of all runs; bins: of the latest, quarter octave -> runs.

    octaves: of all runs, by octave; for metrics, and not of single node classes.
    """

    count: int = 0
    total_ms: float = 0.0
    bins: Counter[int] = field(default_factory=Counter)
    octaves: list[int] = field(default_factory=no_octaves)

    def add(self, ms: float) -> None:
        """Learn a run."""
        self.count += 1
        self.total_ms += ms
        self.bins[bin_of(ms)] += 1
        self.octaves[octave_of(ms)] += 1
        if self.bins.total() > HALVE_ABOVE:
            self.bins = Counter(
                {number: runs // 2 for number, runs in self.bins.items() if runs > 1}
            )

    @property
    def mean_ms(self) -> float:
        """The mean of all runs."""
        return self.total_ms / self.count if self.count else 0.0

    @property
    def p95_ms(self) -> float:
        """Return the 95th percentile of the learnt runs (ms), rounded up; 0 without runs."""
        runs_above = P95 * self.bins.total()
        for number in sorted(self.bins):
            runs_above -= self.bins[number]
            if runs_above <= 0:
                return end_of(number)
        return 0.0

    def end_ms(self, since_ms: float, now_ms: float) -> int:
        """Return when a run is expected to end (server time, ms).

        since_ms: when the run got its slots. The expected run time is the mean of the learnt run
        times that exceed the run's time so far. A run that exceeds all of them is expected to take
        as long again.
        """
        ran_ms = now_ms - since_ms
        longer = {
            end_of(number): runs for number, runs in self.bins.items() if end_of(number) > ran_ms
        }
        if len(longer) == len(self.bins) and ran_ms < self.mean_ms:
            return int(since_ms + self.mean_ms)
        if not longer:
            return int(since_ms + 2 * ran_ms)
        return int(
            since_ms + sum(end * runs for end, runs in longer.items()) / sum(longer.values())
        )

    @property
    def text(self) -> str:
        """Return the field of `times`: COUNT TOTAL_MS BINS, then OCTAVES if there are any.

        TOTAL_MS has three decimals.
        """
        bins = ",".join(f"{number}:{runs}" for number, runs in sorted(self.bins.items()))
        return f"{self.count} {self.total_ms:.3f} {bins} {octaves_text(self.octaves)}".rstrip()

    @classmethod
    def of(cls, text: str) -> "RunTimes":
        """Read a field of `times`; raises ValueError."""
        if (match := _RUN_TIMES_TEXT.fullmatch(text)) is None:
            raise ValueError(f"not the times of a name: {text!r:.200}")
        pairs = [pair.split(":") for pair in match[3].split(",")]
        bins = Counter({int(number): int(runs) for number, runs in pairs})
        return cls(
            int(match[1]),
            float(match[2]),
            bins,
            read_octaves(match[4]) if match[4] else no_octaves(),
        )


class PossibleTimes:
    """Possible run times of a name, drawn from its learnt runs (a Bayesian bootstrap).

    Each object is one possibility. The next run is equally likely to fall into each gap between N
    learnt runs, below the shortest or above the longest. So the runs, and the gaps between them,
    get random weights. A run that is longer than all learnt runs has no known bound: it takes X
    times as long with probability 1/X.
    """

    def __init__(self, learnt: RunTimes, dice: Random) -> None:
        self._dice = dice
        place = dice.random()  # of a run in its quarter octave, which is not known
        self._runs_ms = [0.0]
        self._sums = [0.0]
        for number in sorted(learnt.bins):
            run_ms = end_of(number - 1 + place)
            self._add(run_ms, dice.expovariate(1.0))
            if learnt.bins[number] > 1:
                self._add(run_ms, dice.gammavariate(learnt.bins[number] - 1, 1.0))
        self._total = self._sums[-1] + dice.expovariate(1.0)

    def _add(self, run_ms: float, weight: float) -> None:
        self._runs_ms.append(run_ms)
        self._sums.append(self._sums[-1] + weight)

    def draw_ms(self, ran_ms: float = 0.0) -> float:
        """Draw how long a run takes in all that has taken `ran_ms` so far."""
        ended = _read_line(self._runs_ms, self._sums, max(0.0, ran_ms))
        drawn = ended + self._dice.random() * (self._total - ended)
        if drawn < self._sums[-1]:
            return _read_line(self._sums, self._runs_ms, drawn)
        return max(self._runs_ms[-1], ran_ms) / (1.0 - self._dice.random())


def _read_line(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return y at x on the line through some points; behind the last, the last y."""
    right = bisect_right(xs, x)
    if right == len(xs):
        return ys[-1]
    left_bin = right - 1
    return ys[left_bin] + (ys[right] - ys[left_bin]) * (x - xs[left_bin]) / (
        xs[right] - xs[left_bin]
    )


MIN_CLASS_RUNS: Final = 3
"""Runs of a name on a node class, at least, before tasks choose nodes by them."""

CLASS: Final = 128
"""Characters of a node class: longer ones are cut, so that some classes may count as one."""


PLAIN: Final = "-"
"""The class of nodes without amounts and labels."""


def class_of(offer: Resources) -> str:
    """Return the class of a node, 'gpu=2 gpu_model:a100': its amounts and labels.

    PLAIN is the class of nodes that have slots only. Tasks of a name are taken to run equally long
    on all nodes of a class.
    """
    labels = (f"{name}:{value}" for name, value in labels_of(offer).items())
    return " ".join(filter(None, (amounts_text(offer.amounts), *labels)))[:CLASS].rstrip() or PLAIN


class LearntTimes(dict[str, RunTimes]):
    """Run times by NAME, of all nodes, and by 'NAME CLASS'."""

    def of(self, name: str, offer: Resources) -> RunTimes | None:
        """Return the run times of a name on nodes of this offer's class, or else on all nodes."""
        return self.get(field_of(name, offer)) or self.get(name)

    def p95_ms(self, name: str, node_class: str) -> float | None:
        """Return the 95th percentile (ms) of a name's runs on a node class, or else on all nodes.

        None if no run is learnt.
        """
        times = self.get(field_of_class(name, node_class)) or self.get(name)
        return times.p95_ms if times else None

    def means_of(self, name: str, classes: Collection[str]) -> dict[str, float]:
        """Return the mean run time (ms) of a name on each of these node classes, as far as known.

        A class is known after MIN_CLASS_RUNS runs. Without two known classes there is nothing to
        compare, so nothing is returned.
        """
        means = dict[str, float]()
        for node_class in classes:
            times = self.get(field_of_class(name, node_class))
            if times is not None and times.count >= MIN_CLASS_RUNS:
                means[node_class] = max(times.mean_ms, _LEAST_MS)
        return means if len(means) > 1 else {}

    def enough_of(self, name: str, offer: Resources, runs: int) -> RunTimes | None:
        """Return the same as `of`, but None if fewer than `runs` runs are learnt."""
        fields = (field_of(name, offer), name)
        learnt = (times for field in fields if (times := self.get(field)) is not None)
        return next((times for times in learnt if times.bins.total() >= runs), None)


def field_of(name: str, offer: Resources) -> str:
    """Return the field of `times` of a name on the class of a node."""
    return field_of_class(name, class_of(offer))


def field_of_class(name: str, node_class: str) -> str:
    """Return the field of `times` of a name on a node class."""
    return f"{name} {node_class}"
