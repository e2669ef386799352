"""Find accounts that differ from the tasks that count to them, and count these anew.

Used shares that cannot be read are forgotten.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import DamagedState
from ...model.ids import readable
from ...model.limits import MAX_BATCH
from ...model.used_share import SharesByTenant
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


def repair_shares(store: Store, tell: Callable[[Finding], object], dry: bool) -> None:
    """Forget used shares that cannot be read, unless `dry`: past use counts anew from then on.

    tell: is called with each finding.
    """
    key = store.keys.shared("shares")
    try:
        fields = SharesByTenant.of(store.read("hgetall", key)).unreadable
    except DamagedState:
        return  # a key of another type is found elsewhere
    for start in range(0, 0 if dry else len(fields), MAX_BATCH):
        rows = [(field, 0.0, 0.0, 1.0) for field in fields[start : start + MAX_BATCH]]
        store.run(store.commands.note_shares(rows))
    for field in fields:
        done = "" if dry else "forgotten: past use counts anew"
        where = f"{key} {readable(field)[:200]}"
        tell(Finding(where, "it is not the used share of a tenant", done))
