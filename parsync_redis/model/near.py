"""The option `near`: a task goes to the node where another task runs, or ran last.

Submit looks up the node (parsync_redis/near.py), and the needs get it as the reserved label
`parsync.near`. If the node is down or forgotten, the label does not count: the task may go
anywhere.
"""

from collections.abc import Container
from typing import Final
from urllib.parse import quote, unquote

from .needs import RESERVED_PREFIX, Resources, parse_needs, without

NEAR_LABEL: Final = f"{RESERVED_PREFIX}near"
_NEAR_WORD: Final = f" {NEAR_LABEL}:"


def near_label(node: str) -> tuple[str, str]:
    """Return the reserved label that only this node meets; special characters become %XX."""
    return NEAR_LABEL, quote(node, safe="")


def near_of(needs: Resources) -> str:
    """Return the node that needs name by their label `parsync.near`, '' without it."""
    return next((unquote(node) for name, node in needs.labels if name == NEAR_LABEL), "")


def settled(needs: str, alive: Container[str]) -> str:
    """Return needs without their `parsync.near` label if that node is not alive.

    alive: the names of the nodes that are not down.
    """
    if _NEAR_WORD not in needs:
        return needs
    parsed = parse_needs(needs)
    return needs if near_of(parsed) in alive else without(parsed, NEAR_LABEL).text
