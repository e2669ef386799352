"""The methods of ParsyncClient about who goes first: the policy, its tenants and limits."""

from collections.abc import Sequence

from ..model.account_views import HolderView, LimitView, TenantView
from ..store.policy import PolicyView, change_policy, set_values, view_policy
from ..store.store import Store
from .requests import Requests


class PolicyMethods:
    """The requests of a client about the policy, tenants and limits."""

    requests: Requests
    store: Store

    def policy(self) -> PolicyView:
        """Return the policy of the cluster, its tenants and limits; version 0 is none.

        Raises DamagedState for a document that cannot be read.
        """
        return self.requests.do(lambda: view_policy(self.store))

    def apply_policy(self, document: str, by: str = "") -> list[str]:
        """Let the cluster have this policy; return what changes, in words, [] for nothing.

        document: TOML, as docs/policy.md says. by: who applies it, for the history.

        Raises InvalidInput for a document with a mistake, and if somebody else has changed the
        policy meanwhile; nothing was changed then.
        """
        return self.requests.do(lambda: change_policy(self.store, lambda _: document, by)[1])

    def set_policy(self, assignments: Sequence[str], by: str = "") -> list[str]:
        """Set values of the policy, all or none; return what changes, in words.

        assignments: ['limits.stripe.at_once=3']; an empty value removes the key or the entry.
        by: who sets them, for the history. Comments of the document are lost.

        Raises InvalidInput, as `apply_policy` does.
        """
        return self.requests.do(lambda: change_policy(self.store, set_values(assignments), by)[1])

    def limits(self) -> list[LimitView]:
        """Return the limits of the policy, and others that tasks wait under, sorted by name."""
        from ..inspect.tenancy import read_limits

        return self.requests.do(lambda: read_limits(self.store))

    def limit_holders(self, limit: str) -> list[HolderView]:
        """Return the tasks that hold a limit, the oldest first, 1,000 at most.

        limit: a name, or '@' and a tenant for the tasks of that tenant.

        Raises InvalidInput for a limit that is in no policy.
        """
        from ..inspect.tenancy import read_holders_of

        return self.requests.do(lambda: read_holders_of(self.store, limit))

    def tenants(self) -> list[TenantView]:
        """Return the tenants that hold something, wait, or are in the policy, sorted by name."""
        from ..inspect.tenancy import read_tenants

        return self.requests.do(lambda: read_tenants(self.store))
