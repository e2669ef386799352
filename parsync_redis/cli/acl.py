"""The command `acl`: prints the logins of a cluster in the form that Redis reads."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ..errors import InvalidInput
from ..security.acl import RightsOptions, user_line
from ..security.acl_tables import Role
from ..settings import Settings, read_password
from .common import ClusterName, Config, say

_CLOSED_DEFAULT_USER: Final = "default off resetpass ~* &* +@all"
"""Rules of a default user that nobody can log in as.

The user keeps all rights, because many servers read their append-only file with the rights of the
default user: without rights they lose writes. Connections that were open without a login keep
these rights until `CLIENT KILL USER default`.
"""


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(acl)


def acl(
    role: Annotated[
        list[Role] | None,
        typer.Option(help="Only this role: client, scheduler, worker, viewer or serve (repeat)."),
    ] = None,
    form: Annotated[
        str, typer.Option(help="file: lines of users.acl. setuser: lines for redis-cli.")
    ] = "file",
    password_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the password of one --role, or a folder with a file for each role."
        ),
    ] = None,
    hash: Annotated[
        str | None, typer.Option(help="The SHA-256 of one --role's password, 64 hex digits.")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "A plain Celery queue that workers consume and clients may fill (repeat); else "
                "celery, for workers."
            )
        ),
    ] = None,
    results: Annotated[
        bool, typer.Option(help="Whether the app's result backend is this server.")
    ] = True,
    control: Annotated[
        bool, typer.Option(help="The client may broadcast remote control: app.control.revoke.")
    ] = False,
    scan: Annotated[
        bool,
        typer.Option(
            help="The viewer may audit: it may SCAN all key names, and run the scripts that look."
        ),
    ] = False,
    db: Annotated[
        int, typer.Option(min=0, max=65_535, help="The database: it is part of Celery's channels.")
    ] = 0,
    submitters: Annotated[
        bool, typer.Option("--submitters", help="Serve may submit: serve --submitters.")
    ] = False,
    operators: Annotated[
        bool,
        typer.Option("--operators", help="Serve may drain, cancel and requeue: serve --operators."),
    ] = False,
    close_default: Annotated[
        bool, typer.Option(help="Also print the line that turns the default user off.")
    ] = False,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Print Redis ACL lines: a login for each role, with no right that the role does not need.

    The name of a login is CLUSTER-ROLE. A login without a password is printed as off: nobody can
    use it. The login of the role serve is printed only with --submitters or --operators.
    """
    if form not in ("file", "setuser"):
        raise InvalidInput(f"--form {form!r} is not known: known are file, setuser")
    usual_roles = [role for role in Role if role is not Role.SERVE or submitters or operators]
    roles = list(dict.fromkeys(role or usual_roles))
    options = RightsOptions(
        tuple(queue) if queue else None, results, control, scan, db, submitters, operators
    )
    name = Settings.load(config, cluster=cluster).cluster
    hashes = _hashes(roles, password_file, hash)
    for wanted_role in roles:
        line = user_line(wanted_role, name, hashes.get(wanted_role, ""), options)
        if form == "file":
            say(f"user {line}")
        else:
            say(f"ACL SETUSER {line.replace(' on ', ' reset on ', 1)}")
        if wanted_role not in hashes:
            say(
                f"{name}-{wanted_role} has no password and is off: give one with --password-file",
                to_stderr=True,
            )
    if close_default:
        say(
            f"user {_CLOSED_DEFAULT_USER}"
            if form == "file"
            else f"ACL SETUSER {_CLOSED_DEFAULT_USER}"
        )
    else:
        say(
            "not printed: the line that turns the default user off. Until then whoever reaches the "
            "server may do everything on it; once each login works: --close-default",
            to_stderr=True,
        )


def _hashes(roles: Sequence[Role], password_file: Path | None, hash: str | None) -> dict[Role, str]:
    """Return the SHA-256 of the password of each role that has one; raises InvalidInput."""
    if (hash or (password_file and not password_file.is_dir())) and len(roles) != 1:
        raise InvalidInput(
            "one password is for one --role: say which, or name a folder with a file for each role"
        )
    if hash and password_file:
        raise InvalidInput("--hash and --password-file are two ways to say the same: give one")
    if hash:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", hash):
            raise InvalidInput(
                "--hash is not valid: it must be 64 hex digits, as `sha256sum` prints them"
            )
        return {roles[0]: hash.lower()}
    if not password_file:
        return {}
    hashes: dict[Role, str] = {}
    for role in roles:
        path = password_file / role if password_file.is_dir() else password_file
        hashes[role] = hashlib.sha256(read_password(path).encode()).hexdigest()
    return hashes
