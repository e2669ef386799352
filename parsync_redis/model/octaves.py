"""Histograms of durations, by powers of two: up to 1 ms, 2 ms, 4 ms, ... 70 minutes, and longer.

Counts only grow. Frequent task names have histograms of their own, all others share one.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, Self

OCTAVES: Final = 23
"""Octave n has durations over 2^(n-1) ms and up to 2^n ms.

Octave 0 has durations up to 1 ms, octave 23 all longer durations.
"""

BOUNDS_S: Final = tuple(2**octave / 1000 for octave in range(OCTAVES))
"""The longest duration of each octave but the last."""

_OCTAVE_COUNT: Final = r"[0-9]{1,3}:[0-9]{1,15}"
OCTAVES_PATTERN: Final = rf"{_OCTAVE_COUNT}(?:,{_OCTAVE_COUNT})*"
"""The pattern of octaves as text: OCTAVE:NUMBER,OCTAVE:NUMBER."""

_HISTOGRAM_TEXT: Final = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,3}})?) ({OCTAVES_PATTERN})")

OTHER_NAMES: Final = "other"
TOP_NAMES: Final = 20
"""The number of names with a histogram of their own: the names most used lately."""

MAX_COUNTED_NAMES: Final = 1000
"""The number of names whose uses are counted, to choose the most used."""

MAX_UNCOUNTED: Final = 1000
"""Durations that are kept per name before they are counted together; most are equal whole ms."""

CHOOSE_EVERY_S: Final = 60.0
"""The period at which `choose` is called."""


def octave_of(ms: float) -> int:
    """Return the octave of a duration."""
    return min(max(0, ceil(ms) - 1).bit_length(), OCTAVES)


def no_octaves() -> list[int]:
    """Return empty octaves."""
    return [0] * (OCTAVES + 1)


def octaves_text(octaves: Sequence[int]) -> str:
    """Return octaves as text without empty octaves; '' if all are empty."""
    return ",".join(f"{octave}:{number}" for octave, number in enumerate(octaves) if number)


def read_octaves(text: str) -> list[int]:
    """Read text that OCTAVES_PATTERN matches; unknown octaves count as the last one."""
    octaves = no_octaves()
    for pair in text.split(","):
        octave, _, number = pair.partition(":")
        octaves[min(int(octave), OCTAVES)] += int(number)
    return octaves


@dataclass(slots=True)
class TimeHistogram:
    """Durations by octave, and their sum."""

    total_ms: float = 0.0
    octaves: list[int] = field(default_factory=no_octaves)

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.octaves)

    def add(self, ms: float, times: int = 1) -> None:
        """Add a duration as often as `times` says."""
        self.total_ms += ms * times
        self.octaves[octave_of(ms)] += times

    def plus(self, added: "TimeHistogram") -> "TimeHistogram":
        """Return the sum of this histogram and `added`."""
        octaves = [
            count + added_count
            for count, added_count in zip(self.octaves, added.octaves, strict=True)
        ]
        return TimeHistogram(self.total_ms + added.total_ms, octaves)

    def since(self, before: "TimeHistogram") -> "TimeHistogram":
        """Return the octaves that were added after `before`.

        If a number fell, the histogram was reset meanwhile, so the whole histogram counts.
        """
        octaves = [now - was for now, was in zip(self.octaves, before.octaves, strict=True)]
        if min(octaves) < 0:
            return self
        return TimeHistogram(max(0.0, self.total_ms - before.total_ms), octaves)

    @property
    def text(self) -> str:
        """Return the text 'TOTAL_MS OCTAVE:NUMBER,OCTAVE:NUMBER'; '' for an empty histogram."""
        octaves = octaves_text(self.octaves)
        return f"{round(self.total_ms, 3):.15g} {octaves}" if octaves else ""

    @classmethod
    def of(cls, text: str) -> Self:
        """Read the text of a histogram; any other text gives an empty histogram."""
        match = _HISTOGRAM_TEXT.fullmatch(text)
        return cls(float(match[1]), read_octaves(match[2])) if match else cls()


class NamedTimes:
    """Histograms of the most used names, and `other` for all other names.

    No count falls while its name keeps its histogram. A name that gets a histogram later begins at
    0: its earlier durations are in `other`. A name that loses its histogram loses its numbers.
    """

    def __init__(self) -> None:
        self._rows: dict[str, TimeHistogram] = {}
        self._uses = Counter[str]()
        self._all = TimeHistogram()
        self._other = TimeHistogram()
        self._news: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, name: str, ms: float) -> None:
        """Add a duration of a name."""
        durations = self._news[name]
        durations.append(ms)
        if len(durations) >= MAX_UNCOUNTED:
            self._count()

    def _count(self) -> None:
        """Move the durations that `add` collected into the histograms."""
        uncounted = self._news
        self._news = defaultdict(list)
        for name, durations in uncounted.items():
            histogram = TimeHistogram()
            for ms, times in Counter(durations).items():
                histogram.add(ms, times)
            self.add_all(name, histogram)

    def add_all(self, name: str, added: TimeHistogram) -> None:
        """Add a histogram of durations of a name."""
        self._all = self._all.plus(added)
        row = self._row(name, added.count)
        total = row.plus(added)
        row.total_ms = total.total_ms
        row.octaves = total.octaves

    def _row(self, name: str, uses: int) -> TimeHistogram:
        """Return the histogram that counts a name's durations, its own or `other`."""
        if name == OTHER_NAMES:
            return self._other
        if name in self._uses or len(self._uses) < MAX_COUNTED_NAMES:
            self._uses[name] += uses
        if name not in self._rows:
            if len(self._rows) >= TOP_NAMES:
                return self._other
            self._rows[name] = TimeHistogram()
        return self._rows[name]

    def choose(self) -> None:
        """Give histograms to the names most used lately. Call this every CHOOSE_EVERY_S."""
        self._count()
        best = sorted(
            self._uses, key=lambda name: (-self._uses[name], name not in self._rows, name)
        )[:TOP_NAMES]
        unused_rows = [name for name in self._rows if name not in best][: TOP_NAMES - len(best)]
        self._rows = {
            name: self._rows.get(name) or TimeHistogram() for name in (*best, *unused_rows)
        }
        self._uses = Counter({name: uses // 2 for name, uses in self._uses.items() if uses > 1})

    @property
    def all(self) -> TimeHistogram:
        """The histogram of all names together."""
        self._count()
        return self._all

    def by_name(self) -> dict[str, TimeHistogram]:
        """Return copies of the histograms, `other` only if it has something."""
        self._count()
        rows = {**self._rows, OTHER_NAMES: self._other} if self._other.count else self._rows
        return {name: row.plus(TimeHistogram()) for name, row in rows.items()}

    @property
    def text(self) -> str:
        """The histograms as text: NAME TOTAL_MS OCTAVES, and so on."""
        return " ".join(f"{name} {row.text}" for name, row in self.by_name().items() if row.count)


def read_named_times(text: str) -> Mapping[str, TimeHistogram]:
    """Read the text of histograms by name; a histogram that is not readable is empty."""
    words = text.split(" ")
    return {
        name: TimeHistogram.of(f"{total} {octaves}")
        for name, total, octaves in zip(words[::3], words[1::3], words[2::3], strict=False)
    }
