"""Histograms of durations by the name of a task: a few names have their own, and the others one
together.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from .octaves import TimeHistogram

OTHER: Final = "other"
TOP_NAMES: Final = 20
"""Names with histograms of their own: those of which there were most lately."""

COUNTED: Final = 1000
"""Names whose durations are counted at a time, to find those."""


AT_ONCE: Final = 1000
"""Durations of a name that are kept until they are counted, all together: most are equal to others,
in whole ms.
"""

CHOOSE_S: Final = 60.0
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
        many = self._news[name]
        many.append(ms)
        if len(many) >= AT_ONCE:
            self._count()

    def _count(self) -> None:
        """Count what was added."""
        news = self._news
        self._news = defaultdict(list)
        for name, many in news.items():
            came = TimeHistogram()
            for ms, times in Counter(many).items():
                came.add(ms, times)
            self.add_all(name, came)

    def add_all(self, name: str, came: TimeHistogram) -> None:
        """Add durations of a name."""
        self._all = self._all.plus(came)
        row = self._row(name, came.count)
        both = row.plus(came)
        row.total_ms = both.total_ms
        row.octaves = both.octaves

    def _row(self, name: str, uses: int) -> TimeHistogram:
        """Return the histogram in which a name counts."""
        if name == OTHER:
            return self._other
        if name in self._uses or len(self._uses) < COUNTED:
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
        kept = [name for name in self._rows if name not in best][: self._most - len(best)]
        self._rows = {name: self._rows.get(name) or TimeHistogram() for name in (*best, *kept)}
        self._uses = Counter({name: uses // 2 for name, uses in self._uses.items() if uses > 1})

    @property
    def all(self) -> TimeHistogram:
        """The histogram of all names together."""
        self._count()
        return self._all

    def by_name(self) -> dict[str, TimeHistogram]:
        """Return copies of the histograms, `other` only if it has something."""
        self._count()
        every = {**self._rows, OTHER: self._other} if self._other.count else self._rows
        return {name: row.plus(TimeHistogram()) for name, row in every.items()}

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
