"""Print the lines of several processes: with a color for each process, or as JSON."""

import json
import sys
import threading

from rich.console import Console
from rich.text import Text

from .common import say

_PROCESS_COLORS = (
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
    """Prints lines of several processes, each line behind the name of its process in color.

    Lines of the process "parsync" are printed without a name.
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
            color = self._colors.setdefault(
                name, _PROCESS_COLORS[len(self._colors) % len(_PROCESS_COLORS)]
            )
            # from_ansi keeps the program's own colors, and takes no brackets for markup
            self._console.print(Text.assemble((f"{name:<12} ", color)) + Text.from_ansi(line))


class JsonPrinter:
    """Prints each line as a JSON object, with the name of its process as `source`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, name: str, line: str) -> None:
        """Print a line; a line that is no JSON object becomes the field `message`."""
        try:
            parsed = json.loads(line)
        except ValueError:
            parsed = None
        fields = parsed if isinstance(parsed, dict) else {"message": line}
        with self._lock:
            say(json.dumps({"source": name, **fields}))
            sys.stdout.flush()
