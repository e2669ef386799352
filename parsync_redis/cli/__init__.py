"""The command line: `parsync`.

Each module has the commands of one concern; this one puts them together.
"""

from .app import app, main

__all__ = ["app", "main"]
