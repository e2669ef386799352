"""A scheduler beside a worker, as a child process of the worker.

`celery worker --parsync-with-scheduler` starts it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from typing import Final

from ..settings import Settings
from .children import start_child

log = logging.getLogger("parsync.agent")

AT_MOST: Final = 2
"""Maximum number of active schedulers of a cluster; further ones beside workers stand by."""

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
LONG_RUN_S: Final = 60.0
"""After a run of this length the pause before the next start is FIRST_PAUSE_S again."""

CHILD_GRACE_S: Final = 10.0
"""Seconds that a scheduler may take to stop before it is killed."""


class SchedulerBeside(threading.Thread):
    """Runs `parsync scheduler --at-most 2`, and restarts it until stopped.

    The pauses before restarts grow.

    The child has a session of its own, so that Ctrl-C reaches only the worker, which stops the
    child last. The child watches this process, and ends if the worker is killed.
    """

    def __init__(self, settings: Settings, log_level: str = "warning") -> None:
        super().__init__(name="parsync-scheduler", daemon=True)
        self._command = [
            sys.executable,
            "-m",
            "parsync_redis.cli",
            "scheduler",
            "--at-most",
            str(AT_MOST),
            "--parent",
            str(os.getpid()),
            "--log-level",
            log_level,
        ]
        self._env = {**os.environ, "PARSYNC_URL": settings.url, "PARSYNC_CLUSTER": settings.cluster}
        self._done = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start the child, and restart it whenever it ends."""
        pause_s = FIRST_PAUSE_S
        while not self._done.is_set():
            began_s = time.monotonic()
            try:
                ended = f"ended with code {self._start().wait()}"
            except Exception as error:  # no memory or no process to be had at the moment
                ended = f"did not start: {error}"
            if self._done.is_set():
                return
            if time.monotonic() - began_s > LONG_RUN_S:
                pause_s = FIRST_PAUSE_S
            log.warning(
                "the scheduler beside this worker %s: it is started again in %g s", ended, pause_s
            )
            self._done.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _start(self) -> subprocess.Popen[bytes]:
        child = start_child(
            self._command, env=self._env, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self._child = child
        if self._done.is_set():  # stop() may have looked before there was a child
            child.terminate()
        return child

    def stop(self) -> None:
        """Stop the child; kill it if that takes longer than CHILD_GRACE_S."""
        self._done.set()
        child = self._child
        if child is None or child.poll() is not None:
            return
        child.terminate()
        try:
            child.wait(CHILD_GRACE_S)
        except subprocess.TimeoutExpired:
            log.warning("the scheduler beside this worker does not stop: it is killed")
            child.kill()
            child.wait()
