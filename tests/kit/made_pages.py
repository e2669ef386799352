"""Make the parts of docs/cli.md and docs/http.md that come from the code: flags of commands, paths
of the API.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from parsync_redis.cli.app import load
from parsync_redis.cli.command_table import all_commands
from parsync_redis.serve.api import Api
from parsync_redis.serve.events import EventsApi
from parsync_redis.serve.operate import OperatorPages
from parsync_redis.serve.submit import SubmitterApi
from tests.kit.documents import Document

MARK = "<!-- From here on made by tests/docs/test_api.py from the code; do not edit. -->\n"


def cli_part() -> str:
    """Return the flags of every command."""
    return "\n".join(
        text for name in all_commands() for text in _command(f"parsync {name}", load(name), "###")
    )


def _command(name: str, command: Any, level: str) -> Iterator[str]:
    help = inspect.cleandoc(command.help or "")
    yield f"{level} `{name}`\n\n{help}\n"
    rows = [
        _row(one)
        for one in command.params
        if not getattr(one, "hidden", False) and "--help" not in one.opts
    ]
    if rows:
        yield "\n".join(["| flag | value | what |", "|---|---|---|", *rows]) + "\n"
    for below, found in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {below}", found, level + "#")


def _row(one: Any) -> str:
    """Return a row of the table: an argument or an option, of typer's own click."""
    if not one.opts[0].startswith("-"):
        named = str(one.metavar or one.name).strip("[].").upper()
        return f"| `{named}{'...' if one.nargs != 1 else ''}` | | {_cell(one.help)} |"
    flags = ", ".join(f"`{flag}`" for flag in (*one.opts, *one.secondary_opts))
    value = "" if one.is_flag else f"`{one.metavar or _value(one.type_descriptor.annotation)}`"
    help = one.help or ""
    default = one.default
    if default and default is not True and not callable(default) and f"({default})" not in help:
        help = re.sub(r"(?<!\.)\.$", "", help) + f" (`{default}`)."
    return f"| {flags} | {value} | {_cell(help)} |"


def _value(annotation: Any) -> str:
    """Return the word for the values of a type, or of the items of a list."""
    (inner,) = [one for one in (*get_args(annotation), annotation) if one is not type(None)][:1]
    return {int: "INTEGER", float: "NUMBER", Path: "FILE"}.get(inner, "TEXT")


def _cell(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|").replace("<", "&lt;")


def http_part() -> str:
    """Return the paths of the API, of events, of submitters and of operators."""
    api = Api.__new__(Api)
    events = EventsApi.__new__(EventsApi)
    operate = OperatorPages.__new__(OperatorPages)
    submit: Any = SubmitterApi.__new__(SubmitterApi)
    submit._only = True
    rows = ["| path | methods | what |", "|---|---|---|"]
    for route in (*api.routes(), *events.routes(), *submit.routes(), *operate.routes()):
        methods = ", ".join(sorted((route.methods or set()) - {"HEAD"}))
        path = route.path.replace(":path}", "}")
        rows.append(
            f"| `{path}` | {methods} | "
            f"{_cell((inspect.getdoc(route.endpoint) or '').partition(chr(10))[0])} |"
        )
    return "\n".join(rows) + "\n"


def made(page: str, part: str) -> str:
    """Return a page with its part made anew."""
    head, mark, _ = Document(page).text.partition(MARK)
    assert mark, f"{page} has no line {MARK}"
    return f"{head}{MARK}\n{part}"
