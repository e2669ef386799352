"""The answers of the API as types, for its OpenAPI document.

The values in them are those that the commands print.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from pydantic import BaseModel

from ..model.events import Event
from ..model.explanation import Explanation
from ..model.status import TaskStatus
from ..model.task import TaskState
from ..model.views import Evenness, KindView, NameView, NodeView, PartitionView
from ..store.reads.schedulers import SchedulerView

T = TypeVar("T")


class Error(BaseModel):
    """An error in one sentence, and the status of the answer. id: of the task that was refused."""

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
    """How old the answer is, and the server's time (ms) of it.

    error: why the last reading failed.
    """

    age_s: float | None
    stale: bool
    now_ms: int
    error: str = ""


class Page(Fresh, Generic[T]):
    """A page of a list, and how many items there are in all."""

    total: int
    limit: int
    offset: int
    items: list[T]


class Partitions(Page[PartitionView]):
    """A page of partitions, and how unlike all partitions are."""

    evenness: Evenness


Nodes = Page[NodeView]
Schedulers = Page[SchedulerView]
Kinds = Page[KindView]
Names = Page[NameView]


class OneNode(Fresh):
    """A node."""

    node: NodeView


class Shape(BaseModel):
    """Waiting tasks with equal needs. reasons: how many wait for each reason."""

    needs: str
    waiting: int
    slots: int
    resources: Mapping[str, float]
    reasons: Mapping[str, int]


class Demand(Fresh):
    """The slots and machines that are wanted. machines: null if no machine is described."""

    waiting_tasks: int
    waiting_slots: int
    held_slots: int
    wanted_slots: int
    nodes: int
    machines: int | None
    shapes: list[Shape]


class TaskList(BaseModel):
    """Tasks, those that have not ended first.

    part: why these are not all there are, '' if that is not so.
    """

    limit: int
    part: str
    items: list[TaskStatus]


class OneTask(BaseModel):
    """A task; its state is `gone` if nothing is known of it."""

    task: TaskStatus


class OneExplanation(BaseModel):
    """The explanation of a task; its outlook is `gone` if nothing is known of it."""

    explanation: Explanation


class EventList(BaseModel):
    """The newest events, the oldest first, and the server's time (ms)."""

    limit: int
    now_ms: int
    items: list[Event]


class OwnTask(BaseModel):
    """A task as its submitter sees it.

    waits_for: a reason. outcome: why it failed, was cancelled, or died.
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
    """A task that was submitted, or exists. state: submitted or exists."""

    id: str
    url: str
    state: str


class SentTasks(BaseModel):
    """The answer to each task of a list, in its order.

    error, status: of the first that was refused.
    """

    tasks: list[SentOne | Error]
    error: str = ""
    status: int = 0


class Cancelled(BaseModel):
    """A task that is cancelled, or whose node is asked to end it: state is cancelled or asked."""

    id: str
    state: str
