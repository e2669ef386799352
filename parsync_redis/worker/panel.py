"""What a node adds to Celery's answers to `inspect`: placed tasks that have not begun, and tasks that are not due yet.

Celery's own answers tell of what its worker has received. A placed task is received when it begins, and one that waits
for its time is in Redis until it is due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from celery.worker.control import Panel
from kombu.serialization import prepare_accept_content
from kombu.transport.virtual import Message

from ..model.ids import decode_id, readable
from ..model.task import TaskState
from ..store.store import Store
from ..wire.message import Decoder, open_envelope

if TYPE_CHECKING:
    from .agent import Agent

log = logging.getLogger("parsync.agent")

MOST: Final = 100
"""The most tasks that an answer lists: of those that are not due, the ones that are due first."""
_AT_ONCE: Final = 4
"""Messages that are read at a time: each has up to 2 MiB, and the worker's event loop waits for them."""
_PRIORITY: Final = 6
"""The priority of an entry in the timer of Celery's worker, which is the same for all."""

Entry = dict[str, Any]


def extend_panel() -> None:
    """Puts our answers over Celery's; those of a worker that is no node stay what they were."""
    for name, more, aliases in (
        ("reserved", reserved, ("dump_reserved",)),
        ("scheduled", scheduled, ("dump_schedule",)),
    ):
        celerys = Panel.data[name]
        if not getattr(celerys, "of_parsync", False):
            Panel.data.update(dict.fromkeys((name, *aliases), _with_ours(celerys, more)))


def _with_ours(
    celerys: Callable[..., list[Entry]], more: Callable[[Agent, str], Iterable[Entry]]
) -> Callable[..., Any]:
    def answer(state: Any, **kwargs: Any) -> list[Entry]:
        found = celerys(state, **kwargs)
        agent = getattr(state.consumer.controller, "parsync_agent", None)
        if agent is None or not agent.inc:
            return found
        known = {_id(entry) for entry in found}
        return found + [entry for entry in more(agent, state.hostname) if _id(entry) not in known]

    answer.of_parsync = True  # type: ignore[attr-defined]
    return answer


def _id(entry: Entry) -> str:
    return str(entry.get("request", entry)["id"])


def reserved(agent: Agent, hostname: str) -> Iterable[Entry]:
    """Tasks that are placed at this node and have not begun."""
    store, name = agent.store, agent.spec.name
    node = store.nodes(agent.partition).get(name)
    keys = [lease.task for lease in store.leases(agent.partition, [node])] if node else []
    for _, request in _requests(agent, hostname, dict.fromkeys(keys), lambda task, state: state == TaskState.PLACED):
        yield request


def scheduled(agent: Agent, hostname: str) -> Iterable[Entry]:
    """Tasks that are not due yet, of names that this worker knows; every node that knows a name lists them."""
    client: Any = agent.store.client
    key = agent.store.keys.queue("later")
    due = {readable(id): ms for id, ms in client.zrange(key, 0, MOST - 1, withscores=True)}
    for id, request in _requests(agent, hostname, due, lambda task, state: task in agent.app.tasks):
        eta = datetime.fromtimestamp(due[id] / 1000, UTC).astimezone(agent.app.timezone)
        yield {"eta": eta.isoformat(), "priority": _PRIORITY, "request": request}


def _requests(
    agent: Agent, hostname: str, keys: Iterable[str], wanted: Callable[[str, str], bool]
) -> Iterable[tuple[str, Entry]]:
    """The first tasks whose name and state are wanted, by their ids as keys have them; damaged ones are left out."""
    found: dict[str, str] = {}
    for key, (name, state) in _fields(agent.store, list(keys), "name", "state"):
        if name is not None and state is not None and wanted(readable(name), readable(state)):
            found[key] = readable(name)
    some = list(found)[:MOST]
    for at in range(0, len(some), _AT_ONCE):
        for key, (message,) in _fields(agent.store, some[at : at + _AT_ONCE], "message"):
            try:
                if message is not None:
                    yield key, _request(agent.app, hostname, decode_id(key), found[key], message)
            except Exception as error:  # a client may write any message, and kombu raises what it does
                log.debug("inspect leaves out task %s: %s", key, error)


def _fields(store: Store, keys: list[str], *names: str) -> list[tuple[str, list[bytes | None]]]:
    """These fields of each task's record; one round trip."""
    rows = store.pipe([("hmget", store.keys.task(key), names) for key in keys])
    return list(zip(keys, rows, strict=True))


def _request(app: Any, hostname: str, id: str, name: str, message: bytes) -> Entry:
    """A task as Celery's `Request.info` shows it; of arguments that cannot be read, their sender's description."""
    payload = open_envelope(message)
    headers, make = payload["headers"], cast(Any, Message)
    opened = make(payload, channel=Decoder(), accept=prepare_accept_content(app.conf.accept_content))
    try:
        args, kwargs, _ = opened.decode()
    except Exception:
        args, kwargs = headers.get("argsrepr"), headers.get("kwargsrepr")
    return {
        "id": id,
        "name": name,
        "args": args,
        "kwargs": kwargs,
        "type": name,
        "hostname": hostname,
        "time_start": None,
        "acknowledged": False,
        "delivery_info": opened.delivery_info,
        "worker_pid": None,
    }
