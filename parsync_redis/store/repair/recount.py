"""Find accounts that differ from the tasks that count to them, and count these anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import DamagedState
from ...model.ids import readable
from ..store import Store

ACCOUNTS_PER_CALL: Final = 20
"""Number of accounts that one call compares: each may have thousands of holders."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage that was found.

    where: the key, and behind a space its field. flaw: what is wrong. done: what was done, '' for
    nothing.
    """

    where: str
    flaw: str
    done: str


@dataclass(frozen=True, slots=True)
class Recounter:
    """Compares accounts with their tasks, and counts the tasks anew unless `dry`.

    tell: is called with each finding.
    """

    store: Store
    tell: Callable[[Finding], object]
    dry: bool = False

    def recount_page(self, shard: int, cursor: int, most: int) -> int:
        """Compare about `most` accounts of a shard that have a line.

        cursor: 0, or the cursor of the last page. Returns the next cursor, 0 at the end.
        """
        key = self.store.keys.queue("accounts", shard)
        try:
            next_cursor, lines = self.store.read("hscan", key, cursor, None, most)
        except DamagedState:
            return 0  # a key of another type is found elsewhere
        self.recount(shard, [*lines])
        return int(next_cursor)

    def recount(self, shard: int, accounts: Sequence[bytes]) -> None:
        """Compare these accounts of a shard."""
        key = self.store.keys.queue("accounts", shard)
        for start in range(0, len(accounts), ACCOUNTS_PER_CALL):
            batch = accounts[start : start + ACCOUNTS_PER_CALL]
            words = self.store.run(self.store.commands.recount(batch, shard, self.dry))
            for account, word in zip(batch, words, strict=True):
                if word == "counted":
                    flaw = "its line and the tasks that count to it contradict each other"
                    done = "" if self.dry else "counted anew"
                    self.tell(Finding(f"{key} {readable(account)[:200]}", flaw, done))
