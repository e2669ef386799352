"""All cases, in the order of the page."""

from tests.parity.case import CASES, Case

from . import away, canvas, control, ends, groups, options, published, results, tasks

__all__ = [
    "CASES",
    "Case",
    "away",
    "canvas",
    "control",
    "ends",
    "groups",
    "options",
    "published",
    "results",
    "tasks",
]
