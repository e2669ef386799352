"""The seat keeper opens and shuts a node's waiting seats.

It hands back tasks that have waited too long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...store.server.server_errors import Backoff
from ...store.store import Store
from ..duty import Duty
from .node_state import AgentState
from .reconciler import Reconciler
from .run_starter import Starter

log = logging.getLogger("parsync.agent")

OPEN_CHECK_S: Final = 0.02
"""Interval at which the keeper looks while waiting seats are open, in seconds."""
SHUT_CHECK_S: Final = 0.1
"""Interval at which the keeper looks while waiting seats are shut and a task runs, in seconds."""


class SeatKeeper(Duty):
    """Keeps the waiting seats in a thread of its own: a solo pool occupies the event loop."""

    def __init__(
        self,
        store: Store,
        node: AgentState,
        starter: Starter,
        reconciler: Reconciler,
        nudge: Callable[[], object],
    ) -> None:
        super().__init__("parsync-seats")
        self._store = store
        self._node = node
        self._starter = starter
        self._reconciler = reconciler
        self._nudge = nudge
        self._unread = False
        self._backoff = Backoff(log, f"the waiting seats of node {node.name}")

    def work(self) -> None:
        """Keep the seats until the node stops."""
        node = self._node
        store = self._store.with_own_connections()
        while not node.stopped:
            pause_s = OPEN_CHECK_S if node.seats_open else SHUT_CHECK_S
            try:
                self.keep(store)
                self._backoff.well()
            except (ParsyncError, RedisError, OSError) as error:
                pause_s = self._backoff.pause_s(error)
            except Exception:
                log.exception("the waiting seats of node %s: unexpected", node.name)
            node.wait_for_runs(pause_s)

    def keep(self, store: Store) -> None:
        """Look once: hand back late tasks, then open or shut seats."""
        node = self._node
        now_s = time.monotonic()
        if node.leaving:
            self._starter.hand_back("its worker shuts down")
        elif why := self._why_not(now_s):
            self._unread |= node.seats_open != 0
            node.ahead.late()
            if node.runs.waiting():
                node.seats_open = -1  # a failover may have lost the write that shut them
            try:
                self._set(store)
            finally:  # also while the partition's primary is away
                self._starter.hand_back(why)
            if self._unread:  # the seats are shut, so no more tasks come
                self._reconciler.give_back_unread(store, why)
                self._unread = False
        elif node.runs.waiting() and node.runs.idle(node.ahead.slots):
            self._nudge()  # an occupied slot has become free, or a request was lost
        self._set(store)

    def _why_not(self, now_s: float) -> str:
        """Return why no task may wait behind the node's slots now, '' if tasks may wait.

        A waiting task is late when its due time has passed; a running one, when it takes longer
        than was expected. A solo pool hears no doorbell while a task runs.
        """
        node = self._node
        runs = self._node.runs
        if node.drained:
            return "its node is drained"
        late = any(run.due_s < now_s for run in runs.waiting())
        late = late or any(
            node.ahead.is_late(run.began_s or run.handed_s, now_s) for run in runs.going()
        )
        return "the task ahead of it took longer than was expected" if late else ""

    def _set(self, store: Store) -> None:
        node = self._node
        seats = node.ahead.wanted
        inc = node.inc
        if inc and not node.leaving and (inc, seats) != (node.seats_of, node.seats_open):
            if seats or node.seats_open:  # a node that has just registered has none open
                # the number is not known: the answer may be lost
                node.seats_of = inc
                node.seats_open = -1
                store.run(
                    store.commands.set_node(node.partition, node.name, "ahead", inc, str(seats))
                )
            node.seats_of = inc
            node.seats_open = seats
