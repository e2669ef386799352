"""What the whole cluster shares, in the store in memory: settings, the deal of nodes, the schedulers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...model.replies import LIFE
from .queue import Args


class Weight(NamedTuple):
    """What a dealt node adds to its partition."""

    partition: int
    labels: str
    slots: int
    score: float


@dataclass(slots=True)
class Leader:
    """The scheduler that has the leader's lease, and its counter."""

    name: str
    moved: int = 1

    def text(self) -> str:
        """The lease as Redis has it."""
        return f"{self.name} moved={self.moved}"


class Cluster:
    """Settings, dealt nodes, members."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {}
        self.dealt: dict[str, Weight] = {}
        self.members: dict[str, int] = {}
        self.leader: Leader | None = None
        self.epoch = 0
        self.stats: dict[str, dict[str, str]] = {}

    def configure(self, keys: Sequence[str], args: Args) -> list[str]:
        """The first settings stay."""
        if not self.config:
            self.config = dict(args.rows)
        return [word for pair in self.config.items() for word in pair]

    def deal_node(self, keys: Sequence[str], args: Args) -> int:
        """The partition that has the least slots of the node's kind, then of all, then the least score."""
        name, partitions, labels = args.node, int(args.partitions), args.labels
        slots, score = int(args.slots), float(args.score)
        old = self.dealt.pop(name, None)
        sums: dict[int, list[float]] = defaultdict(lambda: [0, 0, 0])
        for weight in self.dealt.values():
            sums[weight.partition][0] += weight.slots if weight.labels == labels else 0
            sums[weight.partition][1] += weight.slots
            sums[weight.partition][2] += weight.slots * weight.score
        home = old.partition if old else min(range(partitions), key=lambda partition: sums[partition])
        if slots:
            self.dealt[name] = Weight(home, labels, slots, score)
        return home

    def renew_scheduler(self, keys: Sequence[str], args: Args) -> list[Any]:
        """A scheduler stays, leaves or stands by; it may take over as leader and remove a member that stood still."""
        me, seen, stay, at_most = args.scheduler, args.seen_leader, args.stay, int(args.at_most)
        before = set(self.members)
        name, _, counter = args.lost.partition(" ")
        if name in self.members and str(self.members[name]) == counter:
            del self.members[name]
        removed = before - set(self.members)
        joins = me in self.members or not at_most or len(self.members) < at_most
        if stay and joins:
            self.members[me] = self.members.get(me, (self.epoch + 1) * LIFE) + 1
            if self.leader is None or (seen and seen == self.leader.text() and self.leader.name != me):
                self.leader = Leader(me)
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
