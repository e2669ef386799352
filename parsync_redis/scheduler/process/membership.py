"""A scheduler's membership: a thread with its own connection renews it, whatever the loop does.

The thread learns who the members are (the rank of a name is its ordinal) and who leads. While this
scheduler leads, the thread publishes the ticks. Another thread does the leader's work
(leader/janitor.py).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError

from ...errors import ParsyncError
from ...model.replies import LIFE
from ...settings import DEFAULT_FORGET_S
from ...store.cluster import ClusterConfig, keep_config
from ...store.repair.losses import KEEP_S
from ...store.server.server_errors import Backoff
from ...store.server.server_info import ServerRun
from ...store.store import Store
from ..core.large_kinds import LargeKind
from ..leader.janitor import LeaderWork
from .guarded import unless_away
from .lease_watch import HighWaterMarks, Leadership

log = logging.getLogger("parsync.scheduler")

MAX_NAMED_HOMES: Final = 100
"""Maximum number of shards and partitions that a loss names."""

RENEWALS_PER_LEASE: Final = 8
"""Number of renewals in a lease."""

Stats = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of this scheduler among the members: number `ordinal` of `members`.

    epoch: grows with each change of the members.
    joined: grows each time the scheduler was taken for dead and came back.
    server: the run id of the server that answered.
    servers: run ids by what a server has: '' for the server that answered, q0 for a shard, p0 for a
        partition.
    """

    ordinal: int
    members: int
    epoch: int
    joined: int
    server: str = ""
    servers: Mapping[str, str] = field(default_factory=dict)


