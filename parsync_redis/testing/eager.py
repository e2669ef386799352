"""Eager calls that are checked.

A task runs where it is called, if a submit would have accepted it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from inspect import signature
from typing import Any, Final

from celery import Celery, Task
from kombu.utils.uuid import uuid

from ..errors import InvalidInput
from ..integration.port import Options, ParsyncPort
from ..integration.publish import Capture
from ..model.ids import encode_id
from ..model.needs import QUEUE_LABEL, Resources, without
from ..model.options import TaskOptions
from ..placement.fits import fits
from ..submission import check_headers, infeasible
from .nodes import offer_of

_MESSAGE: Final = ("countdown", "eta", "expires", "time_limit", "soft_time_limit", "headers")
"""Options of a call that go into the message."""


class Eager:
    """Celery's `task_always_eager` for an app, with the checks of a submit.

    A bad option raises the error that a submit raises.

    Use an Eager in a `with`. Call it with nodes, `eager(nodes=[{"slots": 2}])`, to refuse tasks
    that none of the nodes could ever hold. Each node is a mapping of slots, resources, labels and
    taints.
    """

    def __init__(self, app: Celery) -> None:
        if getattr(app, "parsync", None) is None:
            raise InvalidInput(
                f"the app {app.main} has no Parsync: call Parsync(app) where the app is made"
            )
        self.app = app
        self._offers: dict[str, Resources] = {}
        self._before: tuple[Any, bool] | None = None

    def __call__(self, nodes: Iterable[Mapping[str, Any]] = ()) -> None:
        """Set the nodes from now on; without nodes every valid task is accepted.

        Raises InvalidInput.
        """
        self._offers = {f"n{number}": offer_of(node) for number, node in enumerate(nodes, 1)}

    def __enter__(self) -> "Eager":
        self._before = Task.apply, self.app.conf.task_always_eager
        Task.apply = _checked(Task.apply, self)
        self.app.conf.task_always_eager = True
        return self

    def __exit__(self, *_: object) -> None:
        assert self._before is not None
        Task.apply, self.app.conf.task_always_eager = self._before

    def check(
        self, task: Task, args: Any, kwargs: Any, id: str, options: Mapping[str, Any]
    ) -> None:
        """Make the message of a call as a submit does, and judge the message.

        Raises what a submit raises.
        """
        parsync: ParsyncPort = self.app.parsync
        carried = check_headers(options.get("headers")).get("parsync")
        parsync_options = parsync.options_of(task.name, carried, options.get("parsync"))
        if parsync_options is None:
            return
        amqp = self.app.amqp
        message = amqp.create_task_message(id, task.name, args, kwargs, **_some(options, _MESSAGE))
        routing_options = {
            name: value for name, value in options.items() if name not in (*_MESSAGE, "parsync")
        }
        routed = amqp.router.route(routing_options, task.name, args or (), kwargs or {})
        queue = routed.pop("queue", None)
        if queue is not None:
            routed["exchange"] = queue.exchange
            routed["routing_key"] = queue.routing_key
        routed.setdefault("serializer", self.app.conf.task_serializer)
        publish_options = _some(
            routed, ("exchange", "routing_key", "serializer", "compression", "priority")
        )
        with self.app.producer_or_acquire() as producer:
            capture = Capture(producer, _Checking(parsync, self.judge), task.name, parsync_options)
            capture.publish(message.body, headers={**message.headers}, **publish_options)

    def judge(self, name: str, options: TaskOptions) -> None:
        """Raise Infeasible if there are nodes and none could ever hold the task."""
        needs = without(options.needs, QUEUE_LABEL)
        if options.wait_for_capacity or not self._offers:
            return
        if not any(fits(offer, needs) for offer in self._offers.values()):
            raise infeasible(name, needs, self._offers)


class _Checking:
    """Checks a message where Parsync would submit it."""

    def __init__(self, parsync: ParsyncPort, judge: Callable[[str, TaskOptions], None]) -> None:
        self._parsync = parsync
        self._judge = judge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parsync, name)

    def submit(
        self,
        name: str,
        id: str,
        message: bytes,
        options: Options,
        queue: str,
        delay_ms: int | None,
        expiry_ms: int | None = None,
        pauses: Iterator[float] | None = None,
        as_recorded: bool = False,
    ) -> None:
        """Check what Parsync.submit checks."""
        encode_id(id)
        self._judge(name, TaskOptions.of(options, queue))


def _checked(plain: Callable[..., Any], eager: Eager) -> Callable[..., Any]:
    """Return Task.apply with the check before it.

    Celery runs each eager call of a task or a canvas through Task.apply.
    """
    form = signature(plain)

    @wraps(plain)
    def apply(task: Task, *args: Any, **kwargs: Any) -> Any:
        if task.app is eager.app:
            call = form.bind(task, *args, **kwargs).arguments
            options = {
                **task._get_exec_options(),
                **call.get("options", {}),
                "headers": call.get("headers"),
            }
            eager.check(
                task, call.get("args"), call.get("kwargs"), call.get("task_id") or uuid(), options
            )
        return plain(task, *args, **kwargs)

    return apply


def _some(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}
