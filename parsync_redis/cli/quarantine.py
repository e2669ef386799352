"""The commands `doctor quarantine`: damaged or foreign values that a process met in the state."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidInput
from ..store.repair.quarantine import QuarantineEntry, clear, entries
from .common import (
    Cluster,
    Config,
    Json,
    Url,
    end_if_missing,
    explain_empty,
    make_client,
    print_json,
    print_table,
    say,
    show_time,
)
from .table import Column

commands = typer.Typer(
    no_args_is_help=True,
    help="Damaged or foreign values that a process met in the state: list, show, clear.",
)


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.add_typer(commands, name="doctor quarantine")


def _read(
    url: str | None, cluster: str | None, config: Path | None
) -> tuple[list[QuarantineEntry], str]:
    """Return the entries in quarantine, and the text of `explain_empty`."""
    with make_client(url, cluster, config) as client:
        client.check()
        records = entries(client.store)
        return records, explain_empty(client, records)


@commands.command("list")
def list_entries(
    as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None
) -> None:
    """List the entries in quarantine, the newest first."""
    records, missing = _read(url, cluster, config)
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


@commands.command()
def show(
    number: Annotated[int, typer.Argument(metavar="NO", help="Its number in the list.")],
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Show an entry, with its first bytes."""
    records, _ = _read(url, cluster, config)
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


@commands.command("clear")
def clear_entries(url: Url = None, cluster: Cluster = None, config: Config = None) -> None:
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
