"""Histograms of durations by the name of a task: a few names have their own, and the others one
together.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from .octaves import TimeHistogram

OTHER_NAMES: Final = "other"
TOP_NAMES: Final = 20
"""Names with histograms of their own: those of which there were most lately."""

MAX_COUNTED_NAMES: Final = 1000
"""Names whose durations are counted at a time, to find those."""


MAX_UNCOUNTED: Final = 1000
"""Durations of a name that are kept until they are counted, all together: most are equal to others,
in whole ms.
"""

CHOOSE_EVERY_S: Final = 60.0
"""How often they are chosen anew."""


class NamedTimes:
    """Histograms of the most used names, and `other`.

    None of them ever falls while its name has it.

    A name that gets a histogram later begins at 0: what came before is in `other`. One that loses
    it loses its numbers.
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
        """Count what was added."""
        uncounted = self._news
        self._news = defaultdict(list)
        for name, durations in uncounted.items():
            histogram = TimeHistogram()
            for ms, times in Counter(durations).items():
                histogram.add(ms, times)
            self.add_all(name, histogram)

    def add_all(self, name: str, added: TimeHistogram) -> None:
        """Add durations of a name."""
        self._all = self._all.plus(added)
        row = self._row(name, added.count)
        total = row.plus(added)
        row.total_ms = total.total_ms
        row.octaves = total.octaves

    def _row(self, name: str, uses: int) -> TimeHistogram:
        """Return the histogram in which a name counts."""
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
        """Let the names that were used most lately have histograms. Call it every CHOOSE_S."""
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
    """Read the text of histograms by name; what cannot be read has nothing."""
    words = text.split(" ")
    return {
        name: TimeHistogram.of(f"{total} {octaves}")
        for name, total, octaves in zip(words[::3], words[1::3], words[2::3], strict=False)
    }
