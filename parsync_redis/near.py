"""Find the node of the task that another task is to be near, when that other task is submitted.

The node becomes a label of the needs, so a later move of the first task changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from .errors import Infeasible, InvalidInput
from .model.ids import encode_id, shown
from .model.near import near_label
from .model.needs import QUEUE_LABEL, Resources, without
from .model.options import TaskOptions
from .model.status import TaskStatus
from .model.task import Submission, TaskState
from .placement.fits import lacking
from .store.reads.views import read_offers
from .store.store import Store


def resolve_near(store: Store, tasks: Sequence[Submission]) -> Sequence[Submission]:
    """Return tasks with the node of the task that they are to be near in their needs.

    Raises InvalidInput if the task to be near is unknown or never had a node, and Infeasible if its
    node can never hold the submitted task. A retry, which its run submits, is never refused: it
    goes to any node then.
    """
    if not any(task.options.near for task in tasks):
        return tasks
    nodes = _nodes_of(store, {task.options.near for task in tasks if task.options.near})
    offers = read_offers(store)
    return [_resolve_task(task, nodes, offers) if task.options.near else task for task in tasks]


def near_node(store: Store, options: TaskOptions) -> TaskOptions:
    """Return the options of a task that is only planned, with the node in its needs.

    Raises InvalidInput.
    """
    if not options.near:
        return options
    return _with_node(options, _known_node(options.near, _nodes_of(store, {options.near})))


def _nodes_of(store: Store, ids: set[str]) -> dict[str, str | None]:
    """Return where each task runs or ran last, by id.

    '' means that the task had no node yet, None that it is unknown.
    """
    names = sorted(ids)
    statuses = [TaskStatus.of(record) for record in store.records([encode_id(id) for id in names])]
    return dict(zip(names, map(_last_node, statuses), strict=True))


def _last_node(task: TaskStatus) -> str | None:
    if task.state is TaskState.GONE:
        return None
    return task.node or next((setback.node for setback in reversed(task.history)), "")


def _resolve_task(
    task: Submission, nodes: dict[str, str | None], offers: dict[str, Resources]
) -> Submission:
    target_id = task.options.near
    options = task.options
    if task.after:
        return task._replace(options=_with_node(options, nodes[target_id] or ""))
    if encode_id(target_id) == task.id:
        raise InvalidInput(f"near={shown(target_id)} is not valid: a task cannot be near itself")
    node = _known_node(target_id, nodes)
    lacks = lacking(without(options.needs, QUEUE_LABEL), offers[node]) if node in offers else []
    if lacks and not options.wait_for_capacity:
        why = f"near={shown(target_id)} means node {node}, which lacks {', '.join(lacks)}"
        raise Infeasible(f"{why} (task {task.name}; wait_for_capacity=True would let it wait)")
    return task._replace(options=_with_node(options, node))


def _known_node(target_id: str, nodes: dict[str, str | None]) -> str:
    node = nodes[target_id]
    if node is None:
        raise InvalidInput(
            f"near={shown(target_id)} is not valid: no task with that id is known, or it is "
            "forgotten"
        )
    if not node:
        rule = "it must be the id of a task that runs or has run; that one has had no node yet"
        raise InvalidInput(f"near={shown(target_id)} is not valid: {rule}")
    return node


def _with_node(options: TaskOptions, node: str) -> TaskOptions:
    """Return the options with this node in the needs, '' for any node."""
    needs = options.needs
    if node:
        needs = Resources.made(needs.slots, needs.amounts, [*needs.labels, near_label(node)])
    return replace(options, needs=needs, near="")
