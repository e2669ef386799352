"""The judgement of many nodes at once by the rules; placement/fits.py judges one node."""

from ..model.needs import Resources
from .columns import Columns, Mask
from .rules import PLACEMENT_RULES


def fitting(columns: Columns, needs: Resources) -> Mask:
    """Return which nodes can hold a task with these needs when they are empty."""
    mask = columns.everyone()
    for rule in PLACEMENT_RULES:
        if rule.concerns(needs):
            mask = mask & rule.mask(columns, needs)
    return mask
