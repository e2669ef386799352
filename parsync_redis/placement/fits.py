"""What fits, for the view. lua/lib/fits.lua says the same for scripts; a property test holds the two together."""

from ..model.needs import Resources


def fits(offer: Resources, needs: Resources) -> bool:
    """Whether a node that offers `offer` can hold a task that needs `needs`: slots, every amount, every label."""
    if offer.slots < needs.slots:
        return False
    if needs.amounts:
        offered = dict(offer.amounts)
        if any(offered.get(name, 0) < amount for name, amount in needs.amounts):
            return False
    return not needs.labels or set(needs.labels) <= set(offer.labels)
