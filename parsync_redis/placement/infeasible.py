"""Why no node could ever hold a task, in words that name the largest there is."""

from collections.abc import Mapping

from ..model.human import needs_shown
from ..model.needs import Resources
from .rules import RULES
from .rules.taints import TaintsRule


def explain_infeasible(needs: Resources, offers: Mapping[str, Resources]) -> str:
    """Say which of the needs is beyond every node of `offers` (node -> what it has when empty).

    Each need that no node meets is named with the most that there is; where every need is met by
    some node but all of them by none, the node that comes closest is named with what it lacks.
    """
    if not offers:
        return f"task needs {needs_shown(needs.text)}; no node is registered"
    if reasons := [reason for rule in RULES for reason in rule.nowhere(needs, offers)]:
        return "; ".join(reasons)
    closest = min(sorted(offers), key=lambda node: _distance(needs, offers[node]))
    lacks = ", ".join(lacking(needs, offers[closest]))
    return (
        f"no node has all of {needs_shown(needs.text)} at once; {closest} comes closest: it lacks "
        f"{lacks}"
    )


def _distance(needs: Resources, offer: Resources) -> tuple[int, int]:
    """Return how many needs a node does not meet; a taint is nearer, which the task need only
    tolerate.
    """
    found = [rule.name for rule in RULES for _ in rule.lacking(needs, offer)]
    return len(found), len(found) - found.count(TaintsRule.name)


def lacking(needs: Resources, offer: Resources) -> list[str]:
    """Return the needs that a node does not meet, each as 'slots=4 (has 2)' or 'zone:a'."""
    return [lack for rule in RULES for lack in rule.lacking(needs, offer)]
