"""The common flags of commands that list: `--wide`, and `--watch`, which draws periodically."""

import inspect
import io
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import count
from typing import Annotated, Any, get_type_hints

import typer

from ..errors import InvalidInput, ParsyncError
from ..model.human import age_text
from .common import WIDE, tell

Wide = Annotated[bool, typer.Option("--wide", help="All columns, and on a terminal whole ids.")]
Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="[SECONDS]",
        min=0.1,
        max=3600,
        help="Draw again every 2 seconds, or so many, until Ctrl-C.",
        show_default=False,
    ),
]


def listing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that lists the flags --wide and --watch."""
    hints = get_type_hints(command, include_extras=True)
    own_parameters = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(command).parameters.values()
    ]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    listing_parameters = [
        inspect.Parameter("wide", kind, default=False, annotation=Wide),
        inspect.Parameter("watch", kind, default=None, annotation=Watch),
    ]
    names = [parameter.name for parameter in own_parameters]
    position = names.index("as_json")

    def run(wide: bool, watch: float | None, **arguments: Any) -> None:
        WIDE.set(wide)
        if watch is None:
            command(**arguments)
            return
        if arguments["as_json"]:
            raise InvalidInput(
                "--watch draws on a terminal, --json is for programs: give one of them"
            )
        watch_command(lambda: command(**arguments), watch)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    parameters = [*own_parameters[:position], *listing_parameters, *own_parameters[position:]]
    vars(run).update(__signature__=inspect.Signature(parameters))
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def watch_command(draw: Callable[[], None], every_s: float) -> None:
    """Run a command every `every_s` seconds until Ctrl-C, and draw its output on the terminal.

    An error is drawn too, and the next run tries again. Raises InvalidInput without a terminal.
    """
    if not sys.stdout.isatty():
        raise InvalidInput(
            "--watch needs a terminal: without one run the command again, or read --json"
        )
    for look in count(1):
        text = _drawn(draw)
        width, height = shutil.get_terminal_size()
        head = f"every {age_text(every_s)}, Ctrl-C ends it; look {look}"
        sys.stdout.write(screen([head[:width], *text.splitlines()], height))
        sys.stdout.flush()
        time.sleep(every_s)


class _Page(io.StringIO):
    """The output of one run of a command, which prints to it as to a terminal."""

    def isatty(self) -> bool:
        """Return True: the page is drawn on a terminal."""
        return True


def _drawn(draw: Callable[[], None]) -> str:
    page = _Page()
    with redirect_stdout(page):
        try:
            draw()
        except ParsyncError as error:
            tell(f"error: {error}; it is tried again")
        except typer.Exit:
            pass  # a command's exit code says something to scripts, not to people who watch
    return page.getvalue()


def screen(lines: Sequence[str], height: int) -> str:
    """Return the text that draws at most `height` lines over the lines that are on the terminal.

    A line is cleared only behind its new text, so that the screen does not flicker.
    """
    visible = list(lines)
    if len(visible) > height - 1:
        hidden_count = len(visible) - height + 2
        visible = visible[: height - 2]
        visible.append(f"... and {hidden_count} more lines: a taller window shows them")
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in visible) + "\x1b[J"
