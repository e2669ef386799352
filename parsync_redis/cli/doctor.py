"""The commands `doctor`: check a cluster, repair what is damaged, and look at the quarantine.

`doctor check` prints a fix for what is wrong. `doctor repair` rebuilds damaged keys at once.
`doctor quarantine` has the damaged or foreign values that processes met in the state.
"""

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from ..errors import AccessDenied, InvalidInput, ServerUnreachable
from ..inspect.audit import FoundKeys, find_keys
from ..inspect.checkup import check_up
from ..inspect.server_checks import Check
from ..model.printable import printable
from ..store.repair.quarantine import QuarantineEntry, clear, entries
from ..store.repair.recount import Finding
from ..store.repair.repair_all import repair_all
from ..store.store import Store
from .common import (
    ClusterName,
    Config,
    Json,
    Url,
    end_if_missing,
    explain_empty,
    make_client,
    print_json,
    print_table,
    say,
    screen_width,
    show_time,
)
from .table import Column, wrapped

AUDIT_NEWS_S: Final = 5.0
"""Seconds between two lines about the progress of an audit, if stderr is no terminal."""

_TEXT_COLUMN: Final = 18
"""The column where the text begins: after the level and the name."""

_LEVEL_COLORS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


quarantine = typer.Typer(
    no_args_is_help=True,
    help="Damaged or foreign values that a process met in the state: list, show, clear.",
)


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command("doctor check")(check)
    app.command("doctor repair")(repair)
    app.add_typer(quarantine, name="doctor quarantine")


def check(
    audit: Annotated[
        bool, typer.Option("--audit", help="Also check every record of the state; reads all keys.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
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


def repair(
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Change nothing: only say what is damaged. Exit 1 if anything is."
        ),
    ] = False,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Find damaged keys and rebuild them from what is left, as the leader does bit by bit.

    Exit 1 if something is still damaged.
    """
    with make_client(url, cluster, config, retry_for_s=0) as client:
        client.check()
        keys = _listed_keys(client.store)
        findings = repair_all(
            client.store, dry_run, keys.numbers("p"), keys.kinds, accounts=keys.accounts
        )
        remaining = findings
        if findings and not dry_run:
            remaining = repair_all(
                client.store, True, keys.numbers("p"), keys.kinds, accounts=keys.accounts
            )
    if as_json:
        print_json([{"where": f.where, "what": f.flaw, "done": f.done} for f in findings])
    else:
        columns = ("WHERE", "WHAT IS WRONG", "WHAT WAS DONE")
        print_table(columns, map(_finding_row, findings), "nothing is damaged")
    raise typer.Exit(1 if remaining else 0)


def _listed_keys(store: Store) -> FoundKeys:
    """Return the keys of the cluster; none, and a warning, if they cannot be listed."""
    try:
        return find_keys(store)
    except (AccessDenied, ServerUnreachable) as error:
        say(
            f"keys cannot be listed ({error}): queues that no index lists are left out; a login "
            "that may SCAN finds them",
            to_stderr=True,
        )
        return FoundKeys()


def _finding_row(finding: Finding) -> tuple[str, str, str]:
    return finding.where, finding.flaw, finding.done or "nothing: a dry run"


def _read_entries(
    url: str | None, cluster: str | None, config: Path | None
) -> tuple[list[QuarantineEntry], str]:
    """Return the entries in quarantine, and the text of `explain_empty`."""
    with make_client(url, cluster, config) as client:
        client.check()
        records = entries(client.store)
        return records, explain_empty(client, records)


@quarantine.command("list")
def list_entries(
    as_json: Json = False, url: Url = None, cluster: ClusterName = None, config: Config = None
) -> None:
    """List the entries in quarantine, the newest first."""
    records, missing = _read_entries(url, cluster, config)
    if as_json:
        print_json([_plain(entry) for entry in records])
        end_if_missing(missing, as_json)
        return
    print_table(
        (
            "NO",
            "LAST MET",
            Column("BY", 1, "right"),
            Column("WHERE", cut="left"),
            "BYTES",
            Column("WHY", prose=True),
        ),
        ((n, show_time(e.met_ms), e.who, e.where, e.size, e.why) for n, e in enumerate(records, 1)),
        missing or "nothing is in quarantine",
    )
    end_if_missing(missing, as_json)


@quarantine.command("show")
def show_entry(
    number: Annotated[int, typer.Argument(metavar="NO", help="Its number in the list.")],
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Show an entry, with its first bytes."""
    records, _ = _read_entries(url, cluster, config)
    if not 1 <= number <= len(records):
        raise InvalidInput(
            f"there is no number {number} in quarantine: there are {len(records)} entries"
        )
    entry = records[number - 1]
    if as_json:
        print_json(_plain(entry))
        return
    for name, value in _plain(entry).items():
        say(f"{name + ':':<8}{show_time(entry.met_ms) if name == 'met_ms' else value}")


@quarantine.command("clear")
def clear_entries(url: Url = None, cluster: ClusterName = None, config: Config = None) -> None:
    """Forget all entries in quarantine."""
    with make_client(url, cluster, config) as client:
        client.check()
        clear(client.store)
    say("the quarantine is empty")


def _plain(entry: QuarantineEntry) -> dict[str, object]:
    """Return the fields of an entry, its bytes as text; bytes that are not text are escaped."""
    data = entry.data.decode(errors="backslashreplace")
    text = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in data
    )
    return {
        "met_ms": entry.met_ms,
        "who": entry.who,
        "where": entry.where,
        "size": entry.size,
        "why": entry.why,
        "data": text,
    }
