"""The shards of the queue at which a scheduler looks in a turn.

A look costs the server as much as ten tasks. So a scheduler looks only at shards from which tasks
are taken, to which tasks go back, or that woke the scheduler. Once in a gap a scheduler also looks
at its share of all shards, so that no shard is forgotten.
"""

from collections.abc import Iterable, Set
from typing import Final

from ...model.replies import Took
from .plan import Plan
from .queue import QueueCopy

TASKS_PER_FURTHER_SHARD: Final = 32
"""Number of taken tasks for which a scheduler looks at one further shard.

The further looks happen while tasks with seats are left. So a task of high priority that came to
another shard meanwhile is found within a turn. The looks cost 2 to 4 % of the cost of a task.
"""


def shards_of(ordinal: int, members: int, gap: int, shards: int) -> Iterable[int]:
    """Return the shards at which a scheduler looks at its own tick of a gap, at least one.

    ordinal, members: the scheduler is number `ordinal` of `members`. In each gap some scheduler
    looks at each shard. Each scheduler looks at all shards in as many gaps as there are schedulers,
    or shards.
    """
    return range((ordinal + gap) % members, shards, members) or ((ordinal + gap) % shards,)


class ShardPolling:
    """The shards that are due for a look.

    A shard is left behind if more of its tasks had seats than one round trip may take.
    """

    def __init__(self, queue: QueueCopy) -> None:
        self._queue = queue
        self._due: set[int] = set()
        self._behind: set[int] = set()
        self._anywhere = False
        self._next = 0
        self.on_stale()

    def __bool__(self) -> bool:
        return bool(self._due or self._behind or self._anywhere)

    def on_gap(self, ordinal: int, members: int, gap: int) -> None:
        """Look at the scheduler's share of the shards."""
        self._due.update(shards_of(ordinal, members, gap, self._queue.shards), self._queue.away)

    def on_wake(self, shard: int) -> None:
        """Look at a shard, because something may wait there."""
        self._due.add(shard)

    def on_took(self, took: Took) -> None:
        """Look at a shard again if it has more changes than a single look returns."""
        if took.more:
            self._due.add(took.shard)

    def on_freed(self) -> None:
        """Look at the next shard in turn, unless another look is due anyway."""
        self._anywhere = True

    def on_away(self, shard: int) -> None:
        """Look once in a gap at a shard whose server does not answer, or when the shard wakes it.

        The look reads all of the shard, because another server may have taken over without the last
        changes.
        """
        self._queue.away.add(shard)
        self._queue.clear_shard(shard)
        self._behind.discard(shard)

    def on_stale(self) -> None:
        """Look at all shards."""
        self._due.update(range(self._queue.shards))

    def fill(self, plan: Plan, left_behind: Set[int]) -> None:
        """Put the looks that are due into a plan, beside those that take tasks.

        A look at a shard with tasks left behind wakes another scheduler. A look at any other shard
        lets the next kind that begins to wait wake this scheduler.
        """
        self._behind.update(left_behind - self._queue.away)
        taken = sum(count for look in plan.shard_looks.values() for _, count in look.take)
        for shard in sorted(self._due):
            plan.look_at(shard)
        for shard in self._in_turn(
            self._behind - plan.shard_looks.keys(), max(1, taken // TASKS_PER_FURTHER_SHARD)
        ):
            plan.look_at(shard)
        if self._anywhere and not plan.shard_looks:
            for shard in self._in_turn(set(range(self._queue.shards)) - self._queue.away, 1):
                plan.look_at(shard)
        for shard, look in plan.shard_looks.items():
            look.since = self._queue.versions[shard]
            look.waits = "wake" if shard in left_behind else "wait"
        self._behind.difference_update(plan.shard_looks.keys() - left_behind)
        self._due.clear()
        self._anywhere = False

    def _in_turn(self, shards: Iterable[int], count: int) -> list[int]:
        """Return the next `count` of these shards, in turn after those of the last call."""
        chosen = sorted(shards, key=lambda shard: (shard - self._next) % self._queue.shards)[:count]
        self._next = chosen[-1] + 1 if chosen else self._next
        return chosen
