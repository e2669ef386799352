"""Taints: a node with a taint takes only tasks that tolerate it.

    slots=4 parsync.taint:spot parsync.taint:old     an offer
    slots=1 parsync.taint:old|spot                   needs that tolerate both

Offers and needs have taints as the reserved label `parsync.taint`. Needs name all tolerated taints
in one word, like a condition with several values. A task may tolerate a taint that no node has.
"""

from collections.abc import Collection, Sequence

from ..errors import InvalidInput
from .ids import check_name
from .limits import MAX_WORDS
from .needs import TAINT_LABEL, Resources


def check_taints(taints: Collection[object]) -> list[str]:
    """Return the sorted set of taints; raises InvalidInput."""
    if len(taints) > MAX_WORDS:
        raise InvalidInput(f"{len(taints)} taints are too many: there may be {MAX_WORDS}")
    return sorted({check_name("taint", name) for name in taints})


def offered_taints(taints: Collection[object]) -> list[tuple[str, str]]:
    """Return the reserved labels of a node with these taints; raises InvalidInput."""
    return [(TAINT_LABEL, taint) for taint in check_taints(taints)]


def tolerance(taints: Collection[object]) -> list[tuple[str, str]]:
    """Return the reserved labels of needs that tolerate these taints; raises InvalidInput."""
    return [(TAINT_LABEL, "|".join(words))] if (words := check_taints(taints)) else []


def taints_of(offer: Resources) -> tuple[str, ...]:
    """Return the taints of a node, sorted."""
    return tuple(value for name, value in offer.labels if name == TAINT_LABEL)


def tolerated(needs: Resources) -> frozenset[str]:
    """Return the taints that a task's needs tolerate."""
    return frozenset(
        taint for name, texts in needs.labels if name == TAINT_LABEL for taint in texts.split("|")
    )


def tolerate_text(taints: Sequence[str]) -> str:
    """Return the option that tolerates these taints, for people: 'tolerate=["spot"]'."""
    return "tolerate=[" + ", ".join(f'"{taint}"' for taint in taints) + "]"
