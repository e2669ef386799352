"""The types of the answers of the API, for the OpenAPI document.

An answer has the same values as the command line prints.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from pydantic import BaseModel

from ..model.account_views import LimitView, TenantView
from ..model.events import Event
from ..model.explanation import Explanation
from ..model.status import TaskStatus
from ..model.task import TaskState
from ..model.views import Evenness, KindView, NameView, NodeView, PartitionView
from ..store.reads.schedulers import SchedulerView

T = TypeVar("T")


class Error(BaseModel):
    """An error in one sentence, with the status of the answer.

    id: the id of the task that was refused; "" if the error is not about one task.
    """

    error: str
    status: int
    id: str = ""


class Index(BaseModel):
    """The version of parsync, and the paths that this process answers."""

    parsync: str
    paths: list[str]


class Document(BaseModel):
    """An OpenAPI document."""

    openapi: str


class Fresh(BaseModel):
    """The age of an answer."""

    age_s: float | None
    stale: bool
    now_ms: int
    error: str = ""


class Page(Fresh, Generic[T]):
    """A page of a list. total: the number of items in the whole list."""

    total: int
    limit: int
    offset: int
    items: list[T]


class Partitions(Page[PartitionView]):
    """A page of partitions. evenness: how unlike all partitions are."""

    evenness: Evenness


Nodes = Page[NodeView]
Schedulers = Page[SchedulerView]
Kinds = Page[KindView]
Names = Page[NameView]
Tenants = Page[TenantView]
Limits = Page[LimitView]


class OneNode(Fresh):
    """The answer about one node."""

    node: NodeView


class WantedNodes(BaseModel):
    """The smallest nodes that could hold tasks of a shape.

    like: the name of one of them.
    nodes: how many of them all tasks of the shape need.
    """

    like: str
    nodes: int


class Shape(BaseModel):
    """Waiting tasks with equal needs.

    reasons: reason class -> number of tasks that wait for it.
    node_class: null if no node that is there could hold such a task.
    """

    needs: str
    waiting: int
    slots: int
    resources: Mapping[str, float]
    reasons: Mapping[str, int]
    node_class: WantedNodes | None


class Demand(Fresh):
    """The slots and machines that waiting tasks want.

    machines: null if none is described.
    idle_nodes: the nodes like the machine that have held nothing for five minutes, and could go: a
        node in the warm set of a key of running tasks stays.
    """

    waiting_tasks: int
    waiting_slots: int
    held_slots: int
    wanted_slots: int
    nodes: int
    machines: int | None
    shapes: list[Shape]
    idle_nodes: list[str]


class TaskList(BaseModel):
    """A list of tasks, with tasks that have not ended first.

    part: why the list may lack tasks; "" if it is complete.
    """

    limit: int
    part: str
    items: list[TaskStatus]


class OneTask(BaseModel):
    """A task. Its state is `gone` if nothing is known of the task."""

    task: TaskStatus


class OneExplanation(BaseModel):
    """The explanation of a task. Its outlook is `gone` if nothing is known of the task."""

    explanation: Explanation


class EventList(BaseModel):
    """The newest events, the oldest first. now_ms: the time of the server."""

    limit: int
    now_ms: int
    items: list[Event]


class OwnTask(BaseModel):
    """A task as its submitter sees the task.

    waits_for: the class of the reason why the task waits.
    outcome: why the task failed, was cancelled or died.
    """

    id: str
    name: str
    state: TaskState
    node: str | None
    attempt: int
    starts: int
    times: Mapping[str, int | None]
    cancel_asked: bool
    waits_for: str
    outcome: str


class OneOwnTask(BaseModel):
    """A task of this submitter."""

    task: OwnTask


class SentOne(BaseModel):
    """A task of a request. state: `submitted`, or `exists` if it was there before."""

    id: str
    url: str
    state: str


class SentTasks(BaseModel):
    """The answers to the tasks of a list, in the order of the list.

    error, status: those of the first task that was refused.
    """

    tasks: list[SentOne | Error]
    error: str = ""
    status: int = 0


class Cancelled(BaseModel):
    """A task that is cancelled (`cancelled`), or whose node is asked to end it (`asked`)."""

    id: str
    state: str
