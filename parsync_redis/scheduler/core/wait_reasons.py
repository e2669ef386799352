"""Write why kinds wait: each kind's reason is one scheduler's to write, and is written when it has
changed.
"""

from collections import OrderedDict
from itertools import islice
from typing import Final
from zlib import crc32

from ...model.limits import MAX_BATCH
from .kind_group import KindGroup, WaitingKind
from .plan import Plan
from .queue import QueueCopy
from .view import View

AT_ONCE: Final = 50
"""Groups that are explained in one turn of the loop."""

AGAIN: Final = 10
"""Blocked groups that are explained once more in each gap, by turns: their reason may be another
one by now.
"""


def is_mine(waiting: WaitingKind, ordinal: int, members: int) -> bool:
    """Return whether a kind's reason is for scheduler `ordinal` of `members` to write."""
    return crc32(waiting.kind.text.encode()) % members == ordinal


class Explainer:
    """The groups whose reasons are to be found out."""

    def __init__(self, view: View, queue: QueueCopy) -> None:
        self._view = view
        self._queue = queue
        self._due: OrderedDict[KindGroup, None] = OrderedDict()
        self._gap = False

    def on_gap(self) -> None:
        """Once a gap: explain every blocked group with a kind that has no reason, and some others
        again.
        """
        self._gap = True

    def _find_due(self) -> None:
        """Find what is to be explained; it looks at no other group, because ten thousand may be
        blocked.
        """
        blocked = self._queue.blocked
        self._gap = False
        self._due.update(blocked.unexplained)
        self._due.update((group, None) for group in islice(blocked.explained, AGAIN))

    def explain(self, plan: Plan, ordinal: int, members: int) -> None:
        """Plan to write the reasons of kinds that are this scheduler's, `ordinal` of `members`."""
        if self._gap:
            self._find_due()
        left = AT_ONCE
        written = 0
        while left and self._due and written < MAX_BATCH:
            group, _ = self._due.popitem(last=False)
            if not group.blocked or group not in self._queue.blocked:
                continue
            self._queue.blocked.on_explained(group)
            mine = [
                waiting for waiting in group.waiting.values() if is_mine(waiting, ordinal, members)
            ]
            if not mine:
                continue
            left -= 1
            why = self._view.explain(
                group.needs, group.knowers, self._queue.bars.sentences(group), group.barred
            )
            for waiting in mine:
                if waiting.why != why:
                    plan.reasons.setdefault(waiting.shard, []).append((waiting.kind.text, why))
                    waiting.why = why
                    written += 1
