"""The typer app and its one rule for errors: a line on stderr and exit code 2, never a traceback."""

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import ParsyncError
from ..lab.commands import bench, simulate, whatif
from . import acl, cluster, dead, demo, doctor, quarantine, run, tasks


class ErrorsAsLines(TyperGroup):
    """A group of commands whose errors are one line; Ctrl-C ends with 130, without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        try:
            return super().invoke(ctx)
        except ParsyncError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(
    name="parsync",
    cls=ErrorsAsLines,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Celery tasks placed through Redis: each goes to the slot that suits it best.",
    epilog="Settings come from flags, else PARSYNC_* variables, else parsync.toml (or --config, or PARSYNC_CONFIG).",
)
for module in (run, tasks, dead, cluster, doctor, quarantine, acl, demo, bench, simulate, whatif):
    module.register(app)


def main() -> None:
    """The console script."""
    app()
