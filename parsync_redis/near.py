"""Find the node of the task that another task is to be near, when that other task is submitted.

The node becomes a label of the needs, or of the preferences for the soft rule `near:TASK_ID`. So a
later move of the first task changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .errors import Infeasible, InvalidInput
from .model.ids import encode_id, shown
from .model.near import anchors_of, near_label, tasks_named, with_nodes
from .model.needs import QUEUE_LABEL, Resources, without
from .model.options import TaskOptions
from .model.status import TaskStatus
from .model.task import Submission, TaskState
from .placement.fits import lacking
from .store.reads.views import read_offers
from .store.store import Store


def is_near(options: TaskOptions) -> bool:
    """Return whether options name a task whose node is to be looked up."""
    return bool(options.near or anchors_of(options.prefer))


def resolve_near(store: Store, tasks: Sequence[Submission]) -> Sequence[Submission]:
    """Return tasks with the nodes of the tasks that they are to be near, in needs and preferences.

    Raises InvalidInput if a task to be near is unknown or never had a node, and Infeasible if the
    node of the option `near` can never hold the submitted task. A retry, which its run submits, is
    never refused: it goes to any node then.
    """
    anchors = {id for task in tasks for id in _anchors(task.options)}
    if not anchors:
        return tasks
    nodes = _nodes_of(store, anchors)
    offers = read_offers(store) if any(task.options.near for task in tasks) else {}
    return [_resolve_task(task, nodes, offers) if is_near(task.options) else task for task in tasks]


def near_node(store: Store, options: TaskOptions) -> TaskOptions:
    """Return the options of a task that is only planned, with the nodes that it is to be near.

    Raises InvalidInput.
    """
    if not is_near(options):
        return options
    nodes = _nodes_of(store, _anchors(options))
    _check(options, nodes)
    return _with_nodes(options, nodes)


def _anchors(options: TaskOptions) -> set[str]:
    """Return the ids of the tasks that options name."""
    return {*anchors_of(options.prefer), *([options.near] if options.near else ())}


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
    task: Submission, nodes: Mapping[str, str | None], offers: Mapping[str, Resources]
) -> Submission:
    options = task.options
    if not task.after:
        _check(options, nodes, task.id)
        _refuse_misfit(task, nodes.get(options.near) or "", offers)
    return task._replace(options=_with_nodes(options, nodes))


def _refuse_misfit(task: Submission, node: str, offers: Mapping[str, Resources]) -> None:
    """Raise Infeasible if the node of the option `near` can never hold the task."""
    options = task.options
    lacks = lacking(without(options.needs, QUEUE_LABEL), offers[node]) if node in offers else []
    if lacks and not options.wait_for_capacity:
        why = f"near={shown(options.near)} means node {node}, which lacks {', '.join(lacks)}"
        raise Infeasible(f"{why} (task {task.name}; wait_for_capacity=True would let it wait)")


def _check(options: TaskOptions, nodes: Mapping[str, str | None], own_id: str = "") -> None:
    """Raise InvalidInput unless each task that options name has or had a node.

    own_id: the encoded id of the task itself.
    """
    for subject, target_id in tasks_named(options.near, options.prefer):
        if encode_id(target_id) == own_id:
            raise InvalidInput(f"{subject} is not valid: a task cannot be near itself")
        node = nodes[target_id]
        if node is None:
            raise InvalidInput(
                f"{subject} is not valid: no task with that id is known, or it is forgotten"
            )
        if not node:
            rule = "it must be the id of a task that runs or has run; that one has had no node yet"
            raise InvalidInput(f"{subject} is not valid: {rule}")


def _with_nodes(options: TaskOptions, nodes: Mapping[str, str | None]) -> TaskOptions:
    """Return options with the nodes in needs and preferences; without a node any node will do."""
    needs = options.needs
    if node := nodes.get(options.near):
        needs = Resources.made(needs.slots, needs.amounts, [*needs.labels, near_label(node)])
    prefer = with_nodes(options.prefer, {id: node or "" for id, node in nodes.items()})
    return replace(options, needs=needs, near="", prefer=prefer)
