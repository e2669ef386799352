"""The command `lua`: shows the scripts as they are sent to the server; no server is needed."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from ..errors import InvalidInput
from ..store.scripts.calls import ALL_SCRIPTS
from ..store.scripts.scripts import Script

SCRIPTS: Final[Mapping[str, Script]] = {
    script.verb: script for script in sorted(ALL_SCRIPTS, key=lambda script: script.verb)
}


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    lua = typer.Typer(no_args_is_help=True)
    lua.command("list")(list_verbs)
    lua.command("show")(show)
    app.add_typer(lua, name="lua", help="The Lua scripts as the server gets them: list, show.")


def list_verbs() -> None:
    """List the verbs, each with the bytes of its script and the SHA-1 by which the
    server knows it.
    """
    for verb, script in SCRIPTS.items():
        print(f"{verb:<18} {len(script.text):>6} {script.sha}")


def show(
    verb: Annotated[str, typer.Argument(help="The verb, as `parsync lua list` has it.")],
) -> None:
    """Print a script as it is sent: what the loader makes of the header, the libraries, and the
    verb's own lines.

    `redis-cli SCRIPT LOAD` of this text answers the SHA-1 that `parsync lua list` shows.
    """
    script = SCRIPTS.get(verb)
    if script is None:
        raise InvalidInput(f"{verb!r} is no verb; there are {', '.join(SCRIPTS)}")
    print(script.text, end="")
