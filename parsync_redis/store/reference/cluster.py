"""Settings, dealt nodes and schedulers, which the whole cluster shares, in the store in memory."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...model.replies import LIFE
from ...model.text import LEADER
from ...model.used_share import LEAST_USED, UsedShare
from .records import Args, World


class Weight(NamedTuple):
    """The weight that a dealt node adds to its partition."""

    partition: int
    labels: str
    slots: int
    score: float


@dataclass(slots=True)
class LeaderLease:
    """The leader's name and its counter."""

    name: str
    moved: int = 1

    def text(self) -> str:
        """Return the lease as Redis has it."""
        return LEADER.write(name=self.name, moved=self.moved)


class Cluster:
    """The settings, dealt nodes and schedulers of a cluster, and the scripts on them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.config: dict[str, str] = {}
        self.dealt: dict[str, Weight] = {}
        self.members: dict[str, int] = {}
        self.leader: LeaderLease | None = None
        self.epoch = 0
        self.stats: dict[str, dict[str, str]] = {}
        self.bookings: dict[str, str] = {}
        self.shares: dict[str, UsedShare] = {}

    def configure(self, keys: Sequence[str], args: Args) -> list[str]:
        """Write the settings if there are none or `over` is set; return the settings."""
        if not self.config or args.over == "1":
            self.config |= dict(args.rows)
        return [word for pair in self.config.items() for word in pair]

    def deal_node(self, keys: Sequence[str], args: Args) -> int:
        """Assign a node to a partition; return the partition's number.

        The partition has the fewest slots of these labels, then the fewest slots, then the least
        score.
        """
        name = args.node
        partitions = int(args.partitions)
        labels = args.labels
        slots = int(args.slots)
        score = float(args.score)
        if not name:  # asks to remove stored sums; this store has none
            return 0
        old = self.dealt.pop(name, None)
        sums: dict[int, list[float]] = defaultdict(lambda: [0, 0, 0])
        for weight in self.dealt.values():
            sums[weight.partition][0] += weight.slots if weight.labels == labels else 0
            sums[weight.partition][1] += weight.slots
            sums[weight.partition][2] += weight.slots * weight.score
        home = (
            old.partition if old else min(range(partitions), key=lambda partition: sums[partition])
        )
        if slots:
            self.dealt[name] = Weight(home, labels, slots, score)
        return home

    def book(self, keys: Sequence[str], args: Args) -> int:
        """Keep these nodes, and no others; return their number."""
        self.bookings = dict(args.rows)
        return len(args.rows)

    def note_shares(self, keys: Sequence[str], args: Args) -> int:
        """Note what tenants hold, and let what they used before fade; return how many are kept."""
        now_ms = self.world.now_ms
        for tenant, share_text, half_life_ms, work in args.rows:
            share = float(share_text)
            half_life_s = int(half_life_ms) / 1000
            before = self.shares.get(tenant)
            used = before.at(now_ms, half_life_s) if before else 0.0
            has_use = half_life_s and (used >= LEAST_USED or share)
            if has_use or float(work) != 1.0:
                self.shares[tenant] = UsedShare(used, share, now_ms, float(work))
            else:
                self.shares.pop(tenant, None)
        return len(self.shares)

    def renew_scheduler(self, keys: Sequence[str], args: Args) -> list[Any]:
        """Renew, end or refuse a scheduler's membership; return leader, epoch and members.

        The scheduler may take over as leader, and may remove a lost member.
        """
        me = args.scheduler
        stale_lease = args.seen_leader
        stay = args.stay
        at_most = int(args.at_most)
        before = set(self.members)
        name, _, counter = args.lost.partition(" ")
        if name in self.members and str(self.members[name]) == counter:
            del self.members[name]
        removed = before - set(self.members)
        joins = me in self.members or not at_most or len(self.members) < at_most
        if stay and joins:
            self.members[me] = self.members.get(me, (self.epoch + 1) * LIFE) + 1
            if self.leader is None or (
                stale_lease and stale_lease == self.leader.text() and self.leader.name != me
            ):
                self.leader = LeaderLease(me)
            elif self.leader.name == me:
                self.leader.moved += 1
            if args.rows:
                self.stats.setdefault(me, {}).update(args.rows)
        elif not stay:
            self.members.pop(me, None)
            self.stats.pop(me, None)
            if self.leader and self.leader.name == me:
                self.leader = None
        self.epoch += bool(removed or set(self.members) != before)
        text = self.leader.text() if self.leader and stay else ""
        return [text, self.epoch, *(word for pair in self.members.items() for word in pair)]
