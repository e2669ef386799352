"""The fences of a worker that is a node, as its agent uses them: the locks of its slots, and its guard."""

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
from .tie import Fence, open_tie, tied

log = logging.getLogger("parsync.agent")

OF_A_LEASE = 0.8
"""A run is dead when so much of a lease has passed since the last renewal that was accepted was sent."""


def now_s() -> float:
    """Seconds by the clock of leases on this machine: no one sets it, and it counts while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Fences:
    """What an agent asks of its machine. This one is of a machine that can fence nothing: nothing is in the way."""

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """The lease was renewed, by a request that was sent at `sent_s`. The thread that renews calls this."""

    def hindrance(self, slots: Collection[int]) -> str:
        """Why nothing may be started in these slots now, '' if it may."""
        return ""

    def not_begun(self, slots: Collection[int], why: str) -> None:
        """A run could not begin in these slots: nothing is started there for a lease. Any thread may call this."""

    def free(self, slots: Collection[int]) -> bool:
        """Whether nothing that was started in these slots lives any more."""
        return True

    def living(self, slots: Collection[int]) -> list[int]:
        """The processes that live in these slots, as far as can be seen."""
        return []

    def of(self, slots: Collection[int]) -> Fence | None:
        """What the pool needs to fence a run in these slots."""
        return None


class MachineFences(Fences):
    """Fences by a file of locks and a guard."""

    def __init__(self, lock_file: Path, one_at_a_time: bool) -> None:
        self._lock_file, self._one_at_a_time = lock_file, one_at_a_time
        self._guard: subprocess.Popen[bytes] | None = None
        self._tie = ""
        self._until_s = self._lease_s = 0.0
        self._shut: dict[int, tuple[float, str]] = {}

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """Lets the guard live on; one that died, because the renewal came late, gets a successor. Raises OSError."""
        until_s, self._lease_s = sent_s + OF_A_LEASE * lease_s, lease_s
        if self._guard is not None and self._guard.poll() is not None:
            log.warning("no renewal of the lease for %g s: what ran was killed, and goes back", OF_A_LEASE * lease_s)
            self._guard = None
        if self._guard is None:
            guard, tie = start_guard()
            with tied(tie):  # so that a machine where that cannot be says so here, and runs nothing
                self._guard, self._tie = guard, tie
        assert self._guard.stdin is not None
        self._guard.stdin.write(pack("d", until_s))
        self._until_s = until_s

    def hindrance(self, slots: Collection[int]) -> str:
        """No lease to live by, nothing to be fenced by, something that lives in a slot, a run that did not begin there.

        What a run opens is opened here too; what only its own process can meet is known from the run that met it.
        """
        at_s = now_s()
        if at_s >= self._until_s:
            return "the lease of the node was not renewed in time"
        try:
            os.close(touch(self._lock_file))
            os.close(open_tie(self._tie))
            busy = busy_slots(self._lock_file, slots)
        except OSError as error:
            return f"no run could be fenced: {error}"
        if busy:
            return str(SlotBusy(busy[0]))
        return next((why for slot in slots for until_s, why in [self._shut.get(slot, (0.0, ""))] if at_s < until_s), "")

    def not_begun(self, slots: Collection[int], why: str) -> None:
        """What stopped it may be gone, or one process' own; so slots are shut for a lease, and not for good."""
        self._shut |= dict.fromkeys(slots, (now_s() + self._lease_s, why))

    def free(self, slots: Collection[int]) -> bool:
        """By the locks; where these cannot be looked at nothing is known to live."""
        try:
            return not busy_slots(self._lock_file, slots)
        except OSError as error:
            log.warning("the locks of slots cannot be looked at: %s", error)
            return False

    def living(self, slots: Collection[int]) -> list[int]:
        """By what the kernel says of each process' locks."""
        return holders(self._lock_file, slots)

    def of(self, slots: Collection[int]) -> Fence | None:
        """The same for every run but for its slots."""
        return Fence(str(self._lock_file), tuple(slots), self._tie, self._one_at_a_time)


def start_guard() -> tuple[subprocess.Popen[bytes], str]:
    """Starts a guard: the process, and the path of what runs tie themselves to; raises OSError."""
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
