"""The option `near`: a task goes to the node where another task runs, or ran last.

Submit looks up the node (parsync_redis/near.py), and the needs get it as the reserved label
`parsync.near`. If the node is down or forgotten, the label does not count: the task may go
anywhere. As a preference, `near:TASK_ID`, it is the word `near=ID` until submit has looked up the
node, and then a condition on the same label.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from .ids import decode_id, shown
from .needs import RESERVED_PREFIX, Resources, parse_needs, without

NEAR_LABEL: Final = f"{RESERVED_PREFIX}near"
_NEAR_WORD: Final = f" {NEAR_LABEL}:"
_NEAR_RULE: Final = "near="
"""The beginning of a preference that names a task by its encoded id."""


def near_label(node: str) -> tuple[str, str]:
    """Return the reserved label that only this node meets; special characters become %XX."""
    return NEAR_LABEL, quote(node, safe="")


def near_of(needs: Resources) -> str:
    """Return the node that needs name by their label `parsync.near`, '' without it."""
    return next((unquote(node) for name, node in needs.labels if name == NEAR_LABEL), "")


def anchors_of(prefer: str) -> Sequence[str]:
    """Return the ids of the tasks that preferences name, and whose nodes are not looked up yet."""
    words = prefer.split(",") if _NEAR_RULE in prefer else ()
    return [
        decode_id(word.removeprefix(_NEAR_RULE)) for word in words if word.startswith(_NEAR_RULE)
    ]


def tasks_named(anchor: str, prefer: str) -> list[tuple[str, str]]:
    """Return how each task is named by the options `near` and `prefer`, for errors, and its id.

    anchor: the option `near`, '' for none.
    """
    named = [(f"near={shown(anchor)}", anchor)] if anchor else []
    return [*named, *((f"prefer {shown(f'near:{id}')}", id) for id in anchors_of(prefer))]


def with_nodes(prefer: str, nodes: Mapping[str, str]) -> str:
    """Return preferences with the nodes of the tasks that they name; each rule comes once.

    nodes: by id of a task, its node. A rule about a task without a node is left out.
    """
    words = list[str]()
    for word in prefer.split(","):
        anchors = anchors_of(word)
        if not anchors:
            words.append(word)
        elif node := nodes.get(anchors[0]):
            words.append(":".join(near_label(node)))
    return ",".join(dict.fromkeys(words))


def settled(needs: str, alive: Container[str]) -> str:
    """Return needs without their `parsync.near` label if that node is not alive.

    alive: the names of the nodes that are not down.
    """
    if _NEAR_WORD not in needs:
        return needs
    parsed = parse_needs(needs)
    return needs if near_of(parsed) in alive else without(parsed, NEAR_LABEL).text
