"""Verdicts: tasks that ended where no worker saw it (cancelled, dead), or were dead and are revived (pending); who has
an app tells the result backend.
"""

import logging
import re
from collections.abc import Callable, Iterable
from typing import Any

from billiard.exceptions import WorkerLostError
from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import DisabledBackend
from kombu.serialization import prepare_accept_content
from kombu.transport.virtual import Message
from redis.exceptions import OutOfMemoryError

from ..model.ids import decode_id, readable
from ..store.quarantine import quarantine
from ..store.store import Store
from ..wire.message import Decoder, open_envelope

log = logging.getLogger("parsync.agent")

MOST = 100

_VERDICT = re.compile(rb"[A-Za-z0-9%][A-Za-z0-9%_.:@+-]{0,3059} (?:cancelled|dead|failed|pending)(?: [ -~]*)?")

SendEvent = Callable[..., Any]
"""Sends an event of Celery: its type, then its fields."""


def announce(store: Store, app: Celery, send_event: SendEvent | None = None) -> int:
    """Tells the result backend of up to 100 verdicts, the oldest first. How many."""
    client: Any = store.client
    entries = client.lrange(store.keys.queue("outbox"), -MOST, -1)
    return announce_these(store, app, reversed(entries), send_event)


def announce_these(store: Store, app: Celery, entries: Iterable[bytes], send_event: SendEvent | None = None) -> int:
    """Tells the result backend of these verdicts; each is announced by one process only, whose app knows the task.

    One that cannot be told now (the backend is away), or not here, goes back to the list.
    """
    client: Any = store.client
    key, done = store.keys.queue("outbox"), 0
    try:
        client.zadd(store.keys.queue("pending"), {"": 0}, xx=True)  # nothing, but refused by a server that is full:
    except OutOfMemoryError:  # it would take no result, and what is taken from the list could not be put back
        return done
    for entry in entries:
        if client.lrem(key, -1, entry) != 1:
            continue
        if not _VERDICT.fullmatch(entry):
            quarantine(store, key, "not a verdict", entry)
            continue
        id = entry.decode().partition(" ")[0]
        name, message, state = client.hmget(store.keys.task(id), "name", "message", "state")
        told = False
        try:
            if name is None or readable(name) in app.tasks:
                _tell(app, entry.decode(), message, readable(state or b""), send_event)
                told = True
                done += 1
        except Exception as error:
            log.warning("the verdict %r waits for the result backend: %r", entry, error)
        if not told:
            client.lpush(key, entry)
    return done


def can_announce(app: Celery) -> bool:
    """Whether this app has a result backend; one without leaves verdicts to others."""
    return not isinstance(app.backend, DisabledBackend)


def _tell(app: Celery, entry: str, message: bytes | None, now: str, send_event: SendEvent | None) -> None:
    """Tells the backend of one verdict, unless the task's state `now` is another; '' if its record has expired.

    An operator may have undone its death, or its id was published again.
    """
    key, state, why = (*entry.split(" ", 2), "", "")[:3]
    id = decode_id(key)
    if state != "pending" and now not in ("", state):
        return
    context = context_of(app, message) if message else Context(id=id)
    if state == "cancelled":
        app.backend.mark_as_revoked(id, why or "cancelled", request=context, store_result=not context.ignore_result)
        if send_event:
            send_event("task-revoked", uuid=id, terminated=False, signum=None, expired=False)
    elif state == "pending":
        if _says_dead(app, id):
            error = WorkerLostError(why)
            app.backend.mark_as_retry(id, error, request=context, store_result=not context.ignore_result)
            if send_event:
                send_event("task-retried", uuid=id, exception=repr(error), traceback="")
    else:
        error = WorkerLostError(why)
        app.backend.mark_as_failure(id, error, request=context, store_result=not context.ignore_result)
        if send_event:
            send_event("task-failed", uuid=id, exception=repr(error), traceback="")


def _says_dead(app: Celery, id: str) -> bool:
    """Whether the result backend holds a task's death: only that is taken back, not the result of a run since then."""
    backend: Any = app.backend
    if not hasattr(backend, "_get_task_meta_for"):  # one that cannot be asked, such as rpc and the disabled one
        return False
    meta = backend.get_task_meta(id, cache=False)
    return meta.get("status") == states.FAILURE and isinstance(meta.get("result"), WorkerLostError)


def context_of(app: Celery, message: bytes) -> Context:
    """The request context of a task message, with its chord and callbacks, for a backend that needs to know of them."""
    try:
        payload = open_envelope(message)
        opened: Any = Message(payload, channel=Decoder(), accept=prepare_accept_content(app.conf.accept_content))
        _, _, embed = opened.decode()
    except Exception as error:
        log.warning("the message of a task that has ended cannot be read: %s", error)
        return Context()
    return Context(payload["headers"], **{k: embed.get(k) for k in ("chord", "chain", "callbacks", "errbacks")})
