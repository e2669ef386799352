"""The health file of a process: while the file is young, the process is well.

A probe needs no Python to look at the file:

    test $(( $(date +%s) - $(stat -c %Y FILE) )) -lt 30

A process renews the file only when a renewal of its lease has succeeded. So a process that is
stuck, or cut off from its server, does not renew the file.
"""

import logging
import os
from pathlib import Path

from .errors import InvalidInput

log = logging.getLogger("parsync")


class HealthFile:
    """The health file of a process, or nothing if the process has none.

    Raises InvalidInput for a file that cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._renewed_s = float("-inf")
        self._complained = False
        if path is None:
            return
        if path.is_dir():
            raise InvalidInput(f"health file {path} cannot be written: it is a folder")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            why = f"{path.parent} is no folder, or this user may not write there"
            raise InvalidInput(f"health file {path} cannot be written: {why}")
        self.remove()  # An earlier process may have left a file, which tells nothing of this one.

    def renew(self, renewed_s: float, text: str) -> None:
        """Renew the file after a renewal of the lease.

        renewed_s: when the lease was renewed (monotonic); an earlier call's time renews nothing.
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
        """Remove the file, because the process ends."""
        if self._path is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the health file %s cannot be removed: %s", self._path, error)
