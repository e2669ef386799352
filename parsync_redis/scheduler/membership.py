"""A scheduler's membership: a thread with a connection of its own that renews it, whatever the scheduler is busy with.

It learns who the members are (the rank of a name is its ordinal), takes the leader lease when its holder stands still,
and while it has it publishes the ticks and does the leader's work.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from redis.exceptions import RedisError

from ..errors import ParsyncError
from ..model.replies import LIFE
from ..store.cluster import ClusterConfig, keep_config
from ..store.losses import KEEP_S
from ..store.server_errors import Backoff
from ..store.store import Store
from .high_water_marks import HighWaterMarks
from .leader import Leader
from .lease_watch import LeaseWatch

log = logging.getLogger("parsync.scheduler")

Stats = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Rank:
    """This scheduler is number `ordinal` of `members`; `epoch` grows with each change of the members.

    `joined` grows each time it was taken for dead and came back; `server` is the run id of the server that answered.
    """

    ordinal: int
    members: int
    epoch: int
    joined: int
    server: str = ""


class Membership(threading.Thread):
    """Renews until stopped. `rank` is replaced whole, so that the loop may read it at any time."""

    def __init__(
        self, store: Store, name: str, config: ClusterConfig, stats: Callable[[], Stats], at_most: int = 0
    ) -> None:
        super().__init__(name="membership", daemon=True)
        self.store, self.me, self.config, self.stats = store, name, config, stats
        self.at_most = at_most
        self.out = False  # it was taken for dead, and others have its place: it may not come back
        self.rank = Rank(0, 1, 0, 0)
        self.keeping = False
        self._leader = Leader(store, config.partitions, config.lease_s)
        self._holder = LeaseWatch(config.lease_s / 2)  # two leaders are harmless, so that this may be short
        self._stale_holder = ""
        self._counters: dict[str, int] = {}
        self._marks = HighWaterMarks()
        self._run_id, self._restarted = "", False
        self._sequence = 0
        self._done = threading.Event()
        self._poked = threading.Event()

    def poke(self) -> None:
        """The members changed: renew at once."""
        self._poked.set()

    def stop(self) -> None:
        """Ends the thread; the caller leaves the cluster after that."""
        self._done.set()
        self._poked.set()
        self.join(timeout=10)

    def renew(self) -> None:
        """Moves this scheduler's counter and takes in who the members and the leader are, or that it is out."""
        lost = self._leader.lost.pop() if self._leader.lost else ""
        members = self.store.run(
            self.store.commands.renew_scheduler(
                self.me, self._stale_holder, lost, dict(self.stats()), at_most=self.at_most
            )
        )
        if self.me not in members.counters:
            self.out, self.keeping = True, False
            return
        names = sorted(members.counters)
        before, now = self._counters.get(self.me, 0), members.counters[self.me]
        came_back = bool(before) and (now <= before or now // LIFE != before // LIFE)
        self._counters = dict(members.counters)
        joined = self.rank.joined + came_back
        self.rank = Rank(names.index(self.me), len(names), members.epoch, joined, self._run_id)
        keeping = members.leader.partition(" ")[0] == self.me
        if keeping and not self.keeping:
            log.info("%s is leader now", self.me)
            self._leader.reset()
        self.keeping = keeping
        still = self._holder.look(time.monotonic(), {"holder": members.leader})
        self._stale_holder = members.leader if still and not keeping else ""

    def run(self) -> None:
        """Renews eight times a lease; as leader it also ticks N times a gap and does a pass with each renewal."""
        renew_s, next_renew_s, next_tick_s = self.config.lease_s / 8, 0.0, 0.0
        patience = Backoff(log, f"membership of {self.me}", renew_s)
        while not self._done.is_set() and not self.out:
            now_s = time.monotonic()
            try:
                if self.keeping and now_s >= next_tick_s:
                    interval_s = self.config.gap_s / self.rank.members
                    next_tick_s = max(next_tick_s + interval_s, now_s)
                    self._tick()
                if now_s >= next_renew_s or self._poked.is_set():
                    self._poked.clear()
                    next_renew_s = now_s + renew_s
                    self._beat()
                    patience.well()
            except (ParsyncError, RedisError, OSError) as error:
                self._doubt()
                self._done.wait(patience.pause_s(error))
            except Exception:
                log.exception("membership of %s: unexpected", self.me)  # whatever it is, it goes on being renewed
                self._doubt()
                self._done.wait(renew_s / 2)
            wait_s = min(next_renew_s, next_tick_s if self.keeping else next_renew_s) - time.monotonic()
            self._poked.wait(max(0.0, wait_s))

    def _tick(self) -> None:
        self._sequence += 1
        self.store.client.publish(self.store.keys.tick, f"tick {self._sequence} {self.rank.epoch}")

    def _beat(self) -> None:
        self._notice_restart()
        self.renew()
        self._notice_loss()
        if self.keeping:
            self._leader.work(time.monotonic, self._counters)

    def _doubt(self) -> None:
        """The server did not answer: whoever stands still may just as little have reached it."""
        self._leader.reset()
        self._holder.reset()
        self._stale_holder = ""

    def _notice_restart(self) -> None:
        """A server that restarted or failed over gives everybody one lease; whom it was to hear of as lost, too."""
        run_id = self.store.run_id()
        if run_id != self._run_id:
            if self._run_id:
                log.warning("the server restarted, or another took over: nobody is judged for one lease")
                keep_config(self.store, self.config)
            self._run_id, self._restarted = run_id, True
            self._doubt()

    def _notice_loss(self) -> None:
        """Says what the server has forgotten, by the numbers that went back since the last look."""
        keys = self.store.keys
        partitions = range(self.config.partitions if self.keeping or self._restarted else 0)
        with self.store.client.pipeline(transaction=False) as pipe:
            pipe.hget(keys.queue("meta"), "submitted")
            for p in partitions:
                pipe.hget(keys.partition(p, "meta"), "version")
            read = zip(["submitted", *(f"p{p}" for p in partitions)], pipe.execute(), strict=True)
        numbers = {name: int(number or 0) for name, number in read if number is None or number.isdigit()}
        if back := self._marks.see(numbers):
            log.warning("the server has lost its last writes: %s; see `parsync doctor`", ", ".join(back))
            keep_config(self.store, self.config)
            self.store.run(self.store.commands.note_loss(" ".join([self.me, *back[:20]]), KEEP_S))
        self._restarted = False

    def leave(self) -> None:
        """Takes this scheduler out of the cluster, at once."""
        self.store.run(self.store.commands.renew_scheduler(self.me, stay=False))
