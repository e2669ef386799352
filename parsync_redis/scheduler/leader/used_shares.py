"""The duty to note what tenants hold, so that past use counts against them (`half_life`)."""

from itertools import chain
from math import ceil

from ...model.policy import Policy
from ...model.used_share import KEPT_HALF_LIVES, SharesByTenant, rows_to_note, shares_held
from ...store.reads.accounts import read_account_lines
from ...store.reads.live_nodes import open_amounts
from ...store.reads.views import read_live_nodes
from ...store.repair.lost_leases import now_ms
from ...store.store import Store
from ..process.guarded import batches


class UsedShareDuty:
    """The used shares in `{C}:shares`. Without a half-life in the policy there is nothing to do.

    The duty keeps nothing of its own: the hash says when each share was noted. So the next leader
    goes on, and two leaders at once count no time twice.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def work(self, policy: Policy) -> None:
        """Note the share of each tenant that holds something, or did at the last pass."""
        longest_s = policy.longest_half_life_s
        if not longest_s:
            return
        store = self._store
        before = SharesByTenant.of(store.read("hgetall", store.keys.shared("shares")))
        totals, used = open_amounts(chain.from_iterable(read_live_nodes(store)))
        shares = shares_held(read_account_lines(store), totals, used)
        rows = [*rows_to_note(shares, before, now_ms(store), policy)]
        keep_s = ceil(KEPT_HALF_LIVES * longest_s)
        for batch in batches(rows):
            store.run(store.commands.note_shares(batch, keep_s))
