"""Commands about who goes first: policy (show, apply, check, set, history), limits, tenants."""

import getpass
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput
from ..inspect.policy_outlook import PolicyOutlook, foresee_change, foresee_policy
from ..model.account_views import LimitView, TenantView
from ..model.amount import parse_amount, shown_amount
from ..model.human import age_text, needs_shown
from ..model.policy_document import with_value
from ..model.policy_reader import LIMIT_KEYS
from ..store.policy import PolicyVersion, stored_policy
from ..store.reads.cancel import server_ms
from .common import (
    ClusterName,
    Config,
    Json,
    Url,
    explain_empty,
    make_client,
    print_json,
    print_rows,
    say,
    show_time,
    tell,
)
from .listing import listing
from .table import Column

PolicyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The policy, a TOML file; - reads standard input.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command("policy show")(show_policy)
    app.command("policy apply")(apply_policy)
    app.command("policy check")(check_policy)
    app.command("policy set")(set_policy)
    app.command("policy history")(listing(show_history))
    app.command("limits")(listing(limits))
    app.command("tenants")(listing(tenants))


def operator_name() -> str:
    """Return the name of the person who types, for the history; 'somebody' if it is unknown."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "somebody"


def show_policy(
    as_json: Json = False, url: Url = None, cluster: ClusterName = None, config: Config = None
) -> None:
    """Show the policy as it was written, and the limits that apps declare."""
    with make_client(url, cluster, config) as client:
        policy = client.policy()
        missing = "" if policy.version else explain_empty(client, ())
    if as_json:
        print_json(policy)
    elif policy.version:
        newest = policy.history[0]
        say(f"# version {newest.version}, by {newest.by or 'somebody'}, {show_time(newest.at_ms)}")
        for line in policy.text.splitlines():
            say(line)
    else:
        say(missing or "no policy: parsync policy apply FILE makes one")
    if not as_json:
        for name, table in policy.declared.items():
            apps = declared_text(table["declared_by"])
            values = ", ".join(
                f"{key} = {json.dumps(table[key])}" for key in LIMIT_KEYS if key in table
            )
            say(f"# limits.{name}: {values}; {apps}")
    if missing:
        raise typer.Exit(1)


def apply_policy(
    file: PolicyFile,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Let the cluster have the policy of a file, whole; a file with a mistake changes nothing."""
    document = _read(file)
    with make_client(url, cluster, config) as client:
        outlook = client.requests.do(lambda: foresee_policy(client.store, document))
        changes = client.apply_policy(document, by=operator_name())
        version = client.policy().version
    _print_applied(version, changes, outlook, as_json)


