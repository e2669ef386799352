"""A thread of a worker.

If an error ends the thread, the worker ends too, because a node needs all its threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("parsync.agent")


class Duty(threading.Thread):
    """A thread that works until its node stops.

    failed: a function that is called if an error ends the thread before.
    """

    def __init__(self, name: str, work: Callable[[], object] = lambda: None) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self.failed: Callable[[], object] = lambda: None

    def work(self) -> None:
        """Do the work of the thread, until the node stops."""
        self._work()

    def run(self) -> None:
        """Work; log the error that ends the thread, and say that the thread has failed."""
        try:
            self.work()
        except BaseException:  # also SystemExit, which would end the thread without a word
            log.critical(
                "the thread %s has ended by an error: its worker ends", self.name, exc_info=True
            )
            self.failed()
