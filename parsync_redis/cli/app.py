"""The `parsync` program: the table of commands, imported one at a time, and one rule for errors.

A command's module is imported when that command runs. `parsync --help` reads only the table.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import InvalidInput, ParsyncError
from ..model.printable import printable
from .words import fill_watch

COMMANDS: Final = {
    "cli.run": {"scheduler": "Run a scheduler until SIGTERM or Ctrl-C."},
    "cli.dev": {
        "dev": "Run a server, schedulers and workers of an app in this terminal, until Ctrl-C."
    },
    "cli.tasks": {
        "submit": "Submit a task and print its id.",
        "status": "Show a task: its state, its place, why it waits, and the time of each step.",
        "demand": "Show what waits, by kind: how many tasks of equal name, needs and strategy, and why.",
        "names": (
            "Show how long the tasks of each name run, by node class too: their number, mean and "
            "95th percentile."
        ),
    },
    "cli.top": {"top": "Show the cluster and draw it again every second, until q."},
    "cli.find": {"tasks": "List tasks: first those that have not ended."},
    "cli.explain": {
        "explain": (
            "Say why a task waits, what keeps each node, who holds what it needs, and when it may "
            "start."
        ),
        "plan": "Say where a task would go, without submitting it.",
    },
    "cli.events": {
        "events": "Show what happened out of the ordinary: to tasks, nodes, schedulers and the cluster."
    },
    "cli.ending": {
        "cancel": (
            "Cancel tasks by their ids, or all of a kind, name or state: a running one is asked to "
            "end."
        ),
        "purge": "Cancel tasks that wait, or delete the records of tasks that have ended.",
    },
    "cli.dead": {"dead": "Dead tasks, which lost as many starts as they may: list, show, requeue."},
    "cli.cluster": {
        "nodes": (
            "List nodes, or tell all about one: what runs there and for how long, what is left, "
            "what failed last."
        ),
        "partitions": "List partitions, and how evenly nodes, scores and labels are dealt to them.",
        "schedulers": "List schedulers: which is leader, which is alive, and the statistics of each.",
        "drain": (
            "Give a node no new tasks, also after it restarts; its runs go on, until a deadline if "
            "one is given."
        ),
        "undrain": "Give tasks to a drained or suspect node again.",
    },
    "cli.doctor": {
        "doctor": "Check server, scripts, schedulers, ticks and nodes; each line has its fix."
    },
    "serve.command": {
        "serve": "Show the cluster over HTTP: pages, metrics for Prometheus, health, and a JSON API."
    },
    "serve.logins": {
        "serve-token": "Make a token for a submitter, and its hash for the file of submitters.",
        "serve-password": "Make an operator's line for the file of operators.",
    },
    "cli.quarantine": {
        "quarantine": "Damaged or foreign values that a process met in the state: list, show, clear."
    },
    "cli.repair": {
        "repair": "Find damaged keys and rebuild them from what is left, as the leader does bit by bit."
    },
    "cli.lua": {"lua": "The Lua scripts as the server gets them: list, show."},
    "cli.acl": {
        "acl": (
            "Print Redis ACL lines: a login for each role, with just the commands, keys and "
            "channels that it needs."
        )
    },
}
"""Commands by module of parsync_redis: name and first sentence of the help."""

GROUP: Final = "parsync_redis.commands"
"""The group of entry points by which distributions add commands; each names a table like COMMANDS,
of full modules.
"""

ELSEWHERE: Final = dict.fromkeys(("bench", "simulate", "replay"), "parsync-lab")
"""Commands of this project's other distributions: the name of the distribution."""


@cache
def added_commands() -> dict[str, dict[str, str]]:
    """Return the commands of other installed distributions: by module, name and first sentence of
    the help.
    """
    from importlib.metadata import entry_points

    return {
        module: commands
        for entry in entry_points(group=GROUP)
        for module, commands in entry.load().items()
    }


def all_commands() -> list[str]:
    """Return the names of all commands: those of parsync_redis, then those of other installed
    distributions.
    """
    return [
        name for commands in (*COMMANDS.values(), *added_commands().values()) for name in commands
    ]


def load(name: str) -> Any:
    """Import the module of a command and return the click command; raise KeyError for an unknown
    name.
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
    own = typer.Typer()
    own.callback()(lambda: None)
    import_module(modules[name]).register(own)
    return typer.main.get_group(own).commands[name]


class CommandTable(TyperGroup):
    """The commands of the table; errors are one line on stderr and exit code 2, Ctrl-C is exit code
    130.

    Other distributions are asked for their commands only for a list of all commands or an unknown
    name.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._add(COMMANDS)

    def _add(self, table: Mapping[str, Mapping[str, str]]) -> None:
        for commands in table.values():
            for name, help in commands.items():
                self.add_command(TyperCommand(name, help=help))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        self._add(added_commands())
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command of a name, None if there is none; raise InvalidInput if its
        distribution is missing.
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
        """Replace the table's entry by the command itself."""
        name, found, rest = super().resolve_command(ctx, fill_watch(args))
        return name, load(name) if name and found else found, rest

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


def _tell_version(asked: bool) -> None:
    if asked:
        from .. import __version__

        print(f"parsync {__version__}")
        raise typer.Exit(0)


@app.callback()
def parsync(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Place Celery tasks through Redis: each goes to the slot that suits it best."""


def main() -> None:
    """Run the console script."""
    app()
