"""A core to drive by events: how tests of it make one, its nodes, what waits, and the verdicts on
its claims.
"""

from collections.abc import Sequence

import numpy as np

from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.kind import Kind, KindLine
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.replies import Judged, Snapshot, Took
from parsync_redis.model.task import Taken
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.plan import Plan


def make(
    partitions: int = 1, strategy: Strategy = Strategy.QUALITY, seed: int = 1, shards: int = 1
) -> Core:
    """Return the core of scheduler s1, which has read nothing yet."""
    return Core("s1", partitions, strategy, 1.5, np.random.default_rng(seed), shards=shards)


def node(name: str, slots: int, score: float = 1.0, **labels: str) -> Node:
    """Return an up node whose slots begin at the first bit of its partition; labels: label -> value."""
    # name, state, incarnation, drain, first bit, slots, score, offer
    return Node(name, "up", 1, False, 0, slots, score, Resources.of(slots, labels=labels))


def bitmap(count: int) -> bytes:
    """Return a bitmap whose first `count` bits are free."""
    return np.packbits(np.ones(count, dtype=bool)).tobytes()


def see(
    core: Core, p: int, nodes: list[Node], free: int, now_s: float = 0.0, version: int = 1
) -> None:
    """Give the core a read of a partition with `free` free slots from the first bit on."""
    core.on_nodes(p, nodes, 1)
    core.on_snapshot(Snapshot(p, version, 1, bitmap(free), {}), now_s)
    core.plan(place=False, confirm=False)


class Queue:
    """A shard of the queue of one core, which answers as the script `take` would.

    waiting: kind -> [(order, id)] of the tasks that wait.
    """

    def __init__(self, core: Core, shard: int = 0) -> None:
        self.core = core
        self.shard = shard
        self.last = ""  # the node that its tasks ran on last
        self.waiting: dict[str, list[tuple[int, str]]] = {}
        self._changed: dict[str, None] = {}
        self._accounts: dict[str, str] = {}
        self.now_ms = 0

    def account(self, account: str, line: str) -> "Queue":
        """Let the next answer have the line of an account, 'n=1 units=1 of units=5'. Return the queue."""
        self._accounts[account] = line
        return self

    def add(
        self, kind: str, count: int = 1, first: int = 1, prefix: str = "t", step: int = 1
    ) -> "Queue":
        """Let tasks of a kind wait, t1, t2, ..., one at each `step` of the orders from `first` on.
        Return the queue.
        """
        orders = range(first, first + count * step, step)
        self.waiting[kind] = sorted(
            [*self.waiting.get(kind, ()), *((order, f"{prefix}{order}") for order in orders)]
        )
        self._changed[kind] = None
        return self

    def tell(self) -> None:
        """Tell the core which kinds have changed; the core places nothing."""
        self.answer(self.core.plan(place=False, confirm=False))

    def answer(self, plan: Plan) -> list[Taken]:
        """Answer a plan's look as the script `take` would; return the tasks that were taken."""
        found: list[Taken] = []
        for text, limit in takes(plan, self.shard):
            some = self.waiting.get(text, [])[:limit]
            self.waiting[text] = self.waiting.get(text, [])[limit:]
            found += [Taken(id, f"1@{order}", Kind.of(text), 0, self.last) for order, id in some]
            self._changed[text] = None
        changes = [(text, self._line(text)) for text in self._changed]
        changes += [(f"={account}", line) for account, line in self._accounts.items()]
        self._changed = {}
        self._accounts = {}
        self.core.on_took(Took("1", self.now_ms, changes=changes, tasks=found, shard=self.shard))
        return found

    def _line(self, text: str) -> str:
        some = self.waiting.get(text)
        return str(KindLine(len(some), some[0][0], some[-1][0])) if some else ""

    def turn(self) -> Plan:
        """Let the core take what it has seats for; return the plan in which it claims them."""
        self.answer(self.core.plan(confirm=False))
        return self.core.plan(place=False, confirm=False)


def waiting(
    core: Core, count: int, needs: str = "slots=1", strategy: str = "", name: str = "work"
) -> Queue:
    """Let tasks of one kind wait and tell the core; return their queue."""
    queue = Queue(core).add(Kind(name, needs, strategy).text, count)
    queue.tell()
    return queue


def takes(plan: Plan, shard: int = 0) -> list[tuple[str, int]]:
    """Return the (kind, how many tasks) that a plan takes in a shard; [] if it does not look there."""
    rows = plan.shard_looks[shard].take if shard in plan.shard_looks else []
    return [(kind, count) for kind, count in rows if count]


def marks(plan: Plan, shard: int = 0) -> list[str]:
    """Return the kinds whose full accounts a plan lets a take mark."""
    rows = plan.shard_looks[shard].take if shard in plan.shard_looks else []
    return [kind for kind, count in rows if not count]


def reasons(plan: Plan, shard: int = 0) -> list[tuple[str, str]]:
    """Return the (kind, why its tasks wait) that a plan writes in a shard."""
    return plan.reasons.get(shard, [])


def claims_of(plan: Plan) -> list[str]:
    """Return the place of each claim of a plan, as node/first slot."""
    return [f"{c.node}/{c.slots[0]}" for some in plan.commit.values() for c in some]


def tasks_of(plan: Plan) -> list[str]:
    """Return the task of each claim of a plan."""
    return [c.task for some in plan.commit.values() for c in some]


def after_a_gap(core: Core) -> Plan:
    """Let the ticks of a whole gap pass; return the plan that gives back what has found no seat in
    it.
    """
    plan = core.plan()
    for number in range(1, core.members + 2):
        assert not plan.give_back, "the gap is not over"
        core.on_tick(number)
        plan = core.plan()
    return plan


def judge(core: Core, plan: Plan, word: ClaimOutcome) -> None:
    """Give the core the same verdict on each claim of a plan."""
    for p, claims in plan.commit.items():
        core.on_judged(
            Judged(
                p,
                2,
                1000,
                claims,
                [Verdict(word, "1000" if word is ClaimOutcome.HELD else "x")] * len(claims),
            )
        )


def judge_each(core: Core, plan: Plan, verdicts: Sequence[Verdict]) -> None:
    """Give the core these verdicts on the claims of a plan, in the order of the claims."""
    for p, claims in plan.commit.items():
        core.on_judged(Judged(p, 2, 1000, claims, list(verdicts)))
