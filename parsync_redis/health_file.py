"""The health file of a process: while it is young the process is well.

A probe needs no Python to look at it:

    test $(( $(date +%s) - $(stat -c %Y FILE) )) -lt 30

A process renews it only when a renewal of its lease has succeeded, so neither one that is stuck nor
one that is cut off from its server does.
"""

import logging
import os
from pathlib import Path

from .errors import InvalidInput

log = logging.getLogger("parsync")


class HealthFile:
    """The file, or nothing if a process has none.

    Raises InvalidInput for a file that cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._renewed_s = float("-inf")
        self._complained = False
        if path is None:
            return
        if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
            why = (
                "it is a folder"
                if path.is_dir()
                else f"{path.parent} is no folder, or this user may not write there"
            )
            raise InvalidInput(f"health file {path} cannot be written: {why}")
        self.remove()  # that of an earlier process says nothing of this one

    def renew(self, renewed_s: float, text: str) -> None:
        """Renew the file after a renewal at that time (monotonic); a time that was told before
        renews nothing.

        text: what the process says of itself, for people.
        """
        if self._path is None or renewed_s <= self._renewed_s:
            return
        self._renewed_s = renewed_s
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_text(f"{text}\n", encoding="utf-8")
            new.replace(self._path)
            self._complained = False
        except OSError as error:
            if not self._complained:
                log.warning("the health file %s gets old: %s", self._path, error)
            self._complained = True

    def remove(self) -> None:
        """Remove the file: the process ends."""
        if self._path is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the health file %s cannot be removed: %s", self._path, error)
