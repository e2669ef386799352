"""The command `doctor check`: checks server and cluster, and prints a fix for what is wrong."""

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

AUDIT_NEWS_S: Final = 5.0
"""Seconds between two lines about the progress of an audit, if stderr is no terminal."""

_TEXT_COLUMN: Final = 18
"""The column where the text begins: after the level and the name."""

_LEVEL_COLORS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command("doctor check")(check)


def check(
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
    """Prints the progress of an audit to stderr; without a terminal only every few seconds."""

    def __init__(self, pause_s: float | None = None) -> None:
        self._pause_s = (
            (0.0 if sys.stderr.isatty() else AUDIT_NEWS_S) if pause_s is None else pause_s
        )
        self._printed_s = time.monotonic()

    def __call__(self, text: str) -> None:
        """Print a step, unless the last one was printed less than a pause ago."""
        if time.monotonic() - self._printed_s >= self._pause_s:
            self._printed_s = time.monotonic()
            say(f"audit: {text}", to_stderr=True)


def _print(checks: list[Check]) -> None:
    """Print each check: level, name, and the finding with its fix, wrapped on a terminal."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    width = screen_width()
    for check in checks:
        fix = f": {check.repair}" if check.repair else ""
        text = printable(check.text + fix)
        lines = [text] if width is None else wrapped(text, width - _TEXT_COLUMN, 0)
        console.print(f"{check.level:<5}", style=_LEVEL_COLORS[check.level], end="")
        console.print(f"{check.name:<12} {lines[0]}")
        for line in lines[1:]:
            console.print(" " * _TEXT_COLUMN + line)
