"""Calls on accounts: the ceilings of tenants and limits, and what counts to them."""

from collections.abc import Sequence
from typing import Final

from ..header import Once
from ..scripts import Script
from .base import Call, Calls, words

SET_POLICY: Final = Script("set_policy")
RECOUNT: Final = Script("recount")
ACCOUNT_SCRIPTS: Final = (SET_POLICY, RECOUNT)


class AccountCalls(Calls):
    """Calls on the accounts of a shard. A script's header says what the script does."""

    def set_policy(self, ceilings: Sequence[tuple[str, str]], shard: int = 0) -> Call[int]:
        """Replace the ceilings of a shard: (account or pattern, ceiling).

        Returns the number of ceilings that are new, changed or gone.
        """
        once: Once = {"channel": self.keys.wakes(shard)}
        values = [word for row in ceilings for word in row]
        return self._queue(SET_POLICY, int, once, ("account", "text"), values, shard)

    def recount(
        self, accounts: Sequence[str | bytes], shard: int = 0, dry: bool = False
    ) -> Call[list[str]]:
        """Count the holders of accounts of a shard anew. dry: change nothing.

        Returns a word per account: sound, or counted if something was wrong.
        """
        once: Once = {"channel": self.keys.wakes(shard), "how": "look" if dry else "repair"}
        return self._queue(RECOUNT, words, once, ("account",), accounts, shard)
