"""Histograms of durations, by powers of two: up to 1 ms, 2 ms, 4 ms, ... 70 minutes, and longer.

Counts only grow.
"""

import re
from collections.abc import Sequence
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
