"""Lost writes, as the schedulers saw them.

Numbers that only grow went back, or a replica took a server's place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...model.human import clock_text
from ...model.text import LOSS
from ..runner import Runner

KEEP_S: Final = 7 * 86_400
"""Seconds for which a loss is kept."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of writes that a scheduler noticed.

    at_ms: when, in server time. seen_by: the scheduler's name. went_back: 'NAME WAS -> IS' of each
    number that decreased. taken_over: the shards and partitions of each server whose place a
    replica took, because the server's last writes may be lost.
    """

    at_ms: int
    seen_by: str
    went_back: tuple[str, ...]
    taken_over: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The loss for people."""
        moment = clock_text(self.at_ms)
        lost = (
            [f"it had lost its last writes: {', '.join(self.went_back)}"] if self.went_back else []
        )
        lost += [
            f"a replica took over {server_keys}: its last writes may be lost"
            for server_keys in self.taken_over
        ]
        return f"at {moment} {'; '.join(lost)} (seen by {self.seen_by})"


def read_losses(store: Runner) -> list[Loss]:
    """Return the known losses, the newest first. Raises ServerUnreachable."""
    return read_lines(store.hash(store.keys.shared("losses")))


def read_lines(lines: Mapping[str, str]) -> list[Loss]:
    """Return the losses in the fields of the key, the newest first; leave out unreadable fields."""
    losses = []
    for line, at_ms in lines.items():
        if (fields := LOSS.read(line)) and at_ms.isdecimal():
            numbers = fields["numbers"].replace("=", " ").replace("->", " -> ")
            went_back = re.findall(r"\S+ \d+ -> \d+", numbers)
            taken_over = re.findall(r"failover@\d+ (\S+)", numbers)
            losses.append(Loss(int(at_ms), fields["name"], tuple(went_back), tuple(taken_over)))
    return sorted(losses, key=lambda loss: -loss.at_ms)
