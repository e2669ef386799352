"""The isolation that a node's agent uses: the locks of its slots, and its guard."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from ...store.store import Store
from ..node.lease import LeaseKeeper, Order, Report
from .guard_process import GuardProcess, log_file
from .guarding import Guarded
from .locks import SlotBusy, busy_slots, holders, touch
from .tie import RunIsolation, open_tie, tied
from .timer import now_s

log = logging.getLogger("parsync.agent")


class Isolation:
    """The isolation that an agent asks of its machine.

    This base class isolates nothing and hinders nothing.
    """

    def join(self, cluster_id: str, shards: int) -> None:
        """Note which cluster this is, by the id that it has whatever the address.

        The agent calls this before all other methods.
        """

    def begin(self) -> None:
        """Have the guard ready.

        Raises OSError. The thread parsync-renew calls `begin`, `keep`, `has_news` and `leave`.
        """

    def keep(self, store: Store, keeper: LeaseKeeper, order: Order) -> list[Report]:
        """Give a sign of life, and return the server's replies to renewals since the last call.

        Without a guard this thread renews the lease.
        """
        report = keeper.renew(store, order)
        if report.word == "ok":
            keeper.judge(store, order, 0.0, report.state)
        return [report]

    def has_news(self) -> bool:
        """Return True if `keep` should be called now."""
        return False

    def leave(self, patience_s: float) -> None:
        """Renew the lease no more: the worker shuts down."""

    def why_lost(self, tie: str) -> str:
        """Return why a run was killed with its guard, '' if that guard has not ended."""
        return ""

    def hindrance(self, slots: Collection[int]) -> str:
        """Return why nothing may be started in these slots now, '' if it may."""
        return ""

    def not_begun(self, slots: Collection[int], why: str) -> None:
        """Shut these slots for a lease, because a run could not begin there.

        Any thread may call this.
        """

    def free(self, slots: Collection[int]) -> bool:
        """Return True if no process that was started in these slots lives any more."""
        return True

    def living(self, slots: Collection[int]) -> list[int]:
        """Return the ids of the processes that live in these slots, as far as they can be seen."""
        return []

    def of(self, slots: Collection[int]) -> RunIsolation | None:
        """Return what the pool needs to isolate a run in these slots."""
        return None


class MachineIsolation(Isolation):
    """Isolation by a file of locks and a guard.

    file_of: returns the path of the file for a cluster's id.
    one_at_a_time: see RunIsolation.
    """

    def __init__(
        self, file_of: Callable[[str], Path], one_at_a_time: bool, guarded: Guarded
    ) -> None:
        self._file_of = file_of
        self._one_at_a_time = one_at_a_time
        self._guarded = guarded
        self._lock_file = Path()
        self._guard: GuardProcess | None = None
        self._keeps = False
        self._ended: dict[str, str] = {}
        self._lease_s = 0.0
        self._shut: dict[int, tuple[float, str]] = {}

    def join(self, cluster_id: str, shards: int) -> None:
        """Name the file of locks, and tell the guard of the shards."""
        self._lock_file = self._file_of(cluster_id)
        self._guarded = replace(self._guarded, shards=shards)

    def begin(self) -> None:
        """Start a guard if there is none, or if it has ended. Raises OSError."""
        guard = self._guard
        if guard is not None and guard.ended:
            guard.read_messages()
            why = guard.words or "its guard was killed"
            log.warning("%s: what ran was killed, and goes back", why)
            # noted first, because another thread may ask in the meantime
            self._ended[guard.tie] = why
            self._keeps = False
            self._guard = None
            guard.end()
        if self._guard is None:
            level = log.getEffectiveLevel()
            guard = GuardProcess(
                replace(self._guarded, worker=os.getpid(), log_file=log_file(), log_level=level)
            )
            # on a machine that cannot tie a process, this fails before any run is started
            with tied(guard.tie):
                self._guard = guard

    def keep(self, store: Store, keeper: LeaseKeeper, order: Order) -> list[Report]:
        """Send the order to the guard, and return the replies that it has told. Raises OSError."""
        self.begin()
        assert self._guard is not None
        self._lease_s = order.lease_s
        self._guard.send(order)
        reports = [Report(**message) for message in self._guard.read_messages() if "inc" in message]
        self._keeps = self._keeps or any(report.word == "ok" for report in reports)
        return reports

    def has_news(self) -> bool:
        """Return True if the guard has sent a message or has ended."""
        return self._guard is not None and self._guard.has_news()

    def leave(self, patience_s: float) -> None:
        """Have the guard renew no more.

        The guard lives as long as this process, because runs may be tied to it.
        """
        if self._guard is not None:
            self._guard.leave(patience_s)

    def why_lost(self, tie: str) -> str:
        """Return why a guard has ended."""
        guard = self._guard
        if guard is not None and guard.tie == tie and guard.ended:
            guard.read_messages()
            return guard.words or "its guard was killed"
        return self._ended.get(tie, "")

    def hindrance(self, slots: Collection[int]) -> str:
        """Return why no run may start in these slots, '' if it may.

        Nobody keeps the lease yet, a lock or the guard cannot be opened, or a slot is busy or shut.

        This opens the files that the run's own process will open, so that most failures cost no
        start. `not_begun` reports the failures that only that process can meet.
        """
        at_s = now_s()
        guard = self._guard
        if guard is None or not self._keeps:
            return "the guard does not keep the lease of the node yet"
        try:
            os.close(touch(self._lock_file))
            os.close(open_tie(guard.tie))
            busy = busy_slots(self._lock_file, slots)
        except OSError as error:
            return f"no run could be isolated: {error}"
        if busy:
            return str(SlotBusy(busy[0]))
        for slot in slots:
            until_s, why = self._shut.get(slot, (0.0, ""))
            if at_s < until_s:
                return why
        return ""

    def not_begun(self, slots: Collection[int], why: str) -> None:
        """Shut the slots for one lease: the cause may go away.

        The cause may also concern a single pool process.
        """
        self._shut |= dict.fromkeys(slots, (now_s() + self._lease_s, why))

    def free(self, slots: Collection[int]) -> bool:
        """Return True if the slots' locks are free, False if they are held or cannot be read."""
        try:
            return not busy_slots(self._lock_file, slots)
        except OSError as error:
            log.warning("the locks of slots cannot be read: %s", error)
            return False

    def living(self, slots: Collection[int]) -> list[int]:
        """Return the ids of the processes that hold the slots' locks, as the kernel lists them."""
        return holders(self._lock_file, slots)

    def of(self, slots: Collection[int]) -> RunIsolation | None:
        """Return the isolation of a run in these slots."""
        tie = self._guard.tie if self._guard is not None else ""
        return RunIsolation(str(self._lock_file), tuple(slots), tie, self._one_at_a_time)
