"""The command `lua`: shows the scripts as they are sent to a server; it needs no server."""

import sys
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from ..errors import InvalidInput
from ..store.scripts.calls import ALL_SCRIPTS
from ..store.scripts.scripts import Script
from .common import say

SCRIPTS_BY_VERB: Final[Mapping[str, Script]] = {
    script.verb: script for script in sorted(ALL_SCRIPTS, key=lambda script: script.verb)
}


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    lua = typer.Typer(no_args_is_help=True)
    lua.command("list")(list_verbs)
    lua.command("show")(show)
    app.add_typer(lua, name="lua", help="The Lua scripts as the server gets them: list, show.")


def list_verbs() -> None:
    """List the verbs, each with the length of its script, and the SHA-1 that the server uses."""
    for verb, script in SCRIPTS_BY_VERB.items():
        say(f"{verb:<18} {len(script.text):>6} {script.sha}")


def show(
    verb: Annotated[str, typer.Argument(help="The verb, as `parsync lua list` has it.")],
) -> None:
    """Print a script as it is sent: with the locals that the loader adds, and the libraries.

    `redis-cli SCRIPT LOAD` of this text answers the SHA-1 that `parsync lua list` shows.
    """
    script = SCRIPTS_BY_VERB.get(verb)
    if script is None:
        raise InvalidInput(f"{verb!r} is no verb; there are {', '.join(SCRIPTS_BY_VERB)}")
    sys.stdout.write(script.text)
