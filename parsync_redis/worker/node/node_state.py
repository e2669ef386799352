"""The state of a node that the parts of its agent share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import Final, NamedTuple

from ..isolation.machine import Isolation
from .failures import Failures
from .look_ahead import LookAhead
from .node import NodeSpec
from .notices import Leaving, read_leaving
from .runs import RunKey, Runs
from .sources import SourceReader

log = logging.getLogger("parsync.agent")

BEFORE_CLUSTER_S: Final = 1.0
"""Interval at which a node asks whether its cluster exists by now, in seconds."""
LEAVING_S: Final = 0.2
"""The longest pause of a thread while the worker shuts down."""


class Offered(NamedTuple):
    """The offer of a node, as it was told to the server.

    note: the score, the capacity and the offer, as `set_node` takes them.
    offer: the offer, which submit and the sums of the partitions know.
    empty: the pool has no process.
    behind: the runs that hold slots which are shut: their end may open slots.
    """

    note: str
    offer: str
    empty: bool
    behind: frozenset[RunKey]


class AgentState:
    """The state of a node: its offer, its runs, its registration, and whether it takes tasks.

    partition, inc: the partition and the incarnation with which the node is registered; -1 and 0
        before.
    leaving: the worker shuts down.
    said_leaving: the server knows that.
    stalled: why no task starts here, because of the event loop or the pool; '' if tasks start.
    drained: an operator drains the node.
    leaves: when the node leaves by its source of notices; None if it stays.
    told_leaves: the incarnation that told this, and what it told; None if nothing was told.
    broker_lost: the worker deals with the loss of its broker's connection now.
    failures: the failures in a row on this node.
    ahead: the node's look-ahead.
    seats_open: the number of waiting seats that incarnation seats_of has opened, -1 if the number
        is not known.
    told_offer: the offer that the server has, None while the server is being told.
    sources: the threads that ask the node's sources.
    """

    def __init__(self, spec: NodeSpec, isolation: Isolation) -> None:
        self.spec = spec
        self.isolation = isolation
        self.runs = Runs()
        self.ahead = LookAhead(spec.offer.slots, spec.room)
        self.failures = Failures(self.ahead, lambda: self.lease_s)
        self.drained = False
        self.leaves: Leaving | None = None
        self.told_leaves: tuple[int, Leaving | None] | None = None
        self._notice_text = ""
        self.seats_open = 0
        self.seats_of = 0
        self.partition = -1
        self.inc = 0
        self.lease_s = 5 * BEFORE_CLUSTER_S
        self.pause_s = BEFORE_CLUSTER_S
        self.leaving = self.said_leaving = False
        self.broker_lost = False
        self.stalled = ""
        self.told_offer: Offered | None = None
        self.sources: tuple[SourceReader, ...] = ()
        self._hindrances: set[str] = set()
        self._stopped = threading.Event()
        self._woken = threading.Event()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.spec.name

    def hindrance(self, slots: Collection[int]) -> str:
        """Return why nothing may be started in these slots, '' if it may; log each reason once."""
        hindrance = self.isolation.hindrance(slots)
        if hindrance and hindrance not in self._hindrances:
            log.warning("node %s: %s: it is not started on", self.name, hindrance)
            self._hindrances.add(hindrance)
        return hindrance

    # -- the end of its threads --------------------------------------------------------------------

    def take_notice(self, text: str) -> None:
        """Take the text of the source of notices; raises ValueError for any other text.

        The same text again says nothing new: its seconds count from when it was first read.
        """
        text = text.strip()
        if text == self._notice_text:
            return
        leaves = read_leaving(text, time.monotonic())
        self._notice_text = text
        if leaves is None or not leaves.is_like(self.leaves):
            self.leaves = leaves

    def forget_notice(self, told_leaves: tuple[int, Leaving | None] | None) -> None:
        """Tell a notice again: the record of the node lacks it.

        told_leaves: what had been told when the record was read.
        """
        if told_leaves and told_leaves[1] and told_leaves is self.told_leaves:
            self.told_leaves = None

    @property
    def owes_notice(self) -> bool:
        """True if the server does not know yet when the node leaves, or that it stays."""
        inc, leaves = self.told_leaves or (None, None)
        return self.leaves is not (leaves if inc == self.inc else None)

    def leave(self) -> None:
        """Take no new tasks, and wake the threads. Safe in a signal handler."""
        # only once: a second signal could interrupt this very thread inside `set`
        if not self.leaving:
            self.leaving = True
            self._woken.set()

    @property
    def stopped(self) -> bool:
        """True if the threads must end."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Have the threads end."""
        self._stopped.set()
        self._woken.set()

    def wait(self, pause_s: float) -> None:
        """Wait until the pause is over or the worker stops; briefly while the worker shuts down."""
        if self.leaving:
            self._stopped.wait(min(pause_s, LEAVING_S))
        else:
            self._woken.wait(pause_s)

    def wait_until_stopped(self, pause_s: float) -> None:
        """Wait until the pause is over or the threads must end. A shutdown makes it no shorter."""
        self._stopped.wait(pause_s)

    def wait_for_runs(self, pause_s: float) -> None:
        """Wait as `wait` does, but longer while nothing runs."""
        self.wait(pause_s if len(self.runs) else max(pause_s, LEAVING_S))
