"""The actions of operators on the pages.

An action calls the same function as its command: nodes drain, nodes undrain, tasks cancel, tasks
requeue.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ..cli.common import parse_seconds
from ..client import ParsyncClient
from ..errors import InvalidInput
from ..model.ids import encode_id, shown
from ..model.node import NodeState
from ..model.status import TaskStatus
from ..model.task import TaskState
from ..model.views import NodeView
from ..store.reads.cancel import Selection


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The content of the page that asks for confirmation of an action.

    now: the present state, as a sentence.
    effect: what the action would do; '' if it would do nothing.
    state: the state of the task; '' for a node.
    """

    now: str
    effect: str
    state: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """An action on a node or a task.

    target_field: the field of the form that names the target, `node` or `id`.
    plan: (client, target) -> what the page of confirmation says.
    do: (client, target, form, name of the operator) -> what was done, as a sentence.
    """

    target_field: str
    plan: Callable[[ParsyncClient, str], Confirmation]
    do: Callable[[ParsyncClient, str, Mapping[str, str], str], str]


def _node(client: ParsyncClient, name: str) -> tuple[NodeView, str]:
    """Return a node, and a sentence about its state. Raises InvalidInput if there is none."""
    view = next((node for node in client.nodes() if node.name == name), None)
    if view is None:
        raise InvalidInput(f"no node {shown(name)}")
    return view, _sentence(view)


def _sentence(node: NodeView) -> str:
    note = f" ({node.remarks})" if node.remarks else ""
    return f"{node.name} is {node.state}{note}: {node.held} of {node.slots} slots are held"


def _plan_drain(client: ParsyncClient, name: str) -> Confirmation:
    _, now = _node(client, name)
    effect = (
        f"{name} gets no new tasks, also after it restarts. Its runs go on, unless you give a time "
        "for them."
    )
    return Confirmation(now, effect)


def _drain(client: ParsyncClient, name: str, form: Mapping[str, str], by: str) -> str:
    deadline = form.get("deadline", "").strip()
    reason = form.get("reason", "").strip()
    after_s = parse_seconds("the time", deadline) if deadline else None
    if leaves_at := form.get("at", "").strip():
        return _sentence(client.drain(name, after_s, reason, leaves_at=leaves_at))
    return _sentence(client.drain(name, after_s, f"{reason} (by {by})" if reason else f"by {by}"))


def _plan_undrain(client: ParsyncClient, name: str) -> Confirmation:
    node, now = _node(client, name)
    open_again = node.draining or node.leaves_ms is not None or node.state == NodeState.SUSPECT
    return Confirmation(now, f"{name} gets tasks again." if open_again else "")


def _undrain(client: ParsyncClient, name: str, form: Mapping[str, str], by: str) -> str:
    return _sentence(client.undrain(name))


def _now(task: TaskStatus) -> str:
    on = f" on {task.node}" if task.node and not task.state.final else ""
    return f"task {task.id} ({task.name}) is {task.state}{on}"


def _plan_cancel(client: ParsyncClient, id: str) -> Confirmation:
    task = client.status(id)
    effects = {
        TaskState.WAITING: "It is cancelled, and never starts.",
        TaskState.PLACED: "It is cancelled, if it has not started by then.",
        TaskState.RUNNING: (
            f"Its node {task.node} ends its process by SIGTERM, and it is cancelled."
        ),
    }
    return Confirmation(_now(task), effects.get(task.state, ""), task.state)


def _cancel(client: ParsyncClient, id: str, form: Mapping[str, str], by: str) -> str:
    chosen = Selection(form.get("state", TaskState.WAITING))
    (word,) = client.requests.cancel([encode_id(id)], chosen.how, f"cancelled by {by}")
    if word == "cancelled":
        return f"task {id} is cancelled"
    if word == "asked":
        return f"the node of task {id} is asked to end it"
    return f"nothing was done: task {id} was {chosen.state}, and is {word} now"


def _plan_requeue(client: ParsyncClient, id: str) -> Confirmation:
    task = client.status(id)
    dead = task.state is TaskState.DEAD
    return Confirmation(
        _now(task), "It waits again, and its starts are counted from 0." if dead else ""
    )


def _requeue(client: ParsyncClient, id: str, form: Mapping[str, str], by: str) -> str:
    (word,) = client.requests.revive([encode_id(id)], by)
    if word == "revived":
        return f"task {id} waits again"
    return f"nothing was done: task {id} is {word}, not dead"


ACTIONS: Final[Mapping[str, Action]] = {
    "drain": Action("node", _plan_drain, _drain),
    "undrain": Action("node", _plan_undrain, _undrain),
    "cancel": Action("id", _plan_cancel, _cancel),
    "requeue": Action("id", _plan_requeue, _requeue),
}
