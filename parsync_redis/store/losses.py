"""Lost writes: what the schedulers saw the server forget, by numbers that only grow and went back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ..model.text import LOSS
from .runner import Runner

KEEP_S: Final = 7 * 86_400
"""How long a loss is kept."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of writes: when it was seen (ms, server time), by which scheduler, and the numbers that decreased."""

    at_ms: int
    seen_by: str
    went_back: tuple[str, ...]

    @property
    def text(self) -> str:
        """For people."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"at {at} it had lost its last writes: {', '.join(self.went_back)} (seen by {self.seen_by})"


def read_losses(store: Runner) -> list[Loss]:
    """Return the known losses, the newest first. Raises ServerUnreachable."""
    return read_lines(store.hash(store.keys.shared("losses")))


def read_lines(lines: Mapping[str, str]) -> list[Loss]:
    """Read the fields of the key as losses; other lines are passed over."""
    found = []
    for line, at in lines.items():
        if (fields := LOSS.read(line)) and at.isdecimal():
            numbers = fields["numbers"].replace("=", " ").replace("->", " -> ")
            found.append(Loss(int(at), fields["name"], tuple(re.findall(r"\S+ \d+ -> \d+", numbers))))
    return sorted(found, key=lambda loss: -loss.at_ms)
