"""The command `doctor`: checks server and cluster, and prints a fix for what is wrong."""

import sys
import time
from typing import Annotated, Final

import typer
from rich.console import Console

from ..inspect.checkup import check_up
from ..inspect.server_checks import Check
from ..model.printable import printable
from .common import Cluster, Config, Json, Url, make_client, print_json, say, screen_width
from .table import wrapped

SAY_S: Final = 5.0
"""How often the audit says how far it is if nobody watches."""

_TEXT_AT: Final = 18
"""The column of the text: after the level and the name."""

_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(doctor)


def doctor(
    audit: Annotated[
        bool, typer.Option("--audit", help="Also check every record of the state; reads all keys.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Check server, scripts, schedulers, ticks and nodes; each line has its fix.

    Exit 1 if anything fails.
    """
    with make_client(url, cluster, config, retry_for_s=0) as client:
        checks = check_up(client.store, client.settings, audit, AuditProgress())
    failed = any(check.level == "fail" for check in checks)
    if as_json:
        print_json({"ok": not failed, "checks": checks})
    else:
        _print(checks)
    raise typer.Exit(1 if failed else 0)


class AuditProgress:
    """Tells on stderr how far the audit is: at each step on a terminal, else every few seconds."""

    def __init__(self, pause_s: float | None = None) -> None:
        self._pause_s = (0.0 if sys.stderr.isatty() else SAY_S) if pause_s is None else pause_s
        self._said_s = time.monotonic()

    def __call__(self, text: str) -> None:
        """Say it, if it is time."""
        if time.monotonic() - self._said_s >= self._pause_s:
            self._said_s = time.monotonic()
            say(f"audit: {text}", to_stderr=True)


def _print(checks: list[Check]) -> None:
    """Print each check: its level, its name, and what was found with the fix, which a terminal gets
    in lines.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    width = screen_width()
    for check in checks:
        text = printable(check.text + (f": {check.repair}" if check.repair else ""))
        lines = [text] if width is None else wrapped(text, width - _TEXT_AT, 0)
        console.print(f"{check.level:<5}", style=_COLORS[check.level], end="")
        console.print(f"{check.name:<12} {lines[0]}")
        for line in lines[1:]:
            console.print(" " * _TEXT_AT + line)