def check_policy(
    file: PolicyFile,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Say what a file would change, and which waiting tasks it would keep waiting.

    Nothing is changed. Exit 1 if tasks that can start now would wait for ever.
    """
    document = _read(file)
    with make_client(url, cluster, config) as client:
        outlook = client.requests.do(lambda: foresee_policy(client.store, document))
    if as_json:
        print_json(outlook)
    else:
        for change in outlook.changes:
            say(change)
        if not outlook.changes:
            say("nothing would change")
        _print_outlook(outlook, "would wait")
    raise typer.Exit(1 if outlook.blocks_for_ever else 0)


def set_policy(
    assignments: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="Values: limits.stripe.at_once=3; an empty value removes the key or the entry.",
        ),
    ],
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Set values of the policy, all or none; comments of the document are lost."""
    with make_client(url, cluster, config) as client:

        def foresee() -> PolicyOutlook:
            stored = stored_policy(client.store)
            policy = stored.policy
            for assignment in assignments:
                policy = with_value(policy, assignment)
            return foresee_change(client.store, stored, policy)

        outlook = client.requests.do(foresee)
        changes = client.set_policy(assignments, by=operator_name())
        version = client.policy().version
    _print_applied(version, changes, outlook, as_json)


def show_history(
    as_json: Json = False, url: Url = None, cluster: ClusterName = None, config: Config = None
) -> None:
    """Show the last ten versions of the policy: who changed what, and when."""
    with make_client(url, cluster, config) as client:
        versions = client.policy().history
        missing = explain_empty(client, versions)

    def row(version: PolicyVersion) -> tuple[object, ...]:
        return (version.version, show_time(version.at_ms), version.by, version.changes)

    print_rows(
        versions,
        as_json,
        ("VERSION", "WHEN", Column("BY", cut="right"), Column("CHANGES", prose=True)),
        row,
        "no policy: parsync policy apply FILE makes one",
        missing,
    )


def limits(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="List the tasks that hold this limit.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """List limits: what is held of what is allowed, and what waits; or who holds one."""
    with make_client(url, cluster, config) as client:
        if name is not None:
            _print_holders(client, name, as_json)
            return
        views = client.limits()
        now_ms = client.requests.do(lambda: server_ms(client.store))
        missing = explain_empty(client, views)
    print_rows(
        views,
        as_json,
        (
            Column("LIMIT", cut="right"),
            "HELD",
            "ALLOWED",
            "WAITING",
            Column("RATE", 1),
            Column("USED", 1),
            Column("OLDEST", 2, text=True),
            Column("NOTE", prose=True),
        ),
        lambda limit: (
            limit.name,
            limit.units,
            allowed_text(limit),
            limit.waiting,
            limit.rate,
            f"{limit.used}/{limit.burst}" if limit.rate else "",
            _oldest_text(limit, now_ms),
            limit_note(limit),
        ),
        "no limits: parsync policy apply FILE makes them, Parsync(app, limits=...) declares them",
        missing,
    )


def _oldest_text(limit: LimitView, now_ms: int) -> str:
    if limit.oldest is None:
        return ""
    where = f" on {limit.oldest.node}" if limit.oldest.node else ""
    return f"{limit.oldest.id} for {age_text((now_ms - limit.oldest.since_ms) / 1000)}{where}"


def allowed_text(limit: LimitView) -> str:
    """Return how many units of a limit tasks may hold at once; 'any' for a rate alone."""
    return "any" if limit.allowed is None and limit.in_policy else str(limit.allowed or 0)


def limit_note(limit: LimitView) -> str:
    """Return what an operator should know of a limit, '' for nothing."""
    if not limit.in_policy:
        return "not in the policy, nor declared: no task starts"
    if limit.damaged:
        return "what it holds is not known: the leader counts it anew"
    notes = ["paused"] if limit.allowed == 0 else []
    notes += [] if limit.declared_by is None else [declared_text(limit.declared_by)]
    return ", ".join(notes)


def declared_text(apps: Sequence[str]) -> str:
    """Return who declares a limit, for people. apps: their names."""
    return f"declared by {', '.join(apps)}" if apps else "declared by an app without workers"


def _print_holders(client: ParsyncClient, name: str, as_json: bool) -> None:
    holders = client.limit_holders(name)
    now_ms = client.requests.do(lambda: server_ms(client.store))
    print_rows(
        holders,
        as_json,
        (Column("ID", text=True), "HELD FOR", "SINCE", Column("NODE", cut="right")),
        lambda holder: (
            holder.id,
            age_text((now_ms - holder.since_ms) / 1000),
            show_time(holder.since_ms),
            holder.node,
        ),
        f"no task holds {name}",
    )


def tenants(
    as_json: Json = False, url: Url = None, cluster: ClusterName = None, config: Config = None
) -> None:
    """List tenants: their shares of the nodes, what they hold, and what waits for how long.

    SHARE is the largest part of any amount of the nodes that a tenant holds. DUE is its part by
    weight, beside the tenants that hold something or wait. USED SHARE is the mean of the shares
    that it held lately; the column is there if the policy gives a tenant a half_life.
    """
    with make_client(url, cluster, config) as client:
        views = client.tenants()
        now_ms = client.requests.do(lambda: server_ms(client.store))
        missing = explain_empty(client, views)
    with_past = any(view.used_share is not None for view in views)
    print_rows(
        views,
        as_json,
        (
            Column("TENANT", cut="right"),
            Column("WEIGHT", 2),
            "SHARE",
            *(["USED SHARE"] if with_past else []),
            "DUE",
            Column("HELD", 1, cut="right"),
            "WAITING",
            "OLDEST",
            Column("AT LEAST", 3, cut="right"),
            Column("AT MOST", 3, cut="right"),
        ),
        lambda tenant: (
            tenant.name,
            f"{tenant.weight:g}",
            "-" if tenant.share is None else f"{tenant.share:.0%}",
            *([used_text(tenant)] if with_past else []),
            f"{tenant.due:.0%}",
            held_text(tenant),
            tenant.waiting,
            "" if tenant.oldest_ms is None else age_text((now_ms - tenant.oldest_ms) / 1000),
            amounts_text(tenant.at_least),
            amounts_text(tenant.at_most),
        ),
        "no tenants: a task has one by tenant=..., a policy by [tenants.NAME]",
        missing,
    )


def used_text(tenant: TenantView) -> str:
    """Return the used share of a tenant, for people; '' if past use does not count."""
    return "" if tenant.used_share is None else f"{tenant.used_share:.0%}"


def held_text(tenant: TenantView) -> str:
    """Return what a tenant holds, for people."""
    if tenant.damaged:
        return "not known"
    return "-" if tenant.holders is None else amounts_text(tenant.amounts)


def amounts_text(amounts: Mapping[str, int | float]) -> str:
    """Return amounts for people: 'slots=12 mem=4GiB'."""
    return " ".join(f"{name}={shown_amount(parse_amount(name, n))}" for name, n in amounts.items())


def _read(file: Path) -> str:
    try:
        if str(file) == "-":
            return sys.stdin.read()
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"the policy {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"the policy {file} cannot be read: it is not UTF-8") from None


def _print_applied(version: int, changes: list[str], outlook: PolicyOutlook, as_json: bool) -> None:
    if as_json:
        fields = {"doubts": outlook.doubts, "blocked": outlook.blocked}
        print_json({"version": version, "changes": changes, **fields})
        return
    for change in changes:
        say(change)
    say(f"the policy has version {version}" + ("" if changes else ": nothing changes"))
    _print_outlook(outlook, "wait")


def _print_outlook(outlook: PolicyOutlook, verb: str) -> None:
    for doubt in outlook.doubts:
        tell(f"warning: {doubt}", 2)
    for kind in outlook.blocked:
        if kind.is_new or kind.for_ever:
            tasks = f"{kind.waiting:,} task{'s' if kind.waiting > 1 else ''}"
            how = f"{verb} for ever" if kind.for_ever else verb
            tell(f"{tasks} of {needs_shown(kind.kind)} {how}: {kind.why}", 2)
