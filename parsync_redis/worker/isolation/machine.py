"""The isolation of a worker that is a node, as its agent uses it: the locks of its slots, and its guard."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from struct import pack

from .locks import SlotBusy, busy_slots, holders, touch
from .tie import RunIsolation, open_tie, tied

log = logging.getLogger("parsync.agent")

KILL_AFTER = 0.8
"""The guard dies, and the runs with it, this share of a lease after the last accepted renewal was sent."""


def now_s() -> float:
    """Return the seconds of this machine's lease clock: nobody can set it, and it counts while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Isolation:
    """The isolation that an agent asks of its machine. This base class isolates nothing and hinders nothing."""

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """Note that the lease was renewed by a request sent at `sent_s`. Called by the thread that renews."""

    def hindrance(self, slots: Collection[int]) -> str:
        """Return why nothing may be started in these slots now, '' if it may."""
        return ""

    def not_begun(self, slots: Collection[int], why: str) -> None:
        """Shut these slots for a lease, because a run could not begin there. Any thread may call this."""

    def free(self, slots: Collection[int]) -> bool:
        """Return True if no process that was started in these slots lives any more."""
        return True

    def living(self, slots: Collection[int]) -> list[int]:
        """Return the ids of the processes that live in these slots, as far as can be seen."""
        return []

    def of(self, slots: Collection[int]) -> RunIsolation | None:
        """Return what the pool needs to isolate a run in these slots."""
        return None


class MachineIsolation(Isolation):
    """Isolation by a file of locks and a guard."""

    def __init__(self, lock_file: Path, one_at_a_time: bool) -> None:
        self._lock_file, self._one_at_a_time = lock_file, one_at_a_time
        self._guard: subprocess.Popen[bytes] | None = None
        self._tie = ""
        self._until_s = self._lease_s = 0.0
        self._shut: dict[int, tuple[float, str]] = {}

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """Set the guard's timer anew. If the guard died because this came late, start another. Raises OSError."""
        until_s, self._lease_s = sent_s + KILL_AFTER * lease_s, lease_s
        if self._guard is not None and self._guard.poll() is not None:
            log.warning("no renewal of the lease for %g s: what ran was killed, and goes back", KILL_AFTER * lease_s)
            self._guard = None
        if self._guard is None:
            guard, tie = start_guard()
            with tied(tie):  # fails here on a machine that cannot do it, before any run is started
                self._guard, self._tie = guard, tie
        assert self._guard.stdin is not None
        self._guard.stdin.write(pack("d", until_s))
        self._until_s = until_s

    def hindrance(self, slots: Collection[int]) -> str:
        """Return why no run may start: the lease is over, no lock or guard, a busy slot, or a shut one.

        This opens what the run's own process will open, so that most failures cost no start. Failures that only that
        process can meet are reported by `not_begun`.
        """
        at_s = now_s()
        if at_s >= self._until_s:
            return "the lease of the node was not renewed in time"
        try:
            os.close(touch(self._lock_file))
            os.close(open_tie(self._tie))
            busy = busy_slots(self._lock_file, slots)
        except OSError as error:
            return f"no run could be isolated: {error}"
        if busy:
            return str(SlotBusy(busy[0]))
        return next((why for slot in slots for until_s, why in [self._shut.get(slot, (0.0, ""))] if at_s < until_s), "")

    def not_begun(self, slots: Collection[int], why: str) -> None:
        """Shut the slots for one lease only: the cause may go away, or concern a single pool process."""
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
        return RunIsolation(str(self._lock_file), tuple(slots), self._tie, self._one_at_a_time)


def start_guard() -> tuple[subprocess.Popen[bytes], str]:
    """Start a guard; return its process and the path that runs tie themselves to. Raises OSError."""
    program = Path(__file__).with_name("guard.py")
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", program], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
    )
    assert guard.stdout is not None
    with guard.stdout as answer:
        ties = answer.readline()
    if not ties:
        raise OSError(f"the guard of the node's runs did not start: exit code {guard.wait()}")
    return guard, f"/proc/{guard.pid}/fd/{int(ties)}"
