"""The reason why a task waits: which nodes fit the task, and what keeps each of them.

Schedulers write this reason to the lines of kinds without a place. Commands make the reason anew
with more facts: who holds what, and since when a node is down.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ..model.amount import shown_amount
from ..model.explanation import Obstacle
from ..model.needs import Resources
from .facts import Holder, NodeFacts
from .fits import explain_infeasible, fits
from .now import STATE_RULES, has_room, is_near, what_keeps
from .rules.devices import split, what_is_left

MAX_NAMED: Final = 3
"""At most so many nodes, and so many tasks, are named in a reason; further ones are counted."""

NO_NODE: Final = "the cluster has no node: start a worker of your app with --parsync"


NAMES_UNREAD: Final = "the names of the tasks that nodes know are still to be read"

NO_NAME: Final = "no node knows a task of that name: start a worker that has it"

ROOM: Final = "has room: a scheduler's next turn places it there"
"""The end of a sentence about a task that nothing keeps from being placed."""


def room_on(node: str) -> str:
    """Return that nothing keeps a task from being placed on a node."""
    return f"node {node} {ROOM}"


def find_fitting(needs: Resources, nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    """Return the nodes that could hold the task if they were empty.

    Nodes with room go first, then open nodes.
    """
    fitting = [
        node for node in nodes if node.knows and is_near(needs, node) and fits(node.offer, needs)
    ]
    return sorted(fitting, key=lambda node: (not has_room(needs, node), not node.open, node.name))


def explain_waiting(
    needs: Resources, nodes: Collection[NodeFacts], holders: Sequence[Holder] | None = None
) -> str:
    """Return why a task of these needs has no place, from the facts of all nodes.

    holders: the tasks that hold the nodes; None leaves them out of the reason.
    """
    if not nodes:
        return NO_NODE
    knowing = [node for node in nodes if node.knows]
    if not knowing:
        return NO_NAME
    fitting = find_fitting(needs, knowing)
    if not fitting:
        return explain_none(
            needs, {node.name: node.offer for node in knowing if is_near(needs, node)}
        )
    return explain_fitting(needs, fitting[:MAX_NAMED], len(fitting), holders)


def explain_none(needs: Resources, offers: Mapping[str, Resources]) -> str:
    """Return why no node could hold the task even if it were empty. offers: by node."""
    return f"no node fits: {explain_infeasible(needs, offers)}"


def explain_fitting(
    needs: Resources,
    shown: Sequence[NodeFacts],
    total: int,
    holders: Sequence[Holder] | None = None,
) -> str:
    """Return what keeps the nodes that fit: each node of `shown` with its reason.

    total: number of nodes that fit.
    """
    for node in shown:
        if has_room(needs, node):
            return room_on(node.name)
    keeps = [_sentence(needs, node, holders) for node in shown]
    if total == 1:
        return f"only node {shown[0].name} fits: it {keeps[0]}"
    sentences = "; ".join(f"{node.name} {why}" for node, why in zip(shown, keeps, strict=True))
    uncounted = f"; and {total - len(shown)} more" if total > len(shown) else ""
    return f"{total} nodes fit: {sentences}{uncounted}"


def _sentence(needs: Resources, node: NodeFacts, holders: Sequence[Holder] | None = None) -> str:
    """Return why a node that fits has no room for the task: the sentence after the node's name.

    Without holders the sentence does not change with every task that ends, because schedulers write
    the sentence to the line of the kind.
    """
    obstacles = what_keeps(needs, node)
    holders_of_node = (
        None if holders is None else [holder for holder in holders if holder.node == node.name]
    )
    sentences = [
        obstacle.why + _until(needs, obstacle, node, holders_of_node) for obstacle in obstacles
    ]
    if node.gives and holders is not None and node.open:
        sentences.append(f"it {node.gives}")
    return "; ".join(sentences)


def _until(
    needs: Resources, obstacle: Obstacle, node: NodeFacts, holders: Sequence[Holder] | None
) -> str:
    """Return how much is left, and which tasks must end; '' without holders."""
    if holders is None or obstacle.rule in STATE_RULES:
        return ""
    if obstacle.rule == "free slots":
        return _until_one_of(holders)
    name = obstacle.what
    until = _until_one_of([holder for holder in holders if holder.holds(name)])
    if obstacle.rule == "apart":
        return until
    offered = dict(node.offer.amounts)
    if of_devices := split(needs, node.offer)[1].get(name):
        free = {name: node.amounts_left.get(name, 0) for name in offered}
        return f", and {what_is_left(name, of_devices, free)}{until}"
    left_text = shown_amount(node.amounts_left.get(name, 0))
    return f", and {left_text} of {shown_amount(offered.get(name, 0))} is left{until}"


def _until_one_of(holders: Sequence[Holder]) -> str:
    """Return which tasks must end.

    A slot whose task has ended is free soon, or processes that the task started live on.
    """
    tasks = sorted({holder.task for holder in holders if not holder.ended})
    ended = sorted({holder.task for holder in holders if holder.ended})
    uncounted = f" or {len(tasks) - MAX_NAMED} more" if len(tasks) > MAX_NAMED else ""
    until = (
        f" until one of the tasks {', '.join(tasks[:MAX_NAMED])}{uncounted} ends" if tasks else ""
    )
    until = f" until task {tasks[0]} ends" if len(tasks) == 1 else until
    if ended:
        until += f"; task {ended[0]} has ended and its slots are not free yet"
    return until


REASON_PATTERNS: Final = (
    ("unexplained", r"\Z"),
    ("no_node", re.escape(NO_NODE)),
    ("unknown_name", f"{re.escape(NO_NAME)}|{re.escape(NAMES_UNREAD)}"),
    ("no_fit", r"no node fits: "),
    ("limit", r"limit \S+(?: |: )|no limit '|what limit "),
    ("tenant", r"tenant \S+ |what tenant "),
    ("room", rf"node \S+ {re.escape(ROOM)}"),
    ("full", r"FITS (?:is full|has fewer than )"),
    ("resources", r"FITS is short of "),
    ("apart", r"FITS has a task with apart="),
    ("reserved", r"FITS is reserved for "),
    ("held_back", r"FITS holds such tasks back"),
    ("drained", r"FITS is drained"),
    ("suspect", r"FITS is suspect"),
    ("down", r"FITS is down"),
    ("leaving", r"FITS (?:shuts down|leaves )"),
)
"""By class, the pattern that the sentences of its reasons begin with.

If several nodes fit, the first node that is named decides.
"""

OTHER_REASON: Final = "other"
"""The class of a text that is no known reason."""
_PATTERNS: Final = tuple(
    (name, re.compile(text.replace("FITS", r"(?:only node \S+ fits: it|\d+ nodes fit: \S+)")))
    for name, text in REASON_PATTERNS
)


def reason_class(why: str) -> str:
    """Return the class of a reason that a scheduler wrote.

    Returns OTHER_REASON for a text that is no reason.
    """
    return next((name for name, pattern in _PATTERNS if pattern.match(why)), OTHER_REASON)
