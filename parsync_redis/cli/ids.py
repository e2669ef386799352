"""Find the task that a person means: by its id, by the beginning of its id, or by the
word `last`.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ..client import ParsyncClient
from ..errors import AccessDenied, InvalidInput
from ..model.ids import decode_id, encode_id, is_id, shown
from ..model.task import TaskState
from ..store.reads.find_tasks import MAX_PREFIX_MATCHES, find_prefixed
from .common import say
from .completion import complete_id

LAST: Final = "last"
"""The task that was submitted last with `parsync submit` by this user on this machine to this
cluster.
"""

SHORTEST: Final = 4
"""A beginning of an id has at least so many characters."""

ID_HELP: Final = "The task's id, the beginning of it, or `last`."
Id = Annotated[str, typer.Argument(metavar="ID", help=ID_HELP, autocompletion=complete_id)]
Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID]...",
        help="The tasks' ids, the beginnings of them, or `last`.",
        autocompletion=complete_id,
        show_default=False,
    ),
]


def resolve_id(client: ParsyncClient, given: str) -> str:
    """Return the whole id of a task. One that nobody knows is returned as it was given.

    A whole id takes one request. Raises InvalidInput for a beginning of several ids, and for `last`
    if there is none.
    """
    if given == LAST:
        return _last(client)
    text = given.removesuffix("…")  # as a table shows an id that it had to cut
    encoded = encode_id(text)
    if client.status(text).state is not TaskState.GONE or len(text) < SHORTEST:
        return text
    try:
        found = client.requests.do(lambda: find_prefixed(client.store, encoded))
    except AccessDenied:
        raise InvalidInput(
            f"nothing is known of task {shown(text)}, and this login may not look for ids that "
            "begin so: "
            "give the whole id, or use the viewer's login"
        ) from None
    if len(found) > 1:
        more = " and more" if len(found) == MAX_PREFIX_MATCHES else ""
        named = ", ".join(sorted(decode_id(id) for id in found if is_id(decode_id(id))))
        raise InvalidInput(
            f"{shown(text)} is the beginning of several ids: {named}{more}: give more of one"
        )
    return decode_id(found[0]) if found else text


def resolve_ids(client: ParsyncClient, given: Iterable[str]) -> list[str]:
    """Return the whole id of each task, in order."""
    return [resolve_id(client, one) for one in given]


def with_near(client: ParsyncClient, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task with the whole id of the task that it is to be near, if it is to
    be near one.
    """
    near = options.get("near")
    return {**options, "near": resolve_id(client, near)} if near else dict(options)


def state_folder() -> Path:
    """Return the folder of what the command line remembers, by XDG's rule.

    Raises OSError if there is none.
    """
    if given := os.environ.get("XDG_STATE_HOME"):
        return Path(given) / "parsync"
    try:
        return Path.home() / ".local" / "state" / "parsync"
    except RuntimeError:  # in a container the user may be a bare number
        raise OSError(errno.ENOTSUP, "this user has no home folder: set XDG_STATE_HOME") from None


def _file(client: ParsyncClient) -> Path:
    where = f"{client.store.address} {client.settings.cluster}"
    return state_folder() / f"last-{hashlib.sha256(where.encode()).hexdigest()[:16]}"


def remember(client: ParsyncClient, id: str) -> None:
    """Make a task the last one; a file that cannot be written is a warning: the task is submitted
    all the same.
    """
    try:
        path = _file(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(id, encoding="utf-8")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(f"warning: `last` will not mean this task: {where}{error.strerror}", to_stderr=True)


def _last(client: ParsyncClient) -> str:
    try:
        return _file(client).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(
            "`last` is the task that you submitted last with `parsync submit` to cluster "
            f"{client.settings.cluster}; "
            "there is none yet: give an id (parsync tasks)"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`last` cannot be read: {error}") from None
