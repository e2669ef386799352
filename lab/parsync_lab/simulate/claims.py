"""The paper's claims against our results: each has a tolerance, and holds or does not."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

NOT_MEASURED: Final = "not measured"
READ: Final = 0.1
"""The tolerance, as a share, of a figure read off a plot; see docs/decisions/0018."""

SCORE_READ: Final = 0.15
"""The tolerance of a score, about twice the precision with which a plot can be read."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """A claim of the paper and its check.

    ours: our value; None if nothing was measured, and then the claim does not hold.
    why: the reason why it does not hold.
    """

    id: str
    claim: str
    paper: str
    ours: float | None
    tolerance: str
    holds: bool
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for result.json, without an empty reason."""
        fields = asdict(self)
        if self.holds or not self.why:
            del fields["why"]
        return fields


def about(
    id: str,
    claim: str,
    paper: float,
    measured: float | None,
    within: float,
    if_less: str = "",
    if_more: str = "",
) -> ClaimCheck:
    """Check that our value is the paper's, plus or minus `within`.

    if_less, if_more: the reasons for a smaller and a larger value.
    """
    holds = measured is not None and abs(measured - paper) <= within + 1e-9
    why = if_less if measured is not None and measured < paper else if_more
    return _check(id, claim, f"{paper:g}", measured, f"+-{within:g}", holds, why)


def between(
    id: str, claim: str, low: float, high: float, measured: float | None, if_less: str = ""
) -> ClaimCheck:
    """Check that our value is in the paper's range.

    if_less: the reason for a smaller value.
    """
    holds = measured is not None and low <= measured <= high
    return _check(
        id,
        claim,
        f"{low:g} to {high:g}",
        measured,
        "in it",
        holds,
        if_less if (measured or low) < low else "",
    )


def below(
    id: str, claim: str, paper: str, limit: float, measured: float | None, why: str = ""
) -> ClaimCheck:
    """Check that our value is at most the limit."""
    return _check(
        id,
        claim,
        paper,
        measured,
        f"at most {limit:g}",
        measured is not None and measured <= limit,
        why,
    )


def above(
    id: str, claim: str, paper: str, limit: float, measured: float | None, why: str = ""
) -> ClaimCheck:
    """Check that our value is at least the limit."""
    return _check(
        id,
        claim,
        paper,
        measured,
        f"at least {limit:g}",
        measured is not None and measured >= limit,
        why,
    )


def _check(
    id: str, claim: str, paper: str, measured: float | None, tolerance: str, holds: bool, why: str
) -> ClaimCheck:
    return ClaimCheck(
        id, claim, paper, measured, tolerance, holds, NOT_MEASURED if measured is None else why
    )


def ratio(dividend: float | None, divisor: float | None) -> float | None:
    """Return dividend / divisor; None if a value was not measured or the divisor is 0."""
    return None if dividend is None or not divisor else dividend / divisor


def difference(minuend: float | None, subtrahend: float | None) -> float | None:
    """Return minuend - subtrahend; None if a value was not measured."""
    return None if minuend is None or subtrahend is None else minuend - subtrahend


def most(values: Sequence[float | None]) -> float | None:
    """Return the largest value; None if some value was not measured, or without values."""
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
    seconds = (
        s for s, v in enumerate(table[metric]) if s >= int(from_s) and v is not None and v >= level
    )
    return next((float(second) for second in seconds), None)
