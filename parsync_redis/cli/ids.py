"""Find the task that a person means: by an id, the beginning of an id, or the word `last`."""

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

LAST_WORD: Final = "last"
"""The task that this user submitted last to this cluster, by `parsync submit` on this machine."""

MIN_PREFIX: Final = 4
"""Minimum number of characters of the beginning of an id."""

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


def resolve_id(client: ParsyncClient, word: str) -> str:
    """Return the whole id of a task. An id that nobody knows is returned as it is.

    word: an id, the beginning of an id, or `last`. A whole id takes one request. Raises
    InvalidInput for a beginning of several ids, and for `last` if no task was submitted.
    """
    if word == LAST_WORD:
        return _last(client)
    text = word.removesuffix("…")  # a table shows it after an id that it had to cut
    encoded = encode_id(text)
    if client.status(text).state is not TaskState.GONE or len(text) < MIN_PREFIX:
        return text
    try:
        matches = client.requests.do(lambda: find_prefixed(client.store, encoded))
    except AccessDenied:
        raise InvalidInput(
            f"nothing is known of task {shown(text)}, and this login may not look for ids that "
            "begin so: give the whole id, or use the viewer's login"
        ) from None
    if len(matches) > 1:
        suffix = " and more" if len(matches) == MAX_PREFIX_MATCHES else ""
        named = ", ".join(sorted(decode_id(id) for id in matches if is_id(decode_id(id))))
        raise InvalidInput(
            f"{shown(text)} is the beginning of several ids: {named}{suffix}: give more of one"
        )
    return decode_id(matches[0]) if matches else text


def resolve_ids(client: ParsyncClient, words: Iterable[str]) -> list[str]:
    """Return the whole id of each task, in the order of the words."""
    return [resolve_id(client, word) for word in words]


def with_near(client: ParsyncClient, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task; the beginning of an id becomes the whole id.

    Ids are in the option `near`, and in preferences `near:TASK_ID`.
    """
    whole = dict(options)
    if anchor := options.get("near"):
        whole["near"] = resolve_id(client, anchor)
    if rules := options.get("prefer"):
        whole["prefer"] = [_with_whole_id(client, rule) for rule in rules]
    return whole


def _with_whole_id(client: ParsyncClient, rule: str) -> str:
    """Return a preference, with the whole id behind `near:`."""
    word, _, anchor = rule.partition(":")
    return f"{word}:{resolve_id(client, anchor)}" if word == "near" and anchor else rule


def state_folder() -> Path:
    """Return the folder in which the command line keeps its state, by XDG's rule.

    Raises OSError if the user has no home folder.
    """
    if state_home := os.environ.get("XDG_STATE_HOME"):
        return Path(state_home) / "parsync"
    try:
        return Path.home() / ".local" / "state" / "parsync"
    except RuntimeError:  # in a container the user may be a bare number
        raise OSError(errno.ENOTSUP, "this user has no home folder: set XDG_STATE_HOME") from None


def _last_file(client: ParsyncClient) -> Path:
    """Return the file with the id of the last task that was submitted to the client's cluster."""
    cluster = f"{client.store.address} {client.settings.cluster}"
    digest = hashlib.sha256(cluster.encode()).hexdigest()
    return state_folder() / f"last-{digest[:16]}"


def remember(client: ParsyncClient, id: str) -> None:
    """Make a task the one that `last` means.

    A file that cannot be written is a warning, no error: the task is submitted already.
    """
    try:
        path = _last_file(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(id, encoding="utf-8")
    except OSError as error:
        path_text = f"{error.filename}: " if error.filename else ""
        say(f"warning: `last` will not mean this task: {path_text}{error.strerror}", to_stderr=True)


def _last(client: ParsyncClient) -> str:
    try:
        return _last_file(client).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(
            "`last` is the task that you submitted last with `parsync submit` to cluster "
            f"{client.settings.cluster}; there is none yet: give an id (parsync tasks)"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`last` cannot be read: {error}") from None
