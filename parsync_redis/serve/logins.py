"""The commands that make the secrets of `parsync serve`: `serve token` and `serve password`."""

import getpass
import secrets
import sys
from typing import Annotated

import typer

from ..cli.common import say
from ..errors import InvalidInput
from .passwords import line_of
from .submitters import hash_token


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command("serve token")(serve_token)
    app.command("serve password")(serve_password)


def serve_token() -> None:
    """Make a token for a submitter, and its hash for the file of submitters."""
    token = secrets.token_urlsafe(32)
    say(f"token: {token}")
    say(f'token_sha256 = ["{hash_token(token)}"]')


def serve_password(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The operator's name.")],
) -> None:
    """Make an operator's line for the file of operators.

    It asks for the password, or reads a line from a pipe.
    """
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {name}: ")
        if getpass.getpass("Again: ") != password:
            raise InvalidInput("the two passwords differ: type the same one twice")
    else:
        password = sys.stdin.readline().rstrip("\n")
    say(line_of(name, password))
