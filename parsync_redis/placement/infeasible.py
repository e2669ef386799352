"""Why no node could ever hold a task, in words that name the largest there is."""

from collections.abc import Mapping
from urllib.parse import unquote

from ..model.amount import THOUSANDTHS, amount_text
from ..model.condition import describe
from ..model.needs import QUEUE_LABEL, RESERVED, Resources, queues_of
from .fits import has_labels


def explain_infeasible(needs: Resources, offers: Mapping[str, Resources]) -> str:
    """Says which of the needs is beyond every node of `offers` (node -> what it has when empty).

    Each need that no node meets is named with the most that there is; where every need is met by some node but all of
    them by none, the node that comes closest is named with what it lacks.
    """
    if not offers:
        return f"task needs {needs.text}; no node is registered"
    reasons = [*_slots(needs, offers), *_amounts(needs, offers), *_labels(needs, offers)]
    if reasons:
        return "; ".join(reasons)
    closest = min(sorted(offers), key=lambda node: len(_lacking(needs, offers[node])))
    lacking = ", ".join(_lacking(needs, offers[closest]))
    return f"no node has all of {needs.text} at once; {closest} comes closest: it lacks {lacking}"


def _slots(needs: Resources, offers: Mapping[str, Resources]) -> list[str]:
    largest = max(sorted(offers), key=lambda node: offers[node].slots)
    if needs.slots <= offers[largest].slots:
        return []
    return [f"task needs slots={needs.slots}; the largest node has {offers[largest].slots} ({largest})"]


def _amounts(needs: Resources, offers: Mapping[str, Resources]) -> list[str]:
    reasons = []
    for name, amount in needs.amounts:
        most = {node: dict(offer.amounts).get(name, 0) for node, offer in sorted(offers.items())}
        largest = max(most, key=lambda node: most[node])
        if not any(name in dict(offer.amounts) for offer in offers.values()):
            known = sorted({known for offer in offers.values() for known, _ in offer.amounts})
            reasons.append(
                f"task needs {name}={amount_text(amount)}; no node declares {name}; {_there_are('resources', known)}"
            )
        elif amount > most[largest]:
            reasons.append(
                f"task needs {name}={amount_text(amount)}; the most is {amount_text(most[largest])} ({largest})"
            )
    return reasons


def _labels(needs: Resources, offers: Mapping[str, Resources]) -> list[str]:
    reasons = []
    known = {label for offer in offers.values() for label in offer.labels}
    for name, condition in needs.labels:
        if any(has_labels(offer.labels, [(name, condition)]) for offer in offers.values()):
            continue
        if name == QUEUE_LABEL:
            queues = sorted({queue for offer in offers.values() for queue in queues_of(offer)})
            asked = unquote(condition)
            reasons.append(f"no node consumes the queue {asked}; nodes consume {', '.join(queues) or 'none'}")
            continue
        if condition == "!*":
            reasons.append(f"every node has label {name}")
            continue
        if values := sorted(v for n, v in known if n == name):
            there_are = f"there are {name}: {', '.join(values)}"
        else:
            there_are = _there_are("labels", sorted({n for n, _ in known if not n.startswith(RESERVED)}))
        asked = describe(name, condition)
        reasons.append(f"no node has {'label ' if asked == f'{name}:{condition}' else ''}{asked}; {there_are}")
    return reasons


def _there_are(what: str, names: list[str]) -> str:
    return f"there are {what} {', '.join(names)}" if names else f"there are no {what}"


def _lacking(needs: Resources, offer: Resources) -> list[str]:
    """Return the needs that a node does not meet, each as 'slots=4 (has 2)' or 'zone:a'."""
    has = {"slots": offer.slots * THOUSANDTHS, **dict(offer.amounts)}
    wanted = {"slots": needs.slots * THOUSANDTHS, **dict(needs.amounts)}
    short = [
        f"{name}={amount_text(n)} (has {amount_text(has.get(name, 0))})"
        for name, n in wanted.items()
        if n > has.get(name, 0)
    ]
    return short + [describe(*label) for label in needs.labels if not has_labels(offer.labels, [label])]
