"""The `parsync` program: the table of commands, imported one at a time, and one rule for errors.

A command's module is imported when that command runs. `parsync --help` reads only the table.
"""

import sys
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import ParsyncError

COMMANDS: Final = {
    "cli.run": {
        "scheduler": "Run a scheduler until SIGTERM or Ctrl-C.",
        "dev": "Run a server, schedulers and workers of an app in this terminal, until Ctrl-C.",
    },
    "cli.tasks": {
        "submit": "Submit a task and print its id.",
        "status": "Shows a task: its state, where it is, why it waits, and the time of each step.",
        "tasks": "Lists tasks: those under way first, then final ones.",
        "cancel": "Cancels tasks: one that runs is asked to end.",
        "purge": "Cancels tasks that wait, or deletes the records of tasks that have ended.",
    },
    "cli.dead": {"dead": "Dead tasks: started as often as they may, and lost each time."},
    "cli.cluster": {
        "nodes": "Lists nodes: slots that are free and held, resources that are left, labels.",
        "partitions": "Lists partitions, and how evenly nodes, scores and labels are dealt to them.",
        "schedulers": "Lists schedulers: which is leader, which is alive, and what each says of itself.",
        "drain": "Lets no new task go to a node, also after it restarts; "
        "what runs there goes on, until the deadline if given.",
        "undrain": "Lets tasks go to a node again that is drained, or suspect.",
    },
    "cli.doctor": {"doctor": "Checks server, scripts, schedulers, ticks and nodes; each line with its fix."},
    "cli.quarantine": {"quarantine": "What was damaged where a process read the state: list, show, clear."},
    "cli.acl": {
        "acl": "Prints Redis ACL lines: a login for each role, with just the commands, keys and channels that it needs."
    },
    "cli.demo": {"demo": "Measure the standard library on a server, schedulers and 4 workers of its own."},
    "lab.commands.bench": {"bench": "Measure what parsync does and costs."},
    "lab.commands.simulate": {"simulate": "Run the paper's experiments with our own schedulers, in virtual time."},
    "lab.commands.whatif": {"whatif": "Predict delays, conflicts and the load of Redis for your numbers."},
}
"""For each module, its commands: name and the first sentence of the help. `lab` is named here, never imported above."""


def load(name: str) -> Any:
    """Import the module of a command and return the click command; raise KeyError for an unknown name."""
    module = {command: module for module, commands in COMMANDS.items() for command in commands}[name]
    own = typer.Typer()
    own.callback()(lambda: None)
    import_module(f"parsync_redis.{module}").register(own)
    return typer.main.get_group(own).commands[name]


class CommandTable(TyperGroup):
    """The commands of the table; errors are one line on stderr and exit code 2, Ctrl-C is exit code 130."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for commands in COMMANDS.values():
            for name, help in commands.items():
                self.add_command(TyperCommand(name, help=help))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the table's entry by the command itself."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and found else found, rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except ParsyncError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(
    name="parsync",
    cls=CommandTable,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Settings come from flags, else PARSYNC_* variables, else parsync.toml (or --config, or PARSYNC_CONFIG).",
)


@app.callback()
def parsync() -> None:
    """Place Celery tasks through Redis: each goes to the slot that suits it best."""


def main() -> None:
    """Run the console script."""
    app()
