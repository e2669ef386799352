"""Stand by: watch the members of a cluster, and join when there are fewer of them than there may be."""

import logging
import threading
import time
from typing import Any, Final, cast

from redis.exceptions import RedisError

from ..errors import ParsyncError
from ..health_file import HealthFile
from ..store.cluster import ClusterConfig
from ..store.server_errors import Backoff
from ..store.store import Store
from .lease_watch import LeaseWatch

log = logging.getLogger("parsync.scheduler")

LOOKS: Final = 8
"""How often in a lease it looks, as often as members renew."""


class Standby:
    """Asks to join again and again; lua/verbs/renew_scheduler.lua decides whether there is room.

    A member that was killed is still listed. The leader removes it. If no leader lives, this observer does, by the same
    rule: it has itself watched the member's counter stand still for one lease.
    """

    def __init__(
        self, store: Store, config: ClusterConfig, name: str, at_most: int, health: HealthFile | None = None
    ) -> None:
        self.store, self.me, self.at_most, self._health = store, name, at_most, health or HealthFile()
        self._pause_s = config.lease_s / LOOKS
        self._members = LeaseWatch(config.lease_s)
        self._run_id = ""
        self._said = False

    def wait(self, stop: threading.Event) -> bool:
        """Wait until it is a member. Returns False if it was stopped before."""
        backoff = Backoff(log, f"scheduler {self.me}", self._pause_s)
        lost = ""
        while not stop.is_set():
            try:
                if (run_id := self.store.run_id()) != self._run_id:  # nobody is judged for one lease
                    self._run_id, lost = run_id, ""
                    self._members.reset()
                members = self.store.run(self.store.commands.renew_scheduler(self.me, lost=lost, at_most=self.at_most))
                backoff.well()
            except (ParsyncError, RedisError, OSError) as error:
                self._members.reset()
                lost = ""
                stop.wait(backoff.pause_s(error))
                continue
            if self.me in members.counters:
                return True
            self._health.renew(time.monotonic(), f"scheduler {self.me} stands by")
            if not self._said:
                self._said = True
                names = ", ".join(sorted(members.counters))
                log.info("scheduler %s stands by: %s are active, and at most %d may be", self.me, names, self.at_most)
            still = cast(list[str], self._members.look(time.monotonic(), cast(dict[Any, Any], members.counters)))
            lost = f"{still[0]} {members.counters[still[0]]}" if still else ""
            if lost:
                log.warning("scheduler %s stood still for a lease", still[0])
            stop.wait(0.0 if lost else self._pause_s)
        return False
