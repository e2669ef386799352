"""Judge whether a node fits a task, for the view. lua/lib/fits.lua does so for scripts; a test compares them."""

from collections.abc import Iterable

from ..model.condition import holds
from ..model.needs import Resources


def fits(offer: Resources, needs: Resources) -> bool:
    """Return whether a node that offers `offer` can hold a task that needs `needs`: slots, amounts and labels."""
    if offer.slots < needs.slots:
        return False
    if needs.amounts:
        offered = dict(offer.amounts)
        if any(offered.get(name, 0) < amount for name, amount in needs.amounts):
            return False
    return not needs.labels or has_labels(offer.labels, needs.labels)


def has_labels(labels: Iterable[tuple[str, str]], conditions: Iterable[tuple[str, str]]) -> bool:
    """Return whether a node with these labels, by name and value, meets all conditions, by name and text."""
    values: dict[str, list[str]] = {}
    for name, value in labels:
        values.setdefault(name, []).append(value)
    return all(holds(condition, values.get(name, ())) for name, condition in conditions)
