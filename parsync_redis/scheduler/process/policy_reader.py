"""A scheduler's part in the policy: it reads what the policy says of tenants.

The scheduler looks at the version once in a gap, and only while tasks of tenants wait. Without
tenants nothing is read. While the policy gives a tenant a half-life, or counts work, the scheduler
reads what the leader notes of shares as often as the leader does.
"""

import logging
from typing import Any

from ...errors import DamagedState
from ...model.policy import Policy
from ...model.used_share import SharesByTenant
from ...store.policy import stored_policy
from ...store.repair.lost_leases import now_ms
from ...store.server.server_errors import is_damage
from ...store.store import Store
from ..core.core import Core
from .guarded import unless_away

log = logging.getLogger("parsync.scheduler")


class PolicyReader:
    """Gives the core the policy whenever its version has changed."""

    def __init__(self, store: Store, core: Core) -> None:
        self._store = store
        self._core = core
        self._version: bytes | None = None
        self._policy = Policy()

    def work(self) -> None:
        """Read the policy, if tenants wait and its version is new.

        A damaged document changes nothing: the policy before it stays.
        """
        if self._core.queue.tree is None:
            return
        with unless_away(self._store):
            key = self._store.keys.shared("policy")
            reply: Any
            (reply,) = self._store.pipe_each([("hmget", key, ["version"])])
            if isinstance(reply, Exception):
                if not is_damage(reply):
                    raise reply
                return
            (version,) = reply
            if version == self._version:
                return
            try:
                self._policy = stored_policy(self._store).policy
                self._core.on_policy(self._policy)
            except DamagedState as error:
                log.warning("the shares of tenants stay as they are: %s", error)
            self._version = version

    def read_shares(self) -> None:
        """Read what the leader notes of shares, if tenants wait and the policy asks for it.

        A key of another type counts as empty: past use counts for nobody until the leader has
        written the key anew.
        """
        queue = self._core.queue
        if queue.tree is None:
            return
        if not self._policy.notes_shares:
            if queue.used_shares or queue.work:
                queue.set_used_shares({}, {})
            return
        with unless_away(self._store):
            try:
                fields = self._store.read("hgetall", self._store.keys.shared("shares"))
            except DamagedState:
                fields = {}
            shares = SharesByTenant.of(fields)
            used = shares.at(now_ms(self._store), self._policy)
            queue.set_used_shares(used, shares.work(self._policy))
