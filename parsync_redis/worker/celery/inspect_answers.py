"""Placed tasks in Celery's answers to `inspect`.

The answers have the tasks that have not begun, and the tasks that are not due yet.

Celery answers with the tasks that its worker has received. A worker receives a placed task when it
begins; a delayed task is in Redis until it is due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from celery import Celery
from celery.utils.time import maybe_iso8601, maybe_make_aware
from celery.worker.control import Panel
from kombu.transport.virtual import Message

from ...model.ids import decode_id, readable
from ...model.kind import split_kind
from ...model.task import StoredState
from ...wire.envelope import open_envelope
from ..node.agent import Agent
from .delivered_message import as_message

log = logging.getLogger("parsync.agent")

MAX_LISTED_TASKS: Final = 100
"""Maximum number of tasks that an answer lists; the tasks that are due first come first."""
_MESSAGES_PER_READ: Final = 4
"""Messages in one read: each has up to 2 MiB, and the event loop waits for the read."""
_PRIORITY: Final = 6
"""The priority that Celery shows for every entry of a worker's timer."""

InspectEntry = dict[str, object]
Answer = Callable[..., list[InspectEntry]]


def extend_panel() -> None:
    """Add placed tasks to the answers of a node; other workers answer as before."""
    for name, list_ours, aliases in (
        ("reserved", reserved, ("dump_reserved",)),
        ("scheduled", scheduled, ("dump_schedule",)),
    ):
        celerys = Panel.data[name]
        if not getattr(celerys, "of_parsync", False):
            Panel.data.update(dict.fromkeys((name, *aliases), _with_ours(celerys, list_ours)))


def _with_ours(
    celerys: Answer, list_ours: Callable[[Agent, Celery, str], Iterable[InspectEntry]]
) -> Answer:
    # Any: Celery's bunch of consumer, hostname and more
    def answer(state: Any, **kwargs: object) -> list[InspectEntry]:
        entries = celerys(state, **kwargs)
        agent: Agent | None = getattr(state.consumer.controller, "parsync_agent", None)
        if agent is None or not agent.node.inc:
            return entries
        celery_ids = {_id(entry) for entry in entries}
        return entries + [
            entry
            for entry in list_ours(agent, state.app, state.hostname)
            if _id(entry) not in celery_ids
        ]

    answer.of_parsync = True  # type: ignore[attr-defined]
    return answer


def _id(entry: InspectEntry) -> str:
    request = entry.get("request", entry)
    assert isinstance(request, dict)
    return str(request["id"])


def reserved(agent: Agent, app: Celery, hostname: str) -> Iterable[InspectEntry]:
    """Yield the tasks that are placed at this node and have not begun."""
    store = agent.store
    partition = agent.node.partition
    node = store.nodes(partition).get(agent.node.name)
    keys = [lease.place.task for lease in store.leases(partition, [node])] if node else []
    for _, request, _ in _requests(
        agent, app, hostname, dict.fromkeys(keys), lambda task, state: state == StoredState.PLACED
    ):
        yield request


def scheduled(agent: Agent, app: Celery, hostname: str) -> Iterable[InspectEntry]:
    """Yield the tasks that are not due yet and whose names this worker knows.

    Each node that knows the name lists the task.
    """
    pages = agent.store.pipe(
        [
            ("zrange", key, 0, MAX_LISTED_TASKS - 1, False, True)
            for key in agent.store.keys.queues("later")
        ]
    )
    first = sorted((ms, id) for page in pages for id, ms in page)[:MAX_LISTED_TASKS]
    due = {readable(id): ms for ms, id in first}
    for id, request, carried in _requests(
        agent, app, hostname, due, lambda task, state: task in app.tasks
    ):
        yield {"eta": _eta(app, due[id], carried), "priority": _PRIORITY, "request": request}


def _requests(
    agent: Agent,
    app: Celery,
    hostname: str,
    keys: Iterable[str],
    is_wanted: Callable[[str, str], bool],
) -> Iterable[tuple[str, InspectEntry, object]]:
    """Yield the first wanted tasks, without damaged ones.

    Yields for each task its id as keys have it, its entry, and the ETA that its caller named or
    None. is_wanted: a function of the name and the stored state of a task.
    """
    store = agent.store
    names = dict[str, str]()
    for task in store.records(keys, extras=False):
        name = split_kind(task.line.kind).name if task.line else ""
        if name and is_wanted(name, task.state):
            names[task.id] = name
    ids = list(names)[:MAX_LISTED_TASKS]
    for start in range(0, len(ids), _MESSAGES_PER_READ):
        batch = ids[start : start + _MESSAGES_PER_READ]
        messages = store.pipe(
            [("hget", store.keys.in_shard_of("messages", id), id) for id in batch]
        )
        for key, message in zip(batch, messages, strict=True):
            try:
                if message is not None:
                    payload = open_envelope(message)
                    entry = _request(app, hostname, decode_id(key), names[key], payload)
                    yield key, entry, (payload["headers"].get("parsync") or {}).get("eta")
            # a client may write any message, and kombu raises what it does
            except Exception as error:
                log.debug("inspect leaves out task %s: %s", key, error)


def _eta(app: Celery, due_ms: float, asked_eta: object) -> str:
    """Return when a task is due, in ISO 8601.

    The caller's ETA counts, to the microsecond, unless the task was put off since then.
    """
    due = datetime.fromtimestamp(due_ms / 1000, UTC).astimezone(app.timezone)
    try:
        eta = maybe_make_aware(maybe_iso8601(asked_eta), app.timezone) if asked_eta else due
        return str((eta if eta > datetime.now(UTC) else due).isoformat())
    except (TypeError, ValueError, OverflowError, AttributeError):  # a client may write any header
        return due.isoformat()


# Any: an envelope is a JSON object
def _request(
    app: Celery, hostname: str, id: str, name: str, payload: dict[str, Any]
) -> InspectEntry:
    """Return a task as Celery's `Request.info` shows it.

    Arguments that cannot be read are shown as the sender described them.
    """
    headers = payload["headers"]
    opened = as_message(app, payload, Message)
    try:
        args, kwargs, _ = opened.decode()
    except Exception:
        args = headers.get("argsrepr")
        kwargs = headers.get("kwargsrepr")
    return {
        "id": id,
        "name": name,
        "args": args,
        "kwargs": kwargs,
        "type": name,
        "hostname": hostname,
        "time_start": None,
        "acknowledged": False,
        "delivery_info": {
            **opened.delivery_info,
            "priority": opened.properties.get("priority"),
            "redelivered": False,
        },
        "worker_pid": None,
    }
