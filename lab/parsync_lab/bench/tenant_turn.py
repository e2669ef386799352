"""The CPU time of a scheduler's turn while kinds of many tenants wait, without a server.

    python -m parsync_lab.bench.tenant_turn

In each turn some slots become free, some kinds and accounts have changed, and the scheduler plans
which tasks it takes. A case without tenants is measured beside it. The garbage collector of Python
looks at all objects now and then: its time is told apart from that of the turns.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

import numpy as np

from parsync_redis.cli.common import print_table
from parsync_redis.model.kind import Kind, KindLine
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.replies import Snapshot, Took
from parsync_redis.scheduler.core.core import Core

NODES: Final = 40
SLOTS_EACH: Final = 10
FREED: Final = 20
"""Number of slots that become free in a turn."""
TASKS_OF_KIND: Final = 1000


class CollectorClock:
    """The CPU time of the garbage collector in this process; `total_ns` grows."""

    def __init__(self) -> None:
        self.total_ns = 0
        self._begun_ns = 0
        gc.callbacks.append(self._on_phase)

    def _on_phase(self, phase: str, _: dict[str, Any]) -> None:
        now_ns = time.process_time_ns()
        if phase == "start":
            self._begun_ns = now_ns
        else:
            self.total_ns += now_ns - self._begun_ns

    def own_ns(self) -> int:
        """Return the CPU time of this process without that of the collector."""
        return time.process_time_ns() - self.total_ns


class TurnBench:
    """A core with a full cluster, and kinds that wait.

    tenants: number of tenants; 0 for none. kinds: number of kinds in all.
    """

    def __init__(self, tenants: int, kinds: int) -> None:
        self.clock = CollectorClock()
        self.core = Core("s1", 1, Strategy.QUALITY, 1.5, np.random.default_rng(1))
        self._version = 1
        offer = Resources.of(SLOTS_EACH)
        nodes = [
            Node(f"n{n}", "up", 1, 0, SLOTS_EACH * n, SLOTS_EACH, 1.0, offer) for n in range(NODES)
        ]
        self.core.on_nodes(0, nodes, 1)
        self._kinds = [
            Kind(f"work{n}", "slots=1", "", f"t{n % tenants}" if tenants else "").text
            for n in range(kinds)
        ]
        self._free(0)
        self.core.on_took(Took("1", 0, changes=[*self._lines(0, kinds)]))
        self.core.plan(confirm=False)

    def _lines(self, first: int, count: int) -> Iterator[tuple[str, str]]:
        """Yield the lines of kinds, and of the accounts of those with a tenant."""
        kinds = len(self._kinds)
        for number in range(first, first + count):
            text = self._kinds[number % kinds]
            line = KindLine(TASKS_OF_KIND, number, number + TASKS_OF_KIND * kinds)
            yield text, str(line)
            if tenant := Kind.of(text).tenant:
                count = 1 + number // kinds
                yield f"=@{tenant}", f"n={count} slots={count} of -"

    def _free(self, slots: int) -> None:
        """Give the core a read of the partition with so many free slots."""
        self._version += 1
        bits = np.zeros(NODES * SLOTS_EACH, dtype=bool)
        bits[:slots] = True
        self.core.on_snapshot(
            Snapshot(0, self._version, 1, np.packbits(bits).tobytes(), {}), float(self._version)
        )

    def turn_ms(self, number: int) -> tuple[float, float]:
        """Return the CPU time of a turn: of the changes before it, and of the plan.

        The collector's time does not count.
        """
        changes = [*self._lines(number * FREED, FREED)]
        begun = self.clock.own_ns()
        self._free(FREED)
        self.core.on_took(Took(str(self._version), 0, changes=changes))
        heard = self.clock.own_ns()
        plan = self.core.plan(confirm=False)
        planned = self.clock.own_ns()
        taken = sum(count for look in plan.shard_looks.values() for _, count in look.take)
        if taken != FREED:
            raise RuntimeError(f"{taken} tasks were taken for {FREED} free slots")
        return (heard - begun) / 1e6, (planned - heard) / 1e6


def main() -> None:
    """Print the CPU time of a turn for some numbers of tenants and kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=50)
    count = parser.parse_args().turns
    rows: list[tuple[str, ...]] = []
    for tenants, kinds in ((0, 100), (0, 10_000), (100, 100), (10_000, 10_000), (10_000, 100_000)):
        bench = TurnBench(tenants, kinds)
        bench.turn_ms(0)
        times = [bench.turn_ms(1 + number) for number in range(count)]
        changes_ms = median(heard for heard, _ in times)
        plan_ms = median(planned for _, planned in times)
        worst_ms = max(planned for _, planned in times)
        before_ns = bench.clock.total_ns
        gc.collect()
        collection_ms = (bench.clock.total_ns - before_ns) / 1e6
        figures = (f"{value:.2f}" for value in (changes_ms, plan_ms, worst_ms, collection_ms))
        rows.append((f"{tenants:,}", f"{kinds:,}", *figures))
    print_table(
        ("TENANTS", "KINDS", "CHANGES MS", "PLAN MS", "WORST PLAN MS", "COLLECTION MS"), rows, ""
    )


if __name__ == "__main__":
    main()
