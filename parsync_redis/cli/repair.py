"""The command `repair`: finds what is damaged in the keys of a cluster, and rebuilds it at once."""

from typing import Annotated

import typer

from ..store.repair.repair_all import Finding, repair_all
from .common import Cluster, Config, Json, Url, make_client, print_found


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(repair)


def repair(
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Change nothing: only say what is damaged. Exit 1 if anything is."
        ),
    ] = False,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Find damaged keys and rebuild them from what is left, as the leader does bit by bit.

    Exit 1 if something is damaged still.
    """
    with make_client(url, cluster, config, retry_for_s=0) as client:
        client.check()
        found = repair_all(client.store, dry_run)
        left = found if dry_run else repair_all(client.store, dry=True) if found else []
    print_found(
        found, as_json, ("WHERE", "WHAT IS WRONG", "WHAT WAS DONE"), _row, "nothing is damaged"
    )
    raise typer.Exit(1 if left else 0)


def _row(finding: Finding) -> tuple[str, str, str]:
    return finding.where, finding.flaw, finding.done or "nothing: a dry run"
