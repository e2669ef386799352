"""Write why kinds wait: each kind's reason is one scheduler's to write, and is written when it has changed."""

from collections import OrderedDict
from typing import Final
from zlib import crc32

from ..model.limits import MAX_BATCH
from .kind_group import KindGroup, WaitingKind
from .plan import Plan
from .queue_copy import QueueCopy
from .view import View

AT_ONCE: Final = 50
"""Groups that are explained in one turn of the loop."""

AGAIN: Final = 10
"""Blocked groups that are explained once more in each gap, by turns: their reason may be another one by now."""


def is_mine(waiting: WaitingKind, ordinal: int, members: int) -> bool:
    """Return whether a kind's reason is for scheduler `ordinal` of `members` to write."""
    return crc32(waiting.kind.text.encode()) % members == ordinal


class Explainer:
    """The groups whose reasons are to be found out, and those that were explained, the latest last."""

    def __init__(self, view: View, queue: QueueCopy) -> None:
        self._view, self._queue = view, queue
        self._due: OrderedDict[KindGroup, None] = OrderedDict()
        self._explained: OrderedDict[KindGroup, None] = OrderedDict()
        self._gap = False

    def on_gap(self) -> None:
        """Once a gap: explain every blocked group that never was, and some others again."""
        self._gap = True

    def _find_due(self, ordinal: int, members: int) -> None:
        """Find what is to be explained: the groups of kinds without a reason, and some others again."""
        blocked, self._gap = self._queue.blocked, False
        self._explained = OrderedDict((group, None) for group in self._explained if group in blocked)
        for group in blocked:
            if any(not waiting.why and is_mine(waiting, ordinal, members) for waiting in group.waiting.values()):
                self._due[group] = None
            elif group not in self._due:
                self._explained.setdefault(group)
        for group in [*self._explained][:AGAIN]:
            del self._explained[group]
            self._due[group] = None

    def explain(self, plan: Plan, ordinal: int, members: int) -> None:
        """Plan to write the reasons of kinds that are this scheduler's, `ordinal` of `members`."""
        if self._gap:
            self._find_due(ordinal, members)
        for _ in range(AT_ONCE):
            if not self._due or len(plan.reasons) >= MAX_BATCH:
                break
            group, _ = self._due.popitem(last=False)
            if not group.blocked or group not in self._queue.blocked:
                continue
            self._explained[group] = None
            mine = [waiting for waiting in group.waiting.values() if is_mine(waiting, ordinal, members)]
            if not mine:
                continue
            why = self._view.explain(group.needs, group.knowers)
            for waiting in mine:
                if waiting.why != why:
                    plan.reasons.append((waiting.kind.text, why))
                    waiting.why = why
