"""Shared parts of the commands: the flags for server and cluster, and the output of results."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence, Sized
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput
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
Cluster = Annotated[
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
RETRY_FOR_S = 1.0
"""For how long a command that only reads repeats its requests while no server answers."""


def make_client(
    url: str | None,
    cluster: str | None,
    config: Path | None,
    retry_for_s: float = RETRY_FOR_S,
    **flags: Any,
) -> ParsyncClient:
    """Return a client for the common flags, and others that are settings."""
    return ParsyncClient(Settings.load(config, url=url, cluster=cluster, **flags), retry_for_s)


def print_json(value: Any) -> None:
    """Print dataclasses, mappings and sequences as JSON."""
    # the one that JSON does not escape
    print(json.dumps(value, default=plain, indent=2).replace("\x7f", "\\u007f"))


def say(text: object, to_stderr: bool = False) -> None:
    """Print a line, with escapes for what a terminal would not show as it is."""
    print(printable(text), file=sys.stderr if to_stderr else sys.stdout)


def tell(text: object, indent: int = 0) -> None:
    """Print a sentence.

    On a terminal its lines end between words, begin `indent` further in, and have short ids.
    """
    width = screen_width()
    lines = [printable(text)] if width is None else wrapped(printable(text), width, indent)
    for line in lines:
        print(line)


def plain(value: Any) -> Any:
    """Return a dataclass as what JSON has; raises TypeError for anything else."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def print_found(
    rows: Sequence[T],
    as_json: bool,
    columns: Sequence[Column | str],
    row: Callable[[T], Sequence[object]],
    empty: str,
    missing: str = "",
) -> None:
    """Print what a command has found as JSON, or as a table with one row for each.

    missing: see `explain_empty`. Then it is printed instead of the empty table, and the exit code
    is 1.
    """
    if as_json:
        print_json(rows)
    else:
        print_table(columns, map(row, rows), missing or empty)
    end_if_missing(missing, as_json)


def explain_empty(client: ParsyncClient, rows: Sized) -> str:
    """Return why a command found nothing: there is no such cluster, but others; '' if there is, or
    it found some.
    """
    return "" if rows else str(client.requests.do(lambda: look_for_cluster(client.store)) or "")


def end_if_missing(missing: str, as_json: bool) -> None:
    """End with exit code 1 if there is no such cluster.

    JSON stays JSON: the sentence goes to stderr.
    """
    if missing and as_json:
        say(missing, to_stderr=True)
    if missing:
        raise typer.Exit(1)


def print_table(
    columns: Sequence[Column | str], rows: Iterable[Sequence[object]], empty: str
) -> None:
    """Print a table, with numbers to the right; print `empty` if there are no rows.

    On a terminal it is as wide as that: cli/table.py says what gives way.
    """
    filled = [[_cell(value) for value in row] for row in rows]
    if not filled:
        say(empty)
        return
    head, *lines = lay_out(columns, filled, screen_width(), WIDE.get())
    print(typer.style(head, bold=True) if sys.stdout.isatty() else head)
    for line in lines:
        print(line)


WIDE: ContextVar[bool] = ContextVar("WIDE", default=False)
"""True while a command prints with all columns and whole ids: `--wide`."""


def screen_width() -> int | None:
    """Return how wide a line may be; None for a pipe or a file, whose lines are never broken, and
    with `--wide`.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() and not WIDE.get() else None


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else printable(value)


def parse_pairs(flag: str, values: Sequence[str] | None) -> dict[str, str]:
    """Return the NAME=VALUE words of a repeated flag; raises InvalidInput."""
    pairs: dict[str, str] = {}
    for word in values or ():
        name, sign, value = word.partition("=")
        if not sign or not name or not value:
            raise InvalidInput(f"{flag} {word!r} is not valid: it must be NAME=VALUE")
        pairs[name] = value
    return pairs


def parse_seconds(flag: str, text: str) -> float:
    """Return a time like 90, 90s, 10m, 1.5h or 2d in seconds; raises InvalidInput."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd]?)", text)
    if not match:
        raise InvalidInput(
            f"{flag} {text!r} is not valid: it must be a number of seconds, or one with s, m, h or "
            "d"
        )
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def show_time(ms: int | None) -> str:
    """Return a server time (milliseconds since 1970) as UTC text."""
    return (
        "-"
        if ms is None
        else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    )
