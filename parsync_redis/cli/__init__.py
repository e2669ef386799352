"""The command line: `parsync`. Each module has the commands of one concern."""

from .app import app, main

__all__ = ["app", "main"]
