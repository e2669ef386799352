"""Calls on accounts: the ceilings of tenants and limits, and what counts to them."""

from collections.abc import Sequence
from typing import Final

from ....model.allotment import AllotReply, AllotRow
from ..header import Once
from ..scripts import Script
from .base import Call, Calls, words

SET_POLICY: Final = Script("set_policy")
RECOUNT: Final = Script("recount")
ALLOT: Final = Script("allot")
ACCOUNT_SCRIPTS: Final = (SET_POLICY, RECOUNT, ALLOT)


class AccountCalls(Calls):
    """Calls on the accounts of a shard. A script's header says what the script does."""

    def set_policy(self, ceilings: Sequence[tuple[str, str]], shard: int = 0) -> Call[int]:
        """Replace the ceilings of a shard: (account or pattern, ceiling).

        A ceiling with DECLARED_MARK is declared by an app; it stays if no row names or covers it.

        Returns the number of ceilings that are new, changed or gone.
        """
        once: Once = {"channel": self.keys.wakes(shard), "how": "replace"}
        values = [word for row in ceilings for word in row]
        return self._queue(SET_POLICY, int, once, ("account", "text"), values, shard)

    def remove_declared(self, names: Sequence[str], shard: int = 0) -> Call[int]:
        """Remove the ceilings of limits of a shard that apps declared: limits or patterns.

        A ceiling stays that a worker's app declares, or whose limit a task holds or waits under.

        Returns the number of ceilings that are gone.
        """
        once: Once = {"channel": self.keys.wakes(shard), "how": "remove"}
        values = [word for name in names for word in (name, "")]
        return self._queue(SET_POLICY, int, once, ("account", "text"), values, shard)

    def recount(
        self, accounts: Sequence[str | bytes], shard: int = 0, dry: bool = False
    ) -> Call[list[str]]:
        """Count the holders of accounts of a shard anew. dry: change nothing.

        Returns a word per account: sound, counted if something was wrong, or idle.
        """
        once: Once = {"channel": self.keys.wakes(shard), "how": "look" if dry else "repair"}
        return self._queue(RECOUNT, words, once, ("account",), accounts, shard)

    def allot(
        self, seal: str, salt: str, rows: Sequence[AllotRow] = (), shard: int = 0
    ) -> Call[AllotReply]:
        """Write allotments of a shard, and read those of the rows; of all accounts without rows.

        seal: of the last reply; '' to seal the shard for this caller. salt: unique to the caller.
        """
        once: Once = {"channel": self.keys.wakes(shard), "seal": seal, "salt": salt}
        values = [word for row in rows for word in row]
        names = ("account", "text", "next")
        return self._queue(
            ALLOT, lambda reply: AllotReply.of(words(reply)), once, names, values, shard
        )
