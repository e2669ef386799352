"""The two components of a Celery app that parsync extends.

`app.amqp` sends tasks, `app.control` revokes tasks.

The classes of the components are derived from the app's own classes, whatever these are. Pools that
spawn pickle the app. A pickled app carries the app's own classes, and gets its Parsync again where
the app is unpickled.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from celery import Celery
from celery.app.amqp import AMQP
from celery.app.control import Control
from celery.utils.imports import symbol_by_name

from ..errors import InvalidInput, ParsyncError
from ..model.ids import shown
from ..wire.tenant import TENANT_HEADER, inherited_tenant
from .options import refuse_options_beside, warn_of_misspelt
from .port import ParsyncPort
from .publish import Capture, operational
from .refusals import refusal_here

DeclaredLimits = Mapping[str, int | Mapping[str, object]]
"""The limits that an app declares, by name or pattern: see `Parsync`."""


class Source(NamedTuple):
    """The class, url, cluster and limits with which an app got its Parsync."""

    attach: Callable[[Celery, str | None, str | None, DeclaredLimits | None], ParsyncPort]
    url: str | None
    cluster: str | None
    limits: DeclaredLimits | None


def extend(app: Celery, name: str, source: Source) -> None:
    """Replace the class of an app's component by a derived class.

    The app may have made the component already.
    """
    setattr(app, f"{name}_cls", derive(name, symbol_by_name(getattr(app, f"{name}_cls")), source))
    if name in app.__dict__:
        component = app.__dict__[name]
        component.__class__ = derive(name, type(component), source)
        component.__dict__.pop("_parsync_sender", None)  # of the Parsync that a loader had made


class Derived(type):
    """The metaclass of the classes that `derive` makes.

    parsync_of: the arguments with which `derive` made the class.

    Such a class is pickled as a call of `derive`, because no module has a name for it.
    """

    parsync_of: tuple[str, type, Source]


def derive(name: str, base: type, source: Source) -> Derived:
    """Return the class of the component `name`, derived from the app's own class.

    `base` may be a derived class itself.
    """
    if isinstance(base, Derived):
        if base.parsync_of[2] == source:
            return base
        base = base.parsync_of[1]
    body = _AMQP if name == "amqp" else _Control
    members = {
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "parsync_of": (name, base, source),
    }
    return Derived(base.__name__, (body, base), members)


copyreg.pickle(Derived, lambda derived: (derive, derived.parsync_of))


def parsync_of(component: AMQP | Control) -> ParsyncPort:
    """Return the Parsync of a component's app, which an unpickled app gets here."""
    app = component.app
    if getattr(app, "parsync", None) is None:
        source: Source = component.parsync_of[2]
        return source.attach(app, source.url, source.cluster, source.limits)
    parsync: ParsyncPort = app.parsync
    return parsync


class _AMQP(AMQP):
    """Celery's AMQP, which gives messages with parsync options to parsync."""

    @property
    def send_task_message(self) -> Callable[..., object]:
        """Celery's sender of task messages, with a fork at its entry."""
        sender: Callable[..., object] | None = self.__dict__.get("_parsync_sender")
        if sender is None:
            sender = self.__dict__["_parsync_sender"] = _make_sender(
                parsync_of(self), self._create_task_sender()
            )
        return sender


def _make_sender(parsync: ParsyncPort, plain: Callable[..., object]) -> Callable[..., object]:
    # Any: Celery's arguments, which go on as they are
    def send_task_message(
        producer: Any, name: str, message: Any, *args: Any, headers: Any = None, **kw: Any
    ) -> object:
        call = kw.pop("parsync", None)
        warn_of_misspelt(kw, stacklevel=4)  # the caller of apply_async
        if headers and not isinstance(headers, Mapping):
            raise InvalidInput(f"headers={shown(headers)} is not valid: it must be a mapping")
        carried = (headers or {}).get("parsync", message.headers.get("parsync"))
        try:
            options = parsync.options_of(name, carried, call)
            if options is not None:
                refuse_options_beside(name, kw)
                return plain(
                    Capture(producer, parsync, name, options),
                    name,
                    message,
                    *args,
                    headers=headers,
                    **kw,
                )
        except InvalidInput as error:
            raise refusal_here(error) from None
        if call is False:
            # so that its retries stay with the broker
            headers = {**(headers or {}), "parsync": False}
        if tenant := inherited_tenant():
            headers = {TENANT_HEADER: tenant, **(headers or {})}
        return plain(producer, name, message, *args, headers=headers, **kw)

    return send_task_message


class _Control(Control):
    """Celery's control, whose revoke and purge also reach parsync's queue."""

    def revoke(
        self,
        task_id: object,
        destination: object = None,
        terminate: bool = False,
        signal: object = "SIGTERM",
        **kwargs: object,
    ) -> object:
        """Cancel tasks in the queue, then broadcast as Celery does.

        So a waiting task cannot start meanwhile. If parsync's server fails, the workers are told
        all the same: the task may be an ordinary task.
        """
        parsync = parsync_of(self)
        broadcast = partial(
            super().revoke,
            task_id,
            destination=destination,
            terminate=terminate,
            signal=signal,
            **kwargs,
        )
        try:
            all_cancelled = parsync.revoke(task_id, terminate, signal)
        except InvalidInput:
            raise
        except ParsyncError as error:
            broadcast()
            raise operational(error) from None
        if not all_cancelled or kwargs.get("reply"):
            return broadcast()
        parsync.background.do(broadcast)  # the tasks are cancelled, whatever the broker does
        return None

    def purge(self, connection: object = None) -> int:
        """Discard what waits in the broker's queues and in parsync's queue.

        In parsync's queue these are the tasks that this app knows. Returns the number of tasks.
        """
        discarded: int = super().purge(connection=connection)
        return discarded + parsync_of(self).purge()

    discard_all = purge
