"""The `parsync` program: it loads the command that was typed, and has one rule for errors.

A command's module is imported when that command runs. `parsync --help` reads only the tables.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from ..errors import InvalidInput, ParsyncError
from ..model.printable import printable
from .command_table import (
    ADDED_PANEL,
    COMMANDS,
    ELSEWHERE,
    HIDDEN_WORDS,
    NOUNS,
    PANELS,
    SHORT_WORDS,
    added_commands,
    fill_watch,
    first_verb,
    full_words,
    verbs_of,
)


def load(name: str) -> Any:
    """Import the module of a command and return the click command.

    name: a full name, as `all_commands` has it. Raises KeyError for an unknown one.
    """
    modules = {
        command: f"parsync_redis.{module}"
        for module, commands in COMMANDS.items()
        for command in commands
    }
    if name not in modules:
        modules = {
            command: module for module, commands in added_commands().items() for command in commands
        }
    registered = typer.Typer()
    registered.callback()(lambda: None)
    import_module(modules[name]).register(registered)
    return typer.main.get_group(registered).commands[name]


class CommandRow(TyperCommand):
    """A command as the help lists it; its module is imported when it runs."""

    def __init__(self, name: str, full_name: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.full_name = full_name


class LazyGroup(TyperGroup):
    """A group whose commands are rows: a row is replaced by the command itself when it runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of a command, the command itself, and its arguments."""
        name, command, arguments = super().resolve_command(ctx, args)
        return (
            name,
            load(command.full_name) if isinstance(command, CommandRow) else command,
            arguments,
        )


class Noun(LazyGroup):
    """A noun and its verbs. The help and the completion have the flags of the first verb too."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the verbs, and the flags of the first."""
        self.params = [
            parameter
            for parameter in self._first().params
            if not isinstance(parameter, TyperArgument)
        ]
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete verbs, flags of the first verb, and for `parsync nodes` names of nodes."""
        verbs = super().shell_complete(ctx, incomplete)
        first = self._first()
        if incomplete.startswith("-"):
            return [*verbs, *first.shell_complete(ctx, incomplete)]
        values = [
            value
            for parameter in first.params
            if isinstance(parameter, TyperArgument)
            for value in parameter.shell_complete(ctx, incomplete)
        ]
        return [*verbs, *values]

    def _first(self) -> Any:
        return load(f"{self.name} {first_verb(str(self.name))}")


def noun_of(name: str, panel: str) -> Noun:
    """Return the group of a noun of NOUNS, with a row for each verb."""
    rows = [CommandRow(verb, f"{name} {verb}", help=help) for verb, help in verbs_of(name).items()]
    epilog = f"`parsync {name}` is `parsync {name} {first_verb(name)}`: these are its flags."
    return Noun(name=name, commands=rows, help=NOUNS[name], epilog=epilog, rich_help_panel=panel)


class CommandTable(LazyGroup):
    """All commands, by PANELS.

    An error is one line on stderr and exit code 2, Ctrl-C is exit code 130. Other distributions
    are asked for their commands only for the list of all commands, or for an unknown name.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        sentences = {
            name: help for commands in COMMANDS.values() for name, help in commands.items()
        }
        for panel, names in PANELS.items():
            for name in names:
                if name in NOUNS:
                    self.add_command(noun_of(name, panel))
                    continue
                full_name = SHORT_WORDS.get(name, name)
                help = sentences[full_name]
                self.add_command(CommandRow(name, full_name, help=help, rich_help_panel=panel))
        for word, full_name in HIDDEN_WORDS.items():
            self.add_command(CommandRow(word.split()[0], full_name, hidden=True))

    def _add(self, table: Mapping[str, Mapping[str, str]]) -> None:
        for commands in table.values():
            for name, help in commands.items():
                self.add_command(CommandRow(name, name, help=help, rich_help_panel=ADDED_PANEL))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of other distributions last."""
        self._add(added_commands())
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command of a name, None if there is none.

        Raises InvalidInput for a command whose distribution is not installed.
        """
        if name not in self.commands:
            self._add(added_commands())
        if name in ELSEWHERE and name not in self.commands:
            raise InvalidInput(
                f"`parsync {name}` comes with {ELSEWHERE[name]}, which is not installed: "
                "install it by `pip install ./lab` in a checkout of parsync-redis"
            )
        return super().get_command(ctx, name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return a command and its arguments; short words and nouns without a verb are known too.

        A shell that completes the first word after a noun gets the noun, with all its verbs.
        """
        is_noun_to_complete = ctx.resilient_parsing and args in ([noun] for noun in NOUNS)
        words = args if is_noun_to_complete else full_words(args)
        return super().resolve_command(ctx, fill_watch(words))

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except ParsyncError as error:
            print(f"error: {printable(error)}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(
    name="parsync",
    cls=CommandTable,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=(
        "Settings come from flags, else PARSYNC_* variables, else parsync.toml (or --config, or "
        "PARSYNC_CONFIG)."
    ),
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from .. import __version__

        print(f"parsync {__version__}")
        raise typer.Exit(0)


@app.callback()
def parsync(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Place Celery tasks through Redis: each goes to the slot that suits it best."""


def main() -> None:
    """Run the console script."""
    app()
