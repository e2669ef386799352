"""The reason why a task waits: which nodes fit it, and what keeps each of them. Pure: facts in, a sentence out.

Schedulers write this reason to the records of tasks without a place. Commands make it anew with more facts: who holds
what, and since when a node is down.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from ..model.amount import amount_text
from ..model.needs import Resources
from ..model.node import drain_reason
from .fits import fits
from .infeasible import explain_infeasible

SHOWN: Final = 3
"""At most so many nodes and tasks are named; the rest are counted."""

NO_NODE: Final = "no node has joined the cluster: start a worker of your app with --parsync"


NAMES_UNREAD: Final = "the names of the tasks that nodes know are still to be read"

NO_NAME: Final = "no node knows a task of that name: start a worker that has it"

ROOM: Final = "has room: a scheduler's next turn places it there"
"""The end of a sentence about a task that nothing keeps from being placed."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts that decide if a node can take a task now: its record, what is free, and whether it knows the task's name.

    left: by resource, in thousandths. note: the terms of its drain, or why it is suspect. down_ms: when it was found to
    be down (server time).
    """

    name: str
    state: str
    draining: bool
    offer: Resources
    free: int
    left: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    down_ms: int | None = None
    knows: bool = True

    @property
    def open(self) -> bool:
        """True if claims may go there."""
        return self.state == "up" and not self.draining


@dataclass(frozen=True, slots=True)
class Holder:
    """A task that holds slots of a node, and amounts (thousandths) of its resources."""

    node: str
    task: str
    resources: Mapping[str, int]


def find_fitting(needs: Resources, nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    """Return the nodes that could hold the task if they were empty: those with room first, then the open ones."""
    found = [node for node in nodes if node.knows and fits(node.offer, needs)]
    return sorted(found, key=lambda node: (not has_room(needs, node), not node.open, node.name))


def has_room(needs: Resources, node: NodeFacts) -> bool:
    """Return whether a node that fits could take the task now."""
    enough = all(node.left.get(name, 0) >= amount for name, amount in needs.amounts)
    return node.open and node.free >= needs.slots and enough


def explain_waiting(needs: Resources, nodes: Collection[NodeFacts], holders: Sequence[Holder] | None = None) -> str:
    """Say why a task of these needs has no place, from the facts of all nodes."""
    if not nodes:
        return NO_NODE
    knowing = [node for node in nodes if node.knows]
    if not knowing:
        return NO_NAME
    fitting = find_fitting(needs, knowing)
    if not fitting:
        return explain_none(needs, {node.name: node.offer for node in knowing})
    return explain_fitting(needs, fitting[:SHOWN], len(fitting), holders)


def explain_none(needs: Resources, offers: Mapping[str, Resources]) -> str:
    """Say why no node could hold the task even if it were empty."""
    return f"no node fits: {explain_infeasible(needs, offers)}"


def explain_fitting(
    needs: Resources, shown: Sequence[NodeFacts], total: int, holders: Sequence[Holder] | None = None
) -> str:
    """Say what keeps the nodes that fit, `total` of them: each of `shown` with its reason."""
    for node in shown:
        if has_room(needs, node):
            return f"node {node.name} {ROOM}"
    keeps = [what_keeps(needs, node, holders) for node in shown]
    if total == 1:
        return f"only node {shown[0].name} fits: it {keeps[0]}"
    each = "; ".join(f"{node.name} {why}" for node, why in zip(shown, keeps, strict=True))
    more = f"; and {total - len(shown)} more" if total > len(shown) else ""
    return f"{total} nodes fit: {each}{more}"


def what_keeps(needs: Resources, node: NodeFacts, holders: Sequence[Holder] | None = None) -> str:
    """Say why a node that fits has no room for the task: a sentence whose subject is its name.

    Without holders nothing in it changes with every task that ends: schedulers write it to the record of each task.
    """
    if node.state == "down":
        return f"is down since {clock_text(node.down_ms)}" if node.down_ms is not None else "is down"
    if node.draining:
        return "is drained" + (f": {reason}" if (reason := drain_reason(node.note)) else "")
    if node.state == "suspect":
        return "is suspect" + (f": {node.note}" if node.note else "")
    if node.state != "up":
        return "shuts down"
    mine = None if holders is None else [holder for holder in holders if holder.node == node.name]
    if node.free < needs.slots:
        until = f" until {_one_of(mine)}" if mine else ""
        return f"is full{until}" if needs.slots == 1 else f"has fewer than {needs.slots} free slots{until}"
    short = [(name, amount) for name, amount in needs.amounts if node.left.get(name, 0) < amount]
    return "; ".join(_short_of(name, amount, node, mine) for name, amount in short)


def _short_of(name: str, amount: int, node: NodeFacts, holders: Sequence[Holder] | None) -> str:
    short = f"is short of {name}: the task needs {amount_text(amount)}"
    if holders is None:
        return short
    having = [holder for holder in holders if holder.resources.get(name)]
    until = f" until {_one_of(having)}" if having else ""
    offered = dict(node.offer.amounts).get(name, 0)
    return f"{short}, and {amount_text(node.left.get(name, 0))} of {amount_text(offered)} is left{until}"


def clock_text(ms: int) -> str:
    """Return a server time (ms) for people."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _one_of(holders: Sequence[Holder]) -> str:
    tasks = sorted({holder.task for holder in holders})
    if len(tasks) == 1:
        return f"task {tasks[0]} ends"
    more = f" or {len(tasks) - SHOWN} more" if len(tasks) > SHOWN else ""
    return f"one of the tasks {', '.join(tasks[:SHOWN])}{more} ends"
