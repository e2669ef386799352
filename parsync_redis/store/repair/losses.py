"""Lost writes, as the schedulers saw them: numbers that only grow went back, or a replica took a
server's place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ...model.text import LOSS
from ..runner import Runner

KEEP_S: Final = 7 * 86_400
"""How long a loss is kept."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of writes: when it was seen (ms, server time), by which scheduler, and the numbers
    that decreased.

    taken_over: the shards and partitions of each server whose place a replica took: its last writes
    may be lost.
    """

    at_ms: int
    seen_by: str
    went_back: tuple[str, ...]
    taken_over: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For people."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        lost = (
            [f"it had lost its last writes: {', '.join(self.went_back)}"] if self.went_back else []
        )
        lost += [
            f"a replica took over {what}: its last writes may be lost" for what in self.taken_over
        ]
        return f"at {at} {'; '.join(lost)} (seen by {self.seen_by})"


def read_losses(store: Runner) -> list[Loss]:
    """Return the known losses, the newest first. Raises ServerUnreachable."""
    return read_lines(store.hash(store.keys.shared("losses")))


def read_lines(lines: Mapping[str, str]) -> list[Loss]:
    """Read the fields of the key as losses; other lines are passed over."""
    found = []
    for line, at in lines.items():
        if (fields := LOSS.read(line)) and at.isdecimal():
            numbers = fields["numbers"].replace("=", " ").replace("->", " -> ")
            back = re.findall(r"\S+ \d+ -> \d+", numbers)
            taken = re.findall(r"failover@\d+ (\S+)", numbers)
            found.append(Loss(int(at), fields["name"], tuple(back), tuple(taken)))
    return sorted(found, key=lambda loss: -loss.at_ms)
