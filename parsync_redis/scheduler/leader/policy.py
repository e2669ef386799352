"""The duty to bring the shards in line with the policy's document.

A process that applies a policy writes the shards first, and may die before it writes the document.
A server may also lose what a shard had.
"""

import logging

from ...model.policy import Policy
from ...store.policy import find_drift, settle_policy
from ...store.store import Store

log = logging.getLogger("parsync.leader")


class PolicyDuty:
    """The shards whose ceilings differ from the document.

    A shard is written if two looks in a row found it, because somebody may be applying a policy.
    So a shard that has lost its ceilings has them again within two leases.

    policy: as the last look found it.
    """

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._look_every_s = lease_s / 2
        self._looked_s = float("-inf")
        self._drift: tuple[int, list[int]] = (0, [])
        self.policy = Policy()

    def work(self, now_s: float) -> None:
        """Look at the policy if it is due. now_s: monotonic."""
        if now_s - self._looked_s < self._look_every_s:
            return
        self._looked_s = now_s
        stored, shards = find_drift(self._store)
        self.policy = stored.policy
        if shards and (stored.version, shards) == self._drift:
            settle_policy(self._store)
            log.warning("shards %s had other ceilings than the policy, and have them now", shards)
            shards = []
        self._drift = (stored.version, shards)
