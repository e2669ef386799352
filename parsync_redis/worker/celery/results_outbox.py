"""The results outbox: the tasks of which the result backend must still be told.

No worker saw their end (cancelled, dead), the backend did not take their result (failed), or an
operator revived them (pending). A process that has the task's app tells the backend.
"""

import logging
import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from billiard.exceptions import WorkerLostError
from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import DisabledBackend
from kombu.transport.virtual import Message
from redis.exceptions import OutOfMemoryError, RedisError

from ...errors import ParsyncError, ServerUnreachable
from ...model.ids import decode_id
from ...model.kind import split_kind
from ...store.repair.quarantine import quarantine
from ...store.server.server_errors import AWAY, translate
from ...store.store import Store
from ...wire.envelope import open_envelope
from ...wire.tenant import submitting_for
from .celery_types import SendEvent
from .delivered_message import as_message

log = logging.getLogger("parsync.agent")

MAX_ANNOUNCED: Final = 100
"""Maximum number of entries of a shard that are announced at a time."""

Owed = deque[tuple[str, bytes]]
"""Entries that were taken from an outbox and that the server refused to take back.

Each has the key of its outbox.
"""

_OUTBOX_ENTRY = re.compile(
    rb"[A-Za-z0-9%][A-Za-z0-9%_.:@+-]{0,3059} (?:cancelled|dead|failed|pending)(?: [ -~]*)?"
)


def announce(store: Store, app: Celery, owed: Owed, send_event: SendEvent | None = None) -> int:
    """Tell the result backend of the oldest entries of each shard; return how many.

    owed: what earlier calls could not put back. It is put back first.
    """
    done = 0
    keys = store.keys.queues("outbox")
    put_back(store, owed)
    for shard, entries in enumerate(
        store.pipe_each([("lrange", key, -MAX_ANNOUNCED, -1) for key in keys])
    ):
        if isinstance(entries, Exception):
            # the entries of a server that is away wait
            if not isinstance(entries, ServerUnreachable):
                raise entries
        elif entries:
            try:
                done += _announce_shard(store, app, shard, reversed(entries), owed, send_event)
            except (ParsyncError, RedisError, OSError) as error:
                _raise_unless_one_shards(store, error)
    return done


def put_back(store: Store, owed: Owed) -> None:
    """Put back the entries that are owed to each shard's outbox.

    An entry that a shard refuses stays owed.
    """
    for _ in range(len(owed)):
        try:
            _put_back(store.client, *owed.popleft(), owed)
        except IndexError:  # another thread has put back the last entry
            return
        except (RedisError, OSError) as error:
            _raise_unless_one_shards(store, error)


def _raise_unless_one_shards(store: Store, error: Exception) -> None:
    """Raise an error, unless it concerns one of several shards.

    Entries of the other shards do not wait for that shard.
    """
    if not store.several or not isinstance(translate(store.address, error), AWAY):
        raise error


def announce_entries(
    store: Store,
    app: Celery,
    entries: Sequence[str],
    owed: Owed,
    send_event: SendEvent | None = None,
) -> int:
    """Tell the result backend of these entries; return how many. owed: see `announce`."""
    put_back(store, owed)
    count = 0
    for shard, shard_entries in store.keys.by_shard(entries, lambda entry: entry.partition(" ")[0]):
        encoded = [entry.encode() for entry in shard_entries]
        count += _announce_shard(store, app, shard, encoded, owed, send_event)
    return count


def _announce_shard(
    store: Store,
    app: Celery,
    shard: int,
    entries: Iterable[bytes],
    owed: Owed,
    send_event: SendEvent | None,
) -> int:
    """Tell the result backend of these entries of a shard; return how many.

    One process announces an entry. If the backend is away or the app does not know the task, the
    entry goes back to the outbox.
    """
    client: Any = store.client  # Any: redis-py says that each reply may be awaitable
    key = store.keys.queue("outbox", shard)
    done = 0
    try:
        # this command changes nothing; a full server refuses it
        client.zadd(store.keys.queue("changed", shard), {"": 0}, xx=True)
    # a full server would take no result, and an entry taken from the list could not be put back
    except OutOfMemoryError:
        return done
    for entry in entries:
        if client.lrem(key, -1, entry) != 1:
            continue
        if not _OUTBOX_ENTRY.fullmatch(entry):
            quarantine(store, key, "not an entry of the outbox", entry)
            continue
        id = entry.decode().partition(" ")[0]
        is_announced = False
        try:
            name, state, message = _look_up(store, id)
            if not name or name in app.tasks:
                _tell(app, entry.decode(), message, state, send_event)
                is_announced = True
                done += 1
        except Exception as error:
            log.warning("the result %r waits for the result backend: %r", entry, error)
        if not is_announced:
            _put_back(client, key, entry, owed)
    return done


