"""The command `doctor repair`: finds damaged keys of a cluster, and rebuilds them at once."""

from typing import Annotated

import typer

from ..store.repair.repair_all import Finding, repair_all
from .common import Cluster, Config, Json, Url, make_client, print_json, print_table


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command("doctor repair")(repair)


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

    Exit 1 if something is still damaged.
    """
    with make_client(url, cluster, config, retry_for_s=0) as client:
        client.check()
        findings = repair_all(client.store, dry_run)
        remaining = findings
        if findings and not dry_run:
            remaining = repair_all(client.store, dry=True)
    if as_json:
        print_json([{"where": f.where, "what": f.flaw, "done": f.done} for f in findings])
    else:
        columns = ("WHERE", "WHAT IS WRONG", "WHAT WAS DONE")
        print_table(columns, map(_row, findings), "nothing is damaged")
    raise typer.Exit(1 if remaining else 0)


def _row(finding: Finding) -> tuple[str, str, str]:
    return finding.where, finding.flaw, finding.done or "nothing: a dry run"
