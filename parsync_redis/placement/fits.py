"""The judgement of empty nodes by the rules: which of them fit a task, and what the others lack.

lua/lib/kind/fits.lua judges a node for scripts; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..model.human import needs_shown
from ..model.needs import Resources
from .rules import PLACEMENT_RULES
from .rules.labels import TaintsRule

if TYPE_CHECKING:
    from .columns import Columns, Mask


def fits(offer: Resources, needs: Resources) -> bool:
    """Return whether an empty node with this offer can hold a task with these needs."""
    return all(rule.admits(offer, needs) for rule in PLACEMENT_RULES)


def fitting(columns: Columns, needs: Resources) -> Mask:
    """Return which nodes can hold a task with these needs when they are empty."""
    mask = columns.everyone()
    for rule in PLACEMENT_RULES:
        if rule.concerns(needs):
            mask = mask & rule.mask(columns, needs)
    return mask


def explain_infeasible(needs: Resources, offers: Mapping[str, Resources]) -> str:
    """Return which of the needs no node of `offers` meets, for people.

    Each need that no node meets is named with the largest amount of any node. If some node meets
    each need but no node meets all of them, the closest node is named with what it lacks. offers:
    by node, what it has when it is empty.
    """
    if not offers:
        return f"task needs {needs_shown(needs.text)}; no node is registered"
    if reasons := [reason for rule in PLACEMENT_RULES for reason in rule.nowhere(needs, offers)]:
        return "; ".join(reasons)
    closest = min(sorted(offers), key=lambda node: _distance(needs, offers[node]))
    lacks = ", ".join(lacking(needs, offers[closest]))
    return (
        f"no node has all of {needs_shown(needs.text)} at once; {closest} comes closest: it lacks "
        f"{lacks}"
    )


def _distance(needs: Resources, offer: Resources) -> tuple[int, int]:
    """Return how many needs a node does not meet, and how many of these are no taints.

    A taint counts less, because the task need only tolerate it.
    """
    failed_rules = [rule.name for rule in PLACEMENT_RULES for _ in rule.lacking(needs, offer)]
    return len(failed_rules), len(failed_rules) - failed_rules.count(TaintsRule.name)


def lacking(needs: Resources, offer: Resources) -> list[str]:
    """Return the needs that a node does not meet, each as 'slots=4 (has 2)' or 'zone:a'."""
    return [lack for rule in PLACEMENT_RULES for lack in rule.lacking(needs, offer)]
