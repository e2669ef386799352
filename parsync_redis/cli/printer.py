"""Print the lines of several processes: for people with a name and a color for each, or as JSON."""

import json
import sys
import threading

from rich.console import Console
from rich.text import Text

from .common import say

_COLORS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "bright_cyan",
    "bright_magenta",
    "bright_green",
)


class Printer:
    """Prints lines of several processes, each with its name in front in a color of its own; those
    of parsync bare.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._lock = threading.Lock()
        self._colors: dict[str, str] = {}

    def __call__(self, name: str, line: str) -> None:
        """Print one line."""
        with self._lock:
            if name == "parsync":
                self._console.print(Text(line))
                return
            color = self._colors.setdefault(name, _COLORS[len(self._colors) % len(_COLORS)])
            # Keep the programs' colors; their brackets are not markup.
            self._console.print(Text.assemble((f"{name:<12} ", color)) + Text.from_ansi(line))


class JsonPrinter:
    """Prints each line as JSON, with the name of the process that it is of as `source`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, name: str, line: str) -> None:
        """Print one line; one that is no JSON object is the message of one."""
        try:
            found = json.loads(line)
        except ValueError:
            found = line
        fields = found if isinstance(found, dict) else {"message": line}
        with self._lock:
            say(json.dumps({"source": name, **fields}))
            sys.stdout.flush()
