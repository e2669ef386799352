"""A scheduler's part in the policy: it reads what the policy says of tenants.

The scheduler looks at the version once in a gap, and only while tasks of tenants wait. Without
tenants nothing is read.
"""

import logging
from typing import Any

from ...errors import DamagedState
from ...store.policy import stored_policy
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
                self._core.on_policy(stored_policy(self._store).policy)
            except DamagedState as error:
                log.warning("the shares of tenants stay as they are: %s", error)
            self._version = version
