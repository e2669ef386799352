"""The reasons why kinds wait.

One scheduler writes the reason of a kind, when the reason has changed.
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

GROUPS_PER_TURN: Final = 50
"""Maximum number of groups explained in one turn of the loop."""

EXPLAINED_AGAIN: Final = 10
"""Number of blocked groups explained again in each gap, by turns, because reasons change."""


def is_mine(waiting: WaitingKind, ordinal: int, members: int) -> bool:
    """Return whether scheduler `ordinal` of `members` writes the reason of this kind."""
    return crc32(waiting.kind.text.encode()) % members == ordinal


def write_reason(plan: Plan, waiting: WaitingKind, why: str) -> bool:
    """Plan to write the reason of a kind, if it has changed; return whether it has."""
    if waiting.why == why:
        return False
    plan.reasons.setdefault(waiting.shard, []).append((waiting.kind.text, why))
    waiting.why = why
    return True


class Explainer:
    """The groups whose reasons are to be found."""

    def __init__(self, view: View, queue: QueueCopy) -> None:
        self._view = view
        self._queue = queue
        self._due: OrderedDict[KindGroup, None] = OrderedDict()
        self._gap = False

    def on_gap(self) -> None:
        """Begin a gap.

        Explain every blocked group with a kind without a reason, and a few groups again.
        """
        self._gap = True

    def _find_due(self) -> None:
        """Find the groups to explain, without a look at all blocked groups.

        There may be ten thousand.
        """
        blocked = self._queue.blocked
        self._gap = False
        self._due.update(blocked.unexplained)
        self._due.update((group, None) for group in islice(blocked.explained, EXPLAINED_AGAIN))

    def explain(self, plan: Plan, ordinal: int, members: int) -> None:
        """Plan to write the reasons of the kinds that are scheduler `ordinal`'s of `members`."""
        if self._gap:
            self._find_due()
            self._explain_full(plan, ordinal, members)
        room = GROUPS_PER_TURN
        written = 0
        while room and self._due and written < MAX_BATCH:
            group, _ = self._due.popitem(last=False)
            if not group.blocked or group not in self._queue.blocked:
                continue
            self._queue.find_full([group])
            if group not in self._queue.blocked:
                continue
            self._queue.blocked.on_explained(group)
            kinds = group.waiting.values()
            own_kinds = [waiting for waiting in kinds if is_mine(waiting, ordinal, members)]
            if not own_kinds:
                continue
            room -= 1
            barred_by = self._queue.barred.bars(own_kinds[0].kind)
            why = self._view.explain(group.needs, group.knowers, barred_by)
            written += sum([write_reason(plan, waiting, why) for waiting in own_kinds])

    def _explain_full(self, plan: Plan, ordinal: int, members: int) -> None:
        """Plan to write which account has no room for a kind."""
        accounts = self._queue.accounts
        for waiting in self._queue.full.to_explain(MAX_BATCH, EXPLAINED_AGAIN):
            why = accounts.why(waiting.kind, waiting.shard)
            if why and is_mine(waiting, ordinal, members):
                write_reason(plan, waiting, why)
