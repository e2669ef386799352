"""The paper's claims against our results: each has a tolerance, and holds or does not."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

NOT_MEASURED: Final = "not measured"
READ: Final = 0.1
"""The tolerance of a figure that was read off a plot or derived from one, as a share of it; see
docs/decisions/0018.
"""

SCORE_READ: Final = 0.15
"""That of a score: about twice what it can be read to."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """One claim of the paper.

    `ours` is None if nothing was measured: it does not hold; `why` is then the reason.
    """

    id: str
    claim: str
    paper: str
    ours: float | None
    tolerance: str
    holds: bool
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For result.json; the reason only where there is one to give."""
        found = asdict(self)
        if self.holds or not self.why:
            del found["why"]
        return found


def near(
    id: str,
    claim: str,
    paper: float,
    ours: float | None,
    within: float,
    if_less: str = "",
    if_more: str = "",
) -> ClaimCheck:
    """Ours is the paper's value, give or take `within`; the reasons are those for less and for
    more.
    """
    holds = ours is not None and abs(ours - paper) <= within + 1e-9
    why = if_less if ours is not None and ours < paper else if_more
    return _check(id, claim, f"{paper:g}", ours, f"+-{within:g}", holds, why)


def between(
    id: str, claim: str, low: float, high: float, ours: float | None, if_less: str = ""
) -> ClaimCheck:
    """Ours is in the paper's range; `if_less` is the reason if it is below it."""
    holds = ours is not None and low <= ours <= high
    return _check(
        id,
        claim,
        f"{low:g} to {high:g}",
        ours,
        "in it",
        holds,
        if_less if (ours or low) < low else "",
    )


def below(
    id: str, claim: str, paper: str, limit: float, ours: float | None, why: str = ""
) -> ClaimCheck:
    """Ours is at most the limit."""
    return _check(
        id, claim, paper, ours, f"at most {limit:g}", ours is not None and ours <= limit, why
    )


def above(
    id: str, claim: str, paper: str, limit: float, ours: float | None, why: str = ""
) -> ClaimCheck:
    """Ours is at least the limit."""
    return _check(
        id, claim, paper, ours, f"at least {limit:g}", ours is not None and ours >= limit, why
    )


def _check(
    id: str, claim: str, paper: str, ours: float | None, tolerance: str, holds: bool, why: str
) -> ClaimCheck:
    return ClaimCheck(
        id, claim, paper, ours, tolerance, holds, NOT_MEASURED if ours is None else why
    )


def ratio(one: float | None, other: float | None) -> float | None:
    """Divide; None if a value was not measured or the divisor is 0."""
    return None if one is None or not other else one / other


def difference(one: float | None, other: float | None) -> float | None:
    """Subtract; None if a value was not measured."""
    return None if one is None or other is None else one - other


def most(values: Sequence[float | None]) -> float | None:
    """Return the largest value; None if one was not measured, or there is none."""
    measured = [value for value in values if value is not None]
    return max(measured) if measured and len(measured) == len(values) else None


Table = Mapping[str, Sequence[float | None]]


def mean_over(table: Table, metric: str, begin_s: float, end_s: float) -> float | None:
    """Return the mean of a metric's values per second, from `begin_s` to before `end_s`."""
    values = [value for value in table[metric][int(begin_s) : int(end_s)] if value is not None]
    return sum(values) / len(values) if values else None


def slope(table: Table, metric: str, begin_s: float, end_s: float) -> float | None:
    """Return the growth of a metric per second, by least squares."""
    points = [
        (s, v)
        for s, v in enumerate(table[metric])
        if v is not None and int(begin_s) <= s < int(end_s)
    ]
    if len(points) < 2:
        return None
    mean_s = sum(s for s, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    return sum((s - mean_s) * (v - mean_v) for s, v in points) / sum(
        (s - mean_s) ** 2 for s, _ in points
    )


def total(groups: Mapping[str, Table], metric: str) -> dict[str, list[float | None]]:
    """Return the sum of a metric over the groups, per second."""
    columns = zip(*(table[metric] for table in groups.values()), strict=False)
    return {metric: [None if None in row else sum(value or 0 for value in row) for row in columns]}


def first_at(table: Table, metric: str, level: float, from_s: float) -> float | None:
    """Return the first second from `from_s` on at which a metric reaches a level."""
    found = (
        s for s, v in enumerate(table[metric]) if s >= int(from_s) and v is not None and v >= level
    )
    return next((float(second) for second in found), None)
