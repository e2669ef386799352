"""The work of the guard: it renews the node's lease, and dies with the runs when it must not go on.

The worker gives signs of life over the guard's standard input: each is an Order, which says what
lease to renew. A task may keep the worker's interpreter to itself, or the worker may be stopped:
then no sign comes. The guard goes on renewing, because the node can be reached, but it marks the
node suspect, and ends after a limit. The kernel then kills the runs, which are tied to the guard
(tie.py).

The guard writes messages to its standard output, a JSON object a line. The guard never waits until
the worker reads them.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from logging.handlers import QueueHandler, QueueListener, WatchedFileHandler
from queue import SimpleQueue
from typing import Final, NoReturn

from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...logs import formatter_of
from ...model.node import NO_SIGN
from ...store.server.server_errors import Backoff
from ...store.store import Store
from ..node.lease import KEEPER_VERBS, SILENT_LEASES, LeaseKeeper, Order, shorten_timeouts
from .timer import KILL_AFTER, LeaseTimer, now_s

log = logging.getLogger("parsync.guard")

LEAVE: Final = b"leave"
"""The last line that the worker sends: renew no more."""
GUARD_VERBS: Final = (*KEEPER_VERBS, "repair_partition", "discard", "quarantine")
"""The scripts that a guard calls: those of its keeper, and those of a repair."""
WORKER_CHECK_S: Final = 1.0
"""Interval at which the guard looks for its worker while there is nothing to renew, in seconds."""
_REFUSED: Final = {
    "lapsed": "the server has given the node up",
    "superseded": "another worker has registered as this node",
}


@dataclass(frozen=True, slots=True)
class Guarded:
    """The facts about a worker that its guard needs.

    url, cluster, retention_s, max_starts: the settings of the store.
    standstill_s: the seconds without a sign of life after which the guard ends.
    shards: the number of shards of the queue.
    worker: the id of the worker's process.
    log_file: the guard's log, '' for its standard error.
    log_format: text or json.
    """

    node: str
    url: str
    cluster: str
    retention_s: int
    max_starts: int
    standstill_s: float
    shards: int = 1
    worker: int = 0
    log_file: str = ""
    log_level: int = logging.INFO
    log_format: str = "text"


class Guard:
    """Keeps the lease of one node until its worker ends, or until it must end itself."""

    def __init__(self, guarded: Guarded, read: bytes) -> None:
        self._guarded = guarded
        self._read = read
        self._order = _NOTHING
        self._store = Store.from_url(
            guarded.url, guarded.cluster, guarded.retention_s, guarded.max_starts
        )
        self._store.keys.shards = guarded.shards
        self._keeper = LeaseKeeper(guarded.node, guarded.standstill_s)
        self._heard_s = self._due_s = time.monotonic()
        self._lease_s = 0.0
        self._trouble = ""
        self._why = ""
        self._lines = log_to(guarded)
        self._backoff = Backoff(log, f"the guard of node {guarded.node}")
        self._ties, other_end = os.pipe()
        os.close(other_end)
        os.set_blocking(1, False)
        signal.signal(signal.SIGALRM, lambda *_: self._too_late())
        self._timer = LeaseTimer()

    def run(self) -> None:
        """Keep the lease until the worker has ended."""
        self._store.read_scripts(GUARD_VERBS)
        self._tell("ready", ties=self._ties)
        # a child of the worker may keep the pipe open after its end
        while os.getppid() == self._guarded.worker:
            pause_s = self._due_s - time.monotonic() if self._order.inc else WORKER_CHECK_S
            if select.select([0], [], [], max(0.0, min(pause_s, WORKER_CHECK_S)))[0]:
                if not (words := os.read(0, 65536)):
                    return
                self._hear(words)
            due = self._order.inc and time.monotonic() >= self._due_s
            # the worker may have ended during the wait
            if due and os.getppid() == self._guarded.worker:
                self._turn(self._order)

    def _hear(self, words: bytes) -> None:
        """Take in signs of life."""
        *lines, self._read = (self._read + words).split(b"\n")
        for line in lines:
            before = self._order
            heard_s = self._heard_s
            self._heard_s = time.monotonic()
            woke_up = self._heard_s - heard_s > SILENT_LEASES * before.lease_s
            self._order = _NOTHING if line == LEAVE else Order.of(line)
            if line == LEAVE:
                self._trouble = "its worker shuts down"
                self._tell("left")
            # the node is trusted at once, so that a worker that wakes up gets tasks again
            elif self._order != before or woke_up:
                self._due_s = self._heard_s
                if self._order.lease_s != before.lease_s:
                    shorten_timeouts(self._store, self._order.lease_s)
                    self._backoff = Backoff(
                        log, f"the guard of node {self._guarded.node}", self._order.lease_s / 10
                    )

    def _turn(self, order: Order) -> None:
        """Renew once, and judge the worker."""
        silent_s = time.monotonic() - self._heard_s
        limit_s = max(self._guarded.standstill_s, order.lease_s)
        if silent_s >= limit_s:
            self._end(
                f"{NO_SIGN} for {limit_s:g} s: it is stopped, or a task holds its interpreter"
            )
        self._due_s = time.monotonic() + order.lease_s / 5
        sent_s = now_s()
        try:
            report = self._keeper.renew(self._store, order)
            self._trouble = _REFUSED.get(report.word, "")
            if report.word == "ok":
                self._timer.renewed(sent_s, order.lease_s)
                self._lease_s = order.lease_s
            self._tell(**asdict(report))
            if report.word == "ok":
                self._say(self._keeper.judge(self._store, order, silent_s, report.state), order)
            self._backoff.well()
        except (ParsyncError, RedisError, OSError) as error:
            self._trouble = str(error)
            self._due_s = time.monotonic() + self._backoff.pause_s(error)
        except Exception:  # after any error the lease must go on being renewed
            log.exception("the guard of node %s: unexpected", self._guarded.node)

    def _say(self, why: str, order: Order) -> None:
        """Log when the worker begins to stand still, and when it gives signs of life again.

        The worker itself logs why its event loop stands still.
        """
        why = "" if why == order.still else why
        if why and not self._why:
            log.warning(
                "node %s is suspect, and gives back what has not begun: %s", self._guarded.node, why
            )
        elif self._why and not why:
            log.warning("node %s: its worker gives signs of life again", self._guarded.node)
        self._why = why

    def _too_late(self) -> None:
        """End because the lease was not renewed in time.

        The kernel would kill this process in a moment.
        """
        self._end(
            f"its lease was not renewed for {KILL_AFTER * self._lease_s:g} s "
            f"({self._trouble or 'no answer'})"
        )

    def _end(self, why: str) -> NoReturn:
        if self._order.inc:
            log.critical(
                "node %s: %s. What runs there is killed now, and goes back", self._guarded.node, why
            )
        else:
            log.info("the guard of node %s ends: %s", self._guarded.node, why)
        self._tell("ends", why=why[:1000])  # a pipe takes a line of this length as a whole
        self._lines.stop()
        os._exit(1)

    def _tell(self, word: str, **fields: object) -> None:
        """Tell the worker.

        If the worker does not read, the message is lost: the next renewal says the same.
        """
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(1, json.dumps({"word": word, **fields}).encode() + b"\n")


def log_to(guarded: Guarded) -> QueueListener:
    """Have a thread write the guard's log lines.

    A log that takes no more must not hold up a renewal.
    """
    handler: logging.Handler = logging.StreamHandler()
    if guarded.log_file:
        try:
            handler = WatchedFileHandler(guarded.log_file)
        except OSError as error:  # the worker may have opened the file as another user
            sys.stderr.write(f"the guard logs here, as it cannot open the log: {error}\n")
    line = "[%(asctime)s: %(levelname)s/Guard] %(message)s"
    handler.setFormatter(formatter_of(guarded.log_format, line, lambda: {"node": guarded.node}))
    lines: SimpleQueue[logging.LogRecord] = SimpleQueue()
    listener = QueueListener(lines, handler)
    root = logging.getLogger("parsync")
    root.addHandler(QueueHandler(lines))
    root.setLevel(guarded.log_level)
    listener.start()
    return listener


_NOTHING: Final = Order(-1, 0, 0.0)
"""The order before the first order and after the last: there is no lease to renew."""
