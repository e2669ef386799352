"""The duty to bring the shards in line with the policy's document, and with what apps declare.

A process that applies a policy writes the shards first, and may die before it writes the document.
A server may also lose what a shard had. Workers may declare other limits than before.
"""

import logging
from collections.abc import Iterator

from ...model.policy import Policy
from ...store.policy import Drift, find_drift, mend_drift
from ...store.reads.views import Directory
from ...store.store import Store

log = logging.getLogger("parsync.leader")


class PolicyDuty:
    """The shards whose ceilings differ from the document.

    A shard is written if two looks in a row found the same, because somebody may be applying a
    policy. So a shard that has lost its ceilings has them again within two leases.

    policy: as the last look found it.
    """

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._look_every_s = lease_s / 2
        self._looked_s = float("-inf")
        self._directory = Directory(store)
        self._drift = Drift(0, [], [])
        self.policy = Policy()

    def work(self, now_s: float) -> None:
        """Look at the policy if it is due. now_s: monotonic."""
        if now_s - self._looked_s < self._look_every_s:
            return
        self._looked_s = now_s
        drift = find_drift(self._store, self._directory)
        self.policy = drift.policy
        if drift == self._drift and (drift.shards or drift.undeclared):
            mend_drift(self._store, drift)
            log.warning("%s", "; ".join(_changes(drift)))
            drift = Drift(drift.version, [], [])
        self._drift = drift


def _changes(drift: Drift) -> Iterator[str]:
    """Yield what was mended, for the log."""
    if drift.shards:
        shards = [*drift.shards]
        yield f"shards {shards} had other ceilings than policy and apps say, and have them now"
    if drift.undeclared:
        yield f"no worker declares the limits {', '.join(drift.undeclared)} any more: they go"