class Membership(threading.Thread):
    """The thread that renews this scheduler's membership until it is stopped.

    rank: replaced as a whole, so that the loop may read it at any time. renewed_s: time of the last
    renewal (monotonic). out: whether the cluster has put this scheduler out and given its place to
    another scheduler.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        config: ClusterConfig,
        stats: Callable[[], Stats],
        at_most: int = 0,
        large: Callable[[], Sequence[LargeKind]] = tuple,
        forget_s: float = DEFAULT_FORGET_S,
    ) -> None:
        super().__init__(name="membership", daemon=True)
        self.store = store
        self.me = name
        self.config = config
        self.stats = stats
        self.at_most = at_most
        self.out = False
        self.rank = Rank(0, 1, 0, 0)
        self._leadership = Leadership(name, config.lease_s)
        self._work = LeaderWork(
            store, config.partitions, config.lease_s, lambda: self.leads, large, forget_s
        )
        self._counters = dict[str, int]()
        self.renewed_s = 0.0
        self._marks = HighWaterMarks()
        self._runs = dict[str, ServerRun]()
        self._restarted = False
        self._unkept = False
        # losses that are not written down yet
        self._losses: list[str] = []
        self._sequence = 0
        self._beats = 0
        self._done = threading.Event()
        self._poked = threading.Event()

    @property
    def leads(self) -> bool:
        """True while this scheduler is leader, as far as it knows."""
        return self._leadership.leads and not self.out

    def poke(self) -> None:
        """Renew at once, because the members have changed."""
        self._poked.set()

    def stop(self) -> None:
        """End the thread; the caller then leaves the cluster."""
        self._done.set()
        self._poked.set()
        self.join(timeout=10)
        self._work.stop()

    def enter(self) -> None:
        """Learn which servers these are, and renew for the first time."""
        self._notice_restart()
        self.renew()

    def renew(self) -> None:
        """Raise this scheduler's counter; learn the members and the leader.

        The reply may also say that this scheduler is out.
        """
        lost = self._work.next_lost()
        members = self.store.run(
            self.store.commands.renew_scheduler(
                self.me, self._leadership.stale, lost, dict(self.stats()), at_most=self.at_most
            )
        )
        if self.me not in members.counters:
            self.out = True
            return
        names = sorted(members.counters)
        before = self._counters.get(self.me, 0)
        now = members.counters[self.me]
        came_back = bool(before) and (now <= before or now // LIFE != before // LIFE)
        self._counters = dict(members.counters)
        self.renewed_s = time.monotonic()
        joined = self.rank.joined + came_back
        runs = {name: run.id for name, run in self._runs.items()}
        self.rank = Rank(
            names.index(self.me), len(names), members.epoch, joined, runs.get("", ""), runs
        )
        if self._leadership.see(members, time.monotonic()):
            log.info("%s is leader now", self.me)
            self._work.reset()

    def run(self) -> None:
        """Renew eight times a lease; as leader also tick N times a gap.

        While this scheduler leads, each renewal makes a pass of the leader's work due.
        """
        self._work.start()
        renew_s = self.config.lease_s / RENEWALS_PER_LEASE
        next_renew_s = 0.0
        next_tick_s = 0.0
        backoff = Backoff(log, f"membership of {self.me}", renew_s)
        while not self._done.is_set() and not self.out:
            now_s = time.monotonic()
            try:
                if self.leads and now_s >= next_tick_s:
                    interval_s = self.config.gap_s / self.rank.members
                    next_tick_s = max(next_tick_s + interval_s, now_s)
                    self.tick()
                if now_s >= next_renew_s or self._poked.is_set():
                    self._poked.clear()
                    next_renew_s = now_s + renew_s
                    self.beat()
                    backoff.well()
            except (ParsyncError, RedisError, OSError) as error:
                self.doubt()
                self._done.wait(backoff.pause_s(error))
            except Exception:
                # after any error the membership must go on being renewed
                log.exception("membership of %s: unexpected", self.me)
                self.doubt()
                self._done.wait(renew_s / 2)
            wait_s = (
                min(next_renew_s, next_tick_s if self.leads else next_renew_s) - time.monotonic()
            )
            self._poked.wait(max(0.0, wait_s))

    def tick(self) -> None:
        """Publish a tick."""
        self._sequence += 1
        booked = " booked" if self._work.booked else ""
        self.store.read(
            "spublish", self.store.keys.tick, f"tick {self._sequence} {self.rank.epoch}{booked}"
        )

    def beat(self) -> None:
        """Renew, look whether servers restarted or lost writes, and let a leader's pass be done."""
        self._notice_restart()
        self.renew()
        self._notice_loss()
        self._beats += 1
        # the servers may have lost the settings
        if self._unkept or (self.leads and self._beats % RENEWALS_PER_LEASE == 0):
            with unless_away(self.store):
                keep_config(self.store, self.config)
                self._unkept = False
        if self.leads:
            self._work.see(self._counters, self.renewed_s)

    def doubt(self) -> None:
        """Watch everybody anew, because no server answered.

        A counter that stands still proves nothing then.
        """
        self._work.reset()
        self._leadership.reset()

    def _notice_restart(self) -> None:
        """Notice servers that restarted or failed over.

        No process with a key there is judged or named lost for a lease.
        """
        keys = self.store.keys
        before = self._runs
        homes = {"": keys.shared("config")}
        homes |= {f"q{shard}": key for shard, key in enumerate(keys.queues("meta"))}
        homes |= {f"p{p}": keys.partition(p, "meta") for p in range(self.config.partitions)}
        now = self.store.server_runs([*homes.values()])
        none = ServerRun()
        self._runs = {
            name: now[key] if now[key].id else before.get(name, none) for name, key in homes.items()
        }
        changed = [name for name, run in self._runs.items() if run.id != before.get(name, none).id]
        if not changed:
            return
        self._notice_failover(
            [name for name in changed if self._runs[name].took_over_from(before.get(name, none))]
        )
        self._restarted = True
        if before:
            log.warning(
                "the server%s restarted, or another took over: nobody is judged for one lease",
                _shown_homes(changed),
            )
            self._unkept = True
        # a server that has more than partitions has counters or tasks of schedulers
        if any(name[:1] != "p" for name in changed):
            self.doubt()
        else:
            self._work.reset({int(name[1:]) for name in changed})

    def _notice_failover(self, homes: Sequence[str]) -> None:
        """Note which shards and partitions replicas have taken over, by primary.

        A small loss may be made good before its number is read, so the failover itself is noted.
        """
        by_run: dict[ServerRun, list[str]] = {}
        for name in homes:
            by_run.setdefault(self._runs[name], []).append(name or "cluster")
        for run, homes_of_run in by_run.items():
            homes_text = ",".join(homes_of_run[:MAX_NAMED_HOMES])
            log.warning(
                "a replica has taken over %s: its last writes may be lost; see `parsync doctor`",
                homes_text,
            )
            self._losses.append(f"failover@{run.since}={homes_text}")

    def _notice_loss(self) -> None:
        """Record which numbers have decreased since the last look.

        The server has lost those writes.
        """
        keys = self.store.keys
        partitions = range(self.config.partitions if self.leads or self._restarted else 0)
        with self.store.client.pipeline(transaction=False) as pipe:
            for key in keys.queues("meta"):
                pipe.hget(key, "submitted")
            for p in partitions:
                pipe.hget(keys.partition(p, "meta"), "version")
            replies: list[Any] = pipe.execute(raise_on_error=False)
        names = ["submitted"]
        if keys.shards > 1:
            names = [f"submitted_q{shard}" for shard in range(keys.shards)]
        names += [f"p{p}" for p in partitions]
        away = any(isinstance(number, ParsyncError) for number in replies)
        numbers = dict[str, int]()
        for name, number in zip(names, replies, strict=True):
            if number is None or (isinstance(number, bytes) and number.isdigit()):
                numbers[name] = int(number or 0)
        if decreased := self._marks.see(numbers):
            log.warning(
                "the server has lost its last writes: %s; see `parsync doctor`",
                ", ".join(decreased),
            )
            self._unkept = True
            self._losses += decreased[:20]
        # the numbers of a server that is away are read when it is back
        self._restarted = away
        if self._losses:
            self.store.run(
                self.store.commands.record_loss(" ".join([self.me, *self._losses]), KEEP_S)
            )
            self._losses = []

    def leave(self) -> None:
        """Take this scheduler out of the cluster at once."""
        self.store.run(self.store.commands.renew_scheduler(self.me, stay=False))


def _shown_homes(homes: Sequence[str]) -> str:
    """Return for people what a server has; '' for the server that has the cluster's settings."""
    if "" in homes:
        return ""
    ellipsis = ", ..." if len(homes) > 8 else ""
    return f" of {', '.join(homes[:8])}{ellipsis}"
