"""By when submitted tasks should start, by the orders of their tenants in the policy."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from ..errors import AccessDenied, DamagedState, InvalidInput, ServerUnreachable
from ..model.policy import AGE, Policy
from ..model.task import Submission
from ..orders import OrderFacts, find_order, offset_ms
from ..store.policy import stored_policy
from ..store.reads.times import LearntMeans
from ..store.store import Store

log = logging.getLogger("parsync")

POLICY_KEPT_S: Final = 60.0
"""For so long a process that submits goes by the policy that it has read."""


class StartTimes:
    """Gives submissions the times by which they should start.

    Only tasks with a tenant cost a read: of the policy, and of learnt run times, once a minute.
    A policy that cannot be read leaves the last one as it is. An order that this process does not
    have counts as `age`, and is logged once.
    """

    def __init__(self, store: Store, time_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._time_s = time_s
        self._means = LearntMeans(store, time_s)
        self._policy = Policy()
        self._read_s = float("-inf")
        self._unknown = set[str]()

    def give(self, tasks: Sequence[Submission]) -> Sequence[Submission]:
        """Return the tasks with the start that the orders of their tenants say."""
        tenants = {task.options.tenant for task in tasks} - {""}
        if not tenants:
            return tasks
        self._read_policy()
        orders = {tenant: self._order_of(tenant) for tenant in tenants}
        if {*orders.values()} == {AGE}:
            return tasks
        names = {task.name for task in tasks if orders.get(task.options.tenant, AGE) != AGE}
        means = self._means.of(names)

        def start(task: Submission) -> Submission:
            order = orders.get(task.options.tenant, AGE)
            if order == AGE or task.start_ms is not None or task.after:
                return task  # what a run does next keeps the time of its task
            facts = OrderFacts(task.name, means[task.name])
            return task._replace(start_ms=offset_ms(order, facts))

        return [start(task) for task in tasks]

    def _read_policy(self) -> None:
        now_s = self._time_s()
        if now_s - self._read_s < POLICY_KEPT_S:
            return
        self._read_s = now_s
        try:
            self._policy = stored_policy(self._store).policy
        except (AccessDenied, DamagedState, ServerUnreachable) as error:
            log.warning("the orders of tenants stay as they are: %s", error)

    def _order_of(self, tenant: str) -> str:
        """Return the name of a tenant's order, `age` for one that this process does not have."""
        order = self._policy.tenant(tenant).order
        if order in self._unknown:
            return AGE
        try:
            find_order(order)
        except InvalidInput as error:
            self._unknown.add(order)
            log.warning("tasks of tenant %s go by age: %s", tenant, error)
            return AGE
        return order
