"""Shared parts of the commands: the flags for server and cluster, and the output."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence, Sized
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput
from ..model.human import moment_of
from ..model.printable import printable
from ..settings import Settings
from ..store.reads.schedulers import look_for_cluster
from .table import Column, lay_out, wrapped

Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="The server, redis://HOST:PORT/DB.", show_default=False, metavar="URL"
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option("--cluster", help="The cluster's name.", show_default=False, metavar="NAME"),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file of settings.", show_default=False, metavar="FILE"),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        help="text, or json for programs (text).",
        show_default=False,
        metavar="FORMAT",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

T = TypeVar("T")
READ_RETRY_S: Final = 1.0
"""Seconds in which a reading command repeats its requests while no server answers."""


def make_client(
    url: str | None,
    cluster: str | None,
    config: Path | None,
    retry_for_s: float = READ_RETRY_S,
    **flags: Any,
) -> ParsyncClient:
    """Return a client for the common flags. flags: further settings by name, None for unset."""
    return ParsyncClient(Settings.load(config, url=url, cluster=cluster, **flags), retry_for_s)


def print_json(value: Any) -> None:
    """Print dataclasses, mappings and sequences as JSON."""
    # json.dumps escapes every control character but DEL
    print(json.dumps(value, default=plain, indent=2).replace("\x7f", "\\u007f"))


def say(text: object, to_stderr: bool = False) -> None:
    """Print a line; control characters are escaped."""
    print(printable(text), file=sys.stderr if to_stderr else sys.stdout)


def tell(text: object, indent: int = 0) -> None:
    """Print a sentence. On a terminal the text is wrapped between words, and ids are short.

    indent: columns by which the second line and later lines are indented.
    """
    width = screen_width()
    lines = [printable(text)] if width is None else wrapped(printable(text), width, indent)
    for line in lines:
        print(line)


def plain(value: Any) -> Any:
    """Return a dataclass as a dict, for json.dumps; raises TypeError for anything else."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def print_rows(
    rows: Sequence[T],
    as_json: bool,
    columns: Sequence[Column | str],
    row: Callable[[T], Sequence[object]],
    empty: str,
    missing: str = "",
) -> None:
    """Print values as JSON, or as a table with a row for each value.

    row: makes the cells of a value.
    empty: the sentence for no rows.
    missing: the text of `explain_empty`; if there is any, it is printed instead of the empty table,
        and the exit code is 1.
    """
    if as_json:
        print_json(rows)
    else:
        print_table(columns, map(row, rows), missing or empty)
    end_if_missing(missing, as_json)


def explain_empty(client: ParsyncClient, rows: Sized) -> str:
    """Return the reason why a command has no rows: its cluster does not exist.

    The sentence names the clusters on this server. '' if the cluster exists, or if there are rows.
    """
    return "" if rows else str(client.requests.do(lambda: look_for_cluster(client.store)) or "")


def end_if_missing(missing: str, as_json: bool) -> None:
    """End with exit code 1 if there is no such cluster. missing: the text of `explain_empty`.

    With --json that text goes to stderr, so that stdout is valid JSON.
    """
    if missing and as_json:
        say(missing, to_stderr=True)
    if missing:
        raise typer.Exit(1)


def print_table(
    columns: Sequence[Column | str], rows: Iterable[Sequence[object]], empty: str
) -> None:
    """Print a table, numbers aligned to the right; print `empty` if there are no rows.

    On a terminal the table fits the width of the terminal: see cli/table.py.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        say(empty)
        return
    head, *lines = lay_out(columns, cells, screen_width(), WIDE.get())
    print(typer.style(head, bold=True) if sys.stdout.isatty() else head)
    for line in lines:
        print(line)


WIDE: ContextVar[bool] = ContextVar("WIDE", default=False)
"""True while a command runs with `--wide`: all columns and whole ids."""


def screen_width() -> int | None:
    """Return the columns of the terminal; None for a pipe or a file, and with `--wide`.

    None means that lines are never broken.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() and not WIDE.get() else None


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else printable(value)


def parse_pairs(flag: str, values: Sequence[str] | None) -> dict[str, str]:
    """Return the NAME=VALUE words of a repeated flag as a dict; raises InvalidInput."""
    pairs: dict[str, str] = {}
    for word in values or ():
        name, sign, value = word.partition("=")
        if not sign or not name or not value:
            raise InvalidInput(f"{flag} {word!r} is not valid: it must be NAME=VALUE")
        pairs[name] = value
    return pairs


def parse_seconds(flag: str, text: str) -> float:
    """Return a duration like 90, 90s, 10m, 1.5h or 2d in seconds; raises InvalidInput."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", text)
    if not match:
        raise InvalidInput(
            f"{flag} {text!r} is not valid: it must be a number of seconds, or one with s, m, h or "
            "d"
        )
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def show_time(ms: int | None) -> str:
    """Return a server time (milliseconds since 1970) as UTC text; '-' for None."""
    if ms is None:
        return "-"
    text = moment_of(ms).strftime("%Y-%m-%d %H:%M:%S.%f")
    milliseconds = text[:-3]
    return f"{milliseconds} UTC"
