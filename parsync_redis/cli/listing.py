"""The common flags of the commands that list: `--wide`, and `--watch`, which draws
again and again.
"""

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
    parameters = inspect.signature(command).parameters.values()
    hints = get_type_hints(command, include_extras=True)
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    more = [
        inspect.Parameter("wide", kind, default=False, annotation=Wide),
        inspect.Parameter("watch", kind, default=None, annotation=Watch),
    ]
    at = next(n for n, parameter in enumerate(own) if parameter.name == "as_json")

    def run(wide: bool, watch: float | None, **given: Any) -> None:
        WIDE.set(wide)
        if watch is None:
            command(**given)
            return
        if given["as_json"]:
            raise InvalidInput(
                "--watch draws on a terminal, --json is for programs: give one of them"
            )
        watch_command(lambda: command(**given), watch)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    found = inspect.Signature([*own[:at], *more, *own[at:]])
    vars(run).update(__signature__=found)
    run.__annotations__ = {
        parameter.name: parameter.annotation for parameter in found.parameters.values()
    }
    return run


def watch_command(draw: Callable[[], None], every_s: float) -> None:
    """Draw what a command prints again and again, until Ctrl-C; an error is shown, and the next
    look tries again.
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
    """The text of one look, which a command prints as it would to the terminal."""

    def isatty(self) -> bool:
        """Return True, so that the command draws for the terminal."""
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
    """Return what draws these lines over the last ones, at most `height`: no line is cleared before
    it is written.
    """
    shown = list(lines)
    if len(shown) > height - 1:
        shown = [
            *shown[: height - 2],
            f"... and {len(shown) - height + 2} more lines: a taller window shows them",
        ]
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J"
