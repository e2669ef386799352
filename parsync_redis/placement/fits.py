"""The judgement whether one node fits a task.

lua/lib/kind/fits.lua judges the same for scripts; a test compares the two.
"""

from ..model.needs import Resources
from .rules import PLACEMENT_RULES


def fits(offer: Resources, needs: Resources) -> bool:
    """Return whether an empty node with this offer can hold a task with these needs."""
    return all(rule.admits(offer, needs) for rule in PLACEMENT_RULES)
