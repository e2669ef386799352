"""Histograms of durations by task name: frequent names have their own, all others share one."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from .octaves import TimeHistogram

OTHER_NAMES: Final = "other"
TOP_NAMES: Final = 20
"""The number of names with a histogram of their own: the names most used lately."""

MAX_COUNTED_NAMES: Final = 1000
"""The number of names whose uses are counted, to choose the most used."""


MAX_UNCOUNTED: Final = 1000
"""Durations that are kept per name before they are counted together; most are equal whole ms."""

CHOOSE_EVERY_S: Final = 60.0
"""The period at which `choose` is called."""


class NamedTimes:
    """Histograms of the most used names, and `other` for all other names.

    No count falls while its name keeps its histogram. A name that gets a histogram later begins at
    0: its earlier durations are in `other`. A name that loses its histogram loses its numbers.
    """

    def __init__(self, most: int = TOP_NAMES) -> None:
        self._most = most
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
            if len(self._rows) >= self._most:
                return self._other
            self._rows[name] = TimeHistogram()
        return self._rows[name]

    def choose(self) -> None:
        """Give histograms to the names most used lately. Call this every CHOOSE_EVERY_S."""
        self._count()
        best = sorted(
            self._uses, key=lambda name: (-self._uses[name], name not in self._rows, name)
        )[: self._most]
        unused_rows = [name for name in self._rows if name not in best][: self._most - len(best)]
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
