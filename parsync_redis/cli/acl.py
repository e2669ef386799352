"""The command `acl`: prints the logins of a cluster as Redis takes them."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ..errors import InvalidInput
from ..security.acl import Options, user_line
from ..security.acl_tables import Role
from ..settings import Settings, read_password
from .common import Cluster, Config, say

_CLOSED: Final = "default off resetpass ~* &* +@all"
"""Nobody is this user.

But many servers read their append-only file with its rights: without them they lose writes.

Connections that were open without a login keep these rights until `CLIENT KILL USER default`.
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
            help="The viewer may SCAN, for `doctor --audit`; shows all key names of the server."
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
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Print Redis ACL lines: a login for each role, with just the commands, keys and channels that
    it needs.

    The logins are called CLUSTER-ROLE. A login without a password is printed as off: nobody can use
    it. Serve's is printed only if it may do more than the viewer's.
    """
    if form not in ("file", "setuser"):
        raise InvalidInput(f"--form {form!r} is not known: known are file, setuser")
    roles = list(
        dict.fromkeys(
            role or [one for one in Role if one is not Role.SERVE or submitters or operators]
        )
    )
    options = Options(
        tuple(queue) if queue else None, results, control, scan, db, submitters, operators
    )
    name = Settings.load(config, cluster=cluster).cluster
    hashes = _hashes(roles, password_file, hash)
    for one in roles:
        line = user_line(one, name, hashes.get(one, ""), options)
        say(
            f"user {line}"
            if form == "file"
            else f"ACL SETUSER {line.replace(' on ', ' reset on ', 1)}"
        )
        if one not in hashes:
            say(
                f"{name}-{one} has no password and is off: give one with --password-file",
                to_stderr=True,
            )
    if close_default:
        say(f"user {_CLOSED}" if form == "file" else f"ACL SETUSER {_CLOSED}")
    else:
        say(
            "not printed: the line that turns the default user off. Until then whoever reaches the "
            "server may do "
            "everything on it; once each login works: --close-default",
            to_stderr=True,
        )


def _hashes(roles: Sequence[Role], password_file: Path | None, hash: str | None) -> dict[Role, str]:
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
    paths = {one: password_file / one if password_file.is_dir() else password_file for one in roles}
    return {
        one: hashlib.sha256(read_password(path).encode()).hexdigest() for one, path in paths.items()
    }