# Any: redis-py says that each reply may be awaitable
def _put_back(client: Any, key: str, entry: bytes, owed: Owed) -> None:
    """Put back an entry that was taken. If the server refuses, the entry is owed."""
    try:
        client.lpush(key, entry)
    except (RedisError, OSError):
        owed.append((key, entry))
        raise


def _look_up(store: Store, id: str) -> tuple[str, str, bytes | None]:
    """Return the name, state and message of a task; '' and None where they are gone."""
    record = store.records([id], extras=False)[0]
    messages = store.keys.in_shard_of("messages", id)
    extra = store.keys.extra(id)
    message, ended_message = store.pipe([("hget", messages, id), ("hget", extra, "message")])
    name = split_kind(record.line.kind).name if record.line else ""
    return name, record.state, message or ended_message


def can_announce(app: Celery) -> bool:
    """Return True if this app has a result backend, and so can announce entries."""
    return not isinstance(app.backend, DisabledBackend)


def _tell(
    app: Celery, entry: str, message: bytes | None, now: str, send_event: SendEvent | None
) -> None:
    """Tell the backend of one entry, unless the task is in another state by now.

    now: the task's present state; gone if its record has expired. The state is another if an
    operator has revived the task, or its id was published again.
    """
    key, state, why = (*entry.split(" ", 2), "", "")[:3]
    id = decode_id(key)
    if state != "pending" and now not in ("gone", state):
        return
    context = context_of(app, message) if message else Context(id=id)
    with submitting_for(context):
        _mark(app, id, state, why, context, send_event)


def _mark(
    app: Celery, id: str, state: str, why: str, context: Context, send_event: SendEvent | None
) -> None:
    """Mark a task as revoked, retried or failed in the backend, and send the event."""
    if state == "cancelled":
        app.backend.mark_as_revoked(
            id, why or "cancelled", request=context, store_result=not context.ignore_result
        )
        if send_event:
            send_event("task-revoked", uuid=id, terminated=False, signum=None, expired=False)
    elif state == "pending":
        if _says_dead(app, id):
            error = WorkerLostError(why)
            app.backend.mark_as_retry(
                id, error, request=context, store_result=not context.ignore_result
            )
            if send_event:
                send_event("task-retried", uuid=id, exception=repr(error), traceback="")
    else:
        error = WorkerLostError(why)
        app.backend.mark_as_failure(
            id, error, request=context, store_result=not context.ignore_result
        )
        if send_event:
            send_event("task-failed", uuid=id, exception=repr(error), traceback="")


def _says_dead(app: Celery, id: str) -> bool:
    """Return True if the result backend holds the task's death.

    The result of a later run must not be overwritten.
    """
    backend = app.backend
    # a backend that cannot be read, such as rpc and the disabled one
    if not hasattr(backend, "_get_task_meta_for"):
        return False
    meta = backend.get_task_meta(id, cache=False)
    return meta.get("status") == states.FAILURE and isinstance(meta.get("result"), WorkerLostError)


def context_of(app: Celery, message: bytes) -> Context:
    """Return the request context of a task's message, as result backends need it.

    The context has the chord and the callbacks; it is empty if the message cannot be read.
    """
    try:
        payload = open_envelope(message)
        _, _, embed = as_message(app, payload, Message).decode()
    except Exception as error:
        log.warning("the message of a task that has ended cannot be read: %s", error)
        return Context()
    canvas = {k: embed.get(k) for k in ("chord", "chain", "callbacks", "errbacks")}
    delivery_info = payload["properties"].get("delivery_info") or {}  # Celery reads it for errbacks
    return Context(payload["headers"], delivery_info=delivery_info, **canvas)
