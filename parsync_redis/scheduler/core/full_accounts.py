"""The kinds that wait because an account has no room, by shard and account.

Such a kind is in no group, so no seat is searched for it. It may have room again when the line of
its account changes, or when the next token of its rate comes. Then the oldest kinds come first, as
many as there is room for.
"""

from collections import OrderedDict
from itertools import islice
from math import inf
from typing import Final

from .accounts import AccountsCopy, Room
from .kind_group import WaitingKind
from .ranking import Ranking

KINDS_AT_ONCE: Final = 64
"""Maximum number of kinds of one account that are looked at at a time."""

LOOKS_AT_ONCE: Final = 1000
"""Number of kinds of all accounts after whose looks no further account is looked at at a time.

So a plan stays short while ten thousand accounts have room again, after a change of the policy.
"""

MARKS_AT_ONCE: Final = 100
"""Maximum number of accounts that the takes of one plan mark as full."""

AccountKey = tuple[int, str]
"""A shard and an account."""


class FullAccounts:
    """The kinds without room in an account.

    unexplained: kinds whose reason is to be found.
    """

    # A kind waits until its account changes. A scheduler is woken for that only if the account is
    # marked as full (lua/lib/kind/accounts.lua). A take that refuses tasks marks the account. But a
    # take that fills an account exactly refuses none, and a kind may come while an account is full.
    # So the next take asks for no task of one kind of each account without a mark, and marks it.

    def __init__(self, accounts: AccountsCopy) -> None:
        self._accounts = accounts
        self._kinds: dict[AccountKey, Ranking[WaitingKind]] = {}
        # accounts that may have room again
        self._roomier: dict[AccountKey, None] = {}
        # by shard, its accounts by when their next tokens come (server time)
        self._due: dict[int, Ranking[AccountKey]] = {}
        # accounts without a mark
        self._unmarked: dict[AccountKey, None] = {}
        self.unexplained: dict[WaitingKind, None] = {}
        self._explained: OrderedDict[WaitingKind, None] = OrderedDict()

    @property
    def any_unmarked(self) -> bool:
        """True if a take must mark an account as full."""
        return bool(self._unmarked)

    @property
    def any_roomier(self) -> bool:
        """True if kinds may have room again."""
        return bool(self._roomier)

    @property
    def any_due(self) -> bool:
        """True if the next plan has something to do for a kind without room."""
        return self.any_roomier or self.any_unmarked

    def add(self, waiting: WaitingKind, room: Room) -> None:
        """Add a kind for which an account has no room."""
        key = waiting.shard, room.account
        waiting.full = room.account
        self._kinds.setdefault(key, Ranking()).set(waiting, waiting.first)
        self.unexplained[waiting] = None
        self._wait_for(key, room)

    def _wait_for(self, key: AccountKey, room: Room) -> None:
        """Wait for the next token of an account, or for a task that leaves the account."""
        if room.due_ms < inf:
            due = self._due.setdefault(key[0], Ranking())
            due.set(key, min(room.due_ms, due.key(key, inf)))
        if self._accounts.must_mark(room, key[0]):
            self._unmarked[key] = None

    def take_unmarked(self) -> list[WaitingKind]:
        """Return a kind of each account that a take must mark as full, MARKS_AT_ONCE at most.

        An account is returned once.
        """
        keys = [*islice(self._unmarked, MARKS_AT_ONCE)]
        for key in keys:
            del self._unmarked[key]
        return [next(iter(self._kinds[key])) for key in keys]

    def on_line(self, waiting: WaitingKind) -> None:
        """Note that the line of a kind without room has changed."""
        self._kinds[waiting.shard, waiting.full].set(waiting, waiting.first)
        if not waiting.why:
            self.unexplained[waiting] = None

    def discard(self, waiting: WaitingKind) -> None:
        """Remove a kind, if it is here."""
        if not waiting.full:
            return
        key = waiting.shard, waiting.full
        waiting.full = ""
        self.unexplained.pop(waiting, None)
        self._explained.pop(waiting, None)
        ranking = self._kinds[key]
        ranking.discard(waiting)
        if not len(ranking):
            del self._kinds[key]
            self._roomier.pop(key, None)
            self._unmarked.pop(key, None)
            if key[0] in self._due:
                self._due[key[0]].discard(key)

    def on_account(self, shard: int, account: str) -> None:
        """Note that an account may have room again."""
        if (shard, account) in self._kinds:
            self._roomier[shard, account] = None

    def on_time(self, shard: int, now_ms: float) -> None:
        """Note the time of the server of a shard: tokens may have come."""
        due = self._due.get(shard, Ranking())
        while (top := due.top()) is not None and top[0] <= now_ms:
            due.discard(top[1])
            self._roomier[top[1]] = None

    def due_ms(self, shard: int) -> float:
        """Return when the next token of a shard comes (server time); inf if none is awaited."""
        top = self._due[shard].top() if shard in self._due else None
        return inf if top is None else float(top[0])

    def leave(self) -> list[WaitingKind]:
        """Remove the oldest kinds that may have room again, and return them.

        If `any_roomier` is true afterwards, the next call goes on.
        """
        leaving: list[WaitingKind] = []
        total = 0
        for key in [*islice(self._roomier, LOOKS_AT_ONCE)]:
            if total >= LOOKS_AT_ONCE:
                break
            total += self._leave(key, leaving)
        return leaving

    def _leave(self, key: AccountKey, leaving: list[WaitingKind]) -> int:
        """Remove the oldest kinds of an account, as many as it may have room for.

        The account is the last to be looked at again. Returns the number of looks.
        """
        del self._roomier[key]
        first = len(leaving)
        for number in range(1, KINDS_AT_ONCE + 1):
            waiting = self._oldest(key)
            if waiting is None:
                return number
            room = self._accounts.room(waiting.asks, waiting.shard)
            if room.account == key[1] and room.tasks <= 0:
                self._wait_for(key, room)
                return number
            if room.account == key[1] and room.tasks <= len(leaving) - first:
                break
            self.discard(waiting)
            if room.tasks > 0:
                leaving.append(waiting)
            else:
                self.add(waiting, room)
        if key in self._kinds:
            self._roomier[key] = None
        return number

    def _oldest(self, key: AccountKey) -> WaitingKind | None:
        """Return the kind of an account whose first task is first in the order, None for none."""
        top = self._kinds[key].top() if key in self._kinds else None
        return None if top is None else top[1]

    def to_explain(self, most: int, explained: int) -> list[WaitingKind]:
        """Return up to `most` kinds without a reason, and `explained` of the others by turns."""
        kinds = [*islice(self.unexplained, most), *islice(self._explained, explained)]
        for waiting in kinds:
            self.unexplained.pop(waiting, None)
            self._explained[waiting] = None
            self._explained.move_to_end(waiting)
        return kinds
