"""A storm of faults on a stack with several servers, and its tasks under limits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from parsync_redis.store.server.embedded import find_wheel
from tests.kit.moving import can_move_at_once
from tests.kit.unit_locks import Units

from .clients import mixed
from .failover import Several, cause, drain, several_at_work
from .faults import FAULTS, Fault, Storm
from .history import Run
from .limited import excess_allotments
from .moves import draw, move_one
from .outage import exceeded
from .play import Outcome, Say, check_units, note_deaths, storm_for
from .several import SeveralStack
from .stack import WORKERS

LOSS_EVERY_S: Final = 22.0
"""Seconds from the end of an outage that loses writes until the next, at least.

In this time takes must be exact again, and prove it.
"""

AGAIN_LEASES: Final = 2.0
"""Leases from a failover that lost writes until limits are exact again."""

SHARDS: Final = 5
"""So many that each primary has some, and so few that limits of 5 units are reached in one."""

OF_ONE_SERVER: Final = ("kill server", "stop server", "line", "memory full")


class SeveralStorm(Storm):
    """Faults of processes, and of several servers: primaries die, slots move.

    loses: whether the replica lags when its primary dies, so that acknowledged writes are lost.
    """

    def __init__(self, field: Several, seed: int, say: Say, loses: bool) -> None:
        super().__init__(field.stack, {}, seed, say)
        self.field = field
        self.faults = LOSSES if loses else DEATHS_AND_MOVES
        self._can_move_at_once = can_move_at_once(field.stack.several)
        field.step = self.step

    def server_key(self) -> str:
        """Return a key of a server that is drawn."""
        return draw(self.field, self.dice)

    def kill_primary(self) -> str:
        """Kill a primary, wait until its replica has taken over, and start the primary again."""
        return self._outage("kill")

    def lose_writes(self) -> str | None:
        """Kill a primary whose replica lags, if the last such outage is long enough ago."""
        outages = self.field.outages
        if outages and time.monotonic() < outages[-1].until_s + LOSS_EVERY_S:
            return None
        return self._outage("lag")

    def _outage(self, kind: str) -> str:
        outage = cause(self.field, kind, self.dice.randrange(6))
        return (
            f"{outage.address}, shards {sorted(outage.shards)}, partitions "
            f"{sorted(outage.partitions)}, until {outage.until_s:.1f}"
        )

    def move_slot(self) -> str:
        """Move the slot of a shard, a partition, or the cluster's own keys."""
        hows = ("at once", "key by key") if self._can_move_at_once else ("key by key",)
        self.field.stack.several.wait_until_well()
        return move_one(self.field, self.dice, self.dice.choice(hows))


PROCESSES: Final = {kind: fault for kind, fault in FAULTS.items() if kind not in OF_ONE_SERVER}
DEATHS_AND_MOVES: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        **PROCESSES,
        "kill primary": (3.0, SeveralStorm.kill_primary),
        "move slot": (6.0, SeveralStorm.move_slot),
    }
)
LOSSES: Final[Mapping[str, Fault]] = MappingProxyType(
    {**PROCESSES, "kill primary of a lagging replica": (8.0, SeveralStorm.lose_writes)}
)


def play_several(
    seconds: float,
    seed: int,
    folder: Path,
    say: Say,
    every_s: float = 1.0,
    rate: float = 12.0,
    loses: bool = False,
) -> Outcome:
    """Run the storm on several servers for so long, let it calm down, and check everything."""
    outcome = Outcome()
    begun_s = time.monotonic()
    stack = SeveralStack(folder, seed, workers=WORKERS, shards=SHARDS, program=find_wheel())
    with several_at_work(stack, rate, patience_s=0.0, make=mixed) as field:
        storm = SeveralStorm(
            field, seed, lambda what: say(f"{time.monotonic() - begun_s:7.1f} s  {what}"), loses
        )
        storm_for(storm, field.book, seconds, every_s, say)
        while not storm.calm():
            time.sleep(0.1)
        stack.await_up()
        drain(field, outcome, say)
        outcome.broken += excess_allotments(field.store)
    check_limits(field, outcome)
    note_deaths(stack, outcome, begun_s, say)
    outcome.figures |= {
        "faults": sum(storm.counts.values()),
        "by_kind": dict(sorted(storm.counts.items())),
    }
    return outcome


def check_limits(field: Several, outcome: Outcome) -> None:
    """Check that no run was beyond its limits; after an outage that lost writes, no run that began
    when limits were exact again.
    """
    again_s = AGAIN_LEASES * field.stack.lease_s

    def judge(runs: Sequence[Run], units: Units) -> list[str]:
        return exceeded(runs, units, field.outages, again_s)

    has_lost = any(outage.loses for outage in field.outages)
    check_units(field.stack, outcome, judge if has_lost else None)
