"""The two components of a Celery app that parsync takes part in: `app.amqp` sends, `app.control` revokes.

Their classes are derived from the app's own, whatever those are. An app that is pickled (for pools that spawn) carries
them as what they are derived from, and gets its Parsync anew where it is unpickled.
"""

from __future__ import annotations

import copyreg
from functools import partial
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.utils.imports import symbol_by_name

from ..errors import InvalidInput, ParsyncError
from .publish import Capture, operational

if TYPE_CHECKING:
    from .app import Parsync

Address = tuple[str | None, str | None]
"""The url and cluster that Parsync was given."""


def extend(app: Celery, name: str, address: Address) -> None:
    """Derives the class of a component: of the one that the app will make when it needs it, or has made already."""
    setattr(app, f"{name}_cls", derive(name, symbol_by_name(getattr(app, f"{name}_cls")), address))
    if name in app.__dict__:
        component = app.__dict__[name]
        component.__class__ = derive(name, type(component), address)
        component.__dict__.pop("_parsync_sender", None)  # of the Parsync that a loader had made


class Derived(type):
    """The class of a derived class: it is pickled as a call of `derive`, because no module has it by a name."""

    parsync_of: tuple[str, type, Address]


def derive(name: str, base: type, address: Address) -> type:
    """The class of the component `name`, derived from the app's own, not from what was derived before."""
    if isinstance(base, Derived):
        if base.parsync_of[2] == address:
            return base
        base = base.parsync_of[1]
    body = _AMQP if name == "amqp" else _Control
    members = {"__module__": base.__module__, "__doc__": base.__doc__, "parsync_of": (name, base, address)}
    return Derived(base.__name__, (body, base), members)


def _reduce(derived: Any) -> tuple[Any, ...]:
    return derive, derived.parsync_of


copyreg.pickle(Derived, _reduce)


def parsync(component: Any) -> Parsync:
    """The Parsync of a component's app; made anew for an app that was pickled."""
    app = component.app
    if getattr(app, "parsync", None) is None:
        from .app import Parsync

        Parsync(app, *component.parsync_of[2])
    found: Parsync = app.parsync
    return found


class _AMQP:
    """Celery's AMQP, of which messages with parsync options go to parsync."""

    @property
    def send_task_message(self: Any) -> Any:
        """Celery's sender of task messages, with a fork at its entry."""
        made = self.__dict__.get("_parsync_sender")
        if made is None:
            made = self.__dict__["_parsync_sender"] = _make_sender(parsync(self), self._create_task_sender())
        return made


def _make_sender(parsync: Parsync, plain: Any) -> Any:
    def send_task_message(
        producer: Any, name: str, message: Any, *args: Any, headers: Any = None, **kwargs: Any
    ) -> Any:
        call = kwargs.pop("parsync", None)
        carried = (headers or {}).get("parsync", message.headers.get("parsync"))
        wish = parsync.wish(name, carried, call)
        if wish is not None:
            return plain(Capture(producer, parsync, name, wish), name, message, *args, headers=headers, **kwargs)
        if call is False:
            headers = {**(headers or {}), "parsync": False}  # so that its retries stay with the broker
        return plain(producer, name, message, *args, headers=headers, **kwargs)

    return send_task_message


class _Control:
    """Celery's control, of which revoke also cancels in parsync's queue, where a broadcast does not reach."""

    def revoke(
        self, task_id: Any, destination: Any = None, terminate: bool = False, signal: Any = "SIGTERM", **kwargs: Any
    ) -> Any:
        """Cancels in the queue first, so that what waits cannot start meanwhile; then as ever.

        If parsync's server does not do it, the workers are told all the same: the task may be an ordinary one.
        """
        found = parsync(self)
        celery: Any = super()
        broadcast = partial(
            celery.revoke, task_id, destination=destination, terminate=terminate, signal=signal, **kwargs
        )
        try:
            ours = found.revoke(task_id, terminate, signal)
        except InvalidInput:
            raise
        except ParsyncError as error:
            broadcast()
            raise operational(error) from None
        if not ours or kwargs.get("reply"):
            return broadcast()
        return found.background.do(broadcast)  # they are cancelled, whatever the broker does

    def purge(self: Any, connection: Any = None) -> int:
        """Discards what waits: in the broker's queues as ever, and in parsync's the tasks that this app knows."""
        celery: Any = super()
        discarded: int = celery.purge(connection=connection)
        return discarded + parsync(self).purge()

    discard_all = purge
