"""Judge whether a node fits a task, for the view. lua/lib/fits.lua does so for scripts; a test compares them."""

from ..model.needs import Resources


def fits(offer: Resources, needs: Resources) -> bool:
    """Return whether a node that offers `offer` can hold a task that needs `needs`: slots, amounts and labels."""
    if offer.slots < needs.slots:
        return False
    if needs.amounts:
        offered = dict(offer.amounts)
        if any(offered.get(name, 0) < amount for name, amount in needs.amounts):
            return False
    return not needs.labels or set(needs.labels) <= set(offer.labels)
