"""Values that a shell completes: nodes, names and ids, read from the cluster.

If the cluster does not answer within a second, the shell gets nothing.
"""

import signal
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

import typer

COMPLETION_TIMEOUT_S: Final = 1.0
"""Limit of the time for which a person waits for the shell."""

MAX_OFFERED: Final = 200
"""Maximum number of values that a shell is offered."""


def complete_node(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of nodes."""
    return _complete(ctx, incomplete, _nodes)


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tasks that workers know."""
    return _complete(ctx, incomplete, _names)


def complete_id(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return ids of tasks that have not ended, and `last`."""
    return _complete(ctx, incomplete, _ids)


def complete_state(incomplete: str) -> list[str]:
    """Return the states of tasks."""
    from .states import STATE_WORDS

    return [word for word in STATE_WORDS if word.startswith(incomplete)]


def _nodes(client: Any) -> Iterable[str]:
    return [node.name for node in client.nodes()]


def _names(client: Any) -> Iterable[str]:
    from ..store.reads.views import read_names

    names: list[str] = client.requests.do(lambda: read_names(client.store))
    return names


def _ids(client: Any) -> Iterable[str]:
    from ..store.reads.tasks import UNENDED, list_tasks

    tasks = client.requests.do(lambda: list_tasks(client.store, UNENDED, MAX_OFFERED))
    return ["last", *(task.id for task in tasks)]


def _complete(
    ctx: typer.Context, incomplete: str, read: Callable[[Any], Iterable[str]]
) -> list[str]:
    """Return the values that begin with `incomplete`.

    Return nothing at any error: a message would stand in the middle of the user's line.
    """
    from ..errors import ParsyncError
    from .common import make_client

    flags = ctx.params
    before = signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, COMPLETION_TIMEOUT_S)
    try:
        with make_client(
            flags.get("url"), flags.get("cluster"), flags.get("config"), retry_for_s=0
        ) as client:
            return [value for value in read(client) if value.startswith(incomplete)][:MAX_OFFERED]
    except (ParsyncError, TimeoutError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError
