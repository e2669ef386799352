"""Values that a shell completes, from the cluster.

A shell gets nothing if that does not answer at once.
"""

import signal
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

import typer

WAIT_S: Final = 1.0
"""A person waits for the shell meanwhile."""

MOST: Final = 200
"""So many values are offered."""


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

    found: list[str] = client.requests.do(lambda: read_names(client.store))
    return found


def _ids(client: Any) -> Iterable[str]:
    from ..store.reads.tasks import UNENDED, list_tasks

    return [
        "last",
        *(task.id for task in client.requests.do(lambda: list_tasks(client.store, UNENDED, MOST))),
    ]


def _complete(
    ctx: typer.Context, incomplete: str, read: Callable[[Any], Iterable[str]]
) -> list[str]:
    """Return what begins so.

    Nothing at any error: a message would stand in the middle of the user's line.
    """
    from ..errors import ParsyncError
    from .common import make_client

    given = ctx.params
    before = signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, WAIT_S)
    try:
        with make_client(
            given.get("url"), given.get("cluster"), given.get("config"), retry_for_s=0
        ) as client:
            return [value for value in read(client) if value.startswith(incomplete)][:MOST]
    except (ParsyncError, TimeoutError):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError
