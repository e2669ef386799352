"""Judge whether a node fits a task, for the view.

lua/lib/kind/fits.lua does so for scripts; a test compares them.
"""

from ..model.needs import Resources
from .rules import RULES


def fits(offer: Resources, needs: Resources) -> bool:
    """Return whether a node that offers `offer` can hold a task that needs `needs` when it is
    empty.
    """
    return all(rule.admits(offer, needs) for rule in RULES)
