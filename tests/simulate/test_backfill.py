"""Large tasks beside a stream of small ones, in virtual time: with bookings they start soon, without they starve."""

from collections.abc import Sequence

import numpy as np
import pytest

from parsync_redis.lab.simulate.parameters import Group, Parameters, SimStrategy
from parsync_redis.lab.simulate.simulation import Simulation
from parsync_redis.lab.simulate.workload import Arrival, Listed
from parsync_redis.model.booking import Booking
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import parse_needs
from parsync_redis.model.times import RunTimes
from parsync_redis.placement.backfill import Waits, choose, nearest
from parsync_redis.placement.facts import Holder, NodeFacts
from parsync_redis.placement.forecast import Held
from parsync_redis.scheduler.age_tracker import AgeTracker
from parsync_redis.scheduler.bars import Bars
from parsync_redis.scheduler.large import LeastAsked, find_large

MEAN_S = 10.0
NODES = 20
LOAD = 0.95
PASS_S = 1.25
"""An eighth of the usual lease."""

LARGE_AT_S = tuple(40.0 + 23.0 * number for number in range(6))
UNTIL_S = LARGE_AT_S[-1] + 60.0


class Backfilled(Simulation):
    """A simulation whose leader books nodes, by what a real one reads of the server. books: False for none."""

    books = True

    def begin(self) -> None:
        self.ages, self.times = AgeTracker(10.0), dict[str, RunTimes]()
        self.bookings: Sequence[Booking] = ()

    def tick(self, number: int) -> None:
        now_s = number * self.parameters.tick_s
        per_s = round(1 / self.parameters.tick_s)
        if self.books and number % round(PASS_S * per_s) == 0:
            self.lead(now_s)
        if self.books and number % round(self.parameters.gap_s * per_s) == 0:
            self.tell(now_s)
        super().tick(number)

    def lead(self, now_s: float) -> None:
        """Do what the duty of the leader does."""
        now_ms, queue = round(now_s * 1000), self.cluster.queues[0]
        large = find_large(self.schedulers[0].core.queue.blocked.strict, LeastAsked(10.0))
        ages = self.ages.look(now_s, large)
        facts, held = list[NodeFacts](), dict[str, list[Held]]()
        for partition in self.cluster.partitions:
            for place in {place.task: place for place in partition.leases.values()}.values():
                name = queue.tasks[place.task].job.kind.split()[0]
                learnt = self.times.get(name)
                until_ms = learnt.end_ms(place.since_ms, now_ms) if learnt else None
                holder = Holder(place.node, place.task, {}, len(place.slots), place.since_ms)
                held.setdefault(place.node, []).append(Held(holder, until_ms))
            for node in partition.nodes.values():
                free = sum(partition.is_free(node, slot) for slot in range(node.offer.slots))
                facts.append(NodeFacts(node.name, node.state, False, node.offer, free))
        waiting, nodes = [], {}
        for one in large:
            needs = parse_needs(Kind.of(one.kind).needs)
            waiting.append(Waits(one.kind, needs, one.kind, 1000 * ages[one]))
            nodes[one.kind] = nearest(needs, facts, [b.node for b in self.bookings if b.kind == one.kind])
        self.bookings = choose(waiting, nodes, held, self.bookings, len(facts), now_ms)

    def tell(self, now_s: float) -> None:
        """Do what each scheduler does once in a gap."""
        runs_ms = {(b.node, name): times.p95_ms for b in self.bookings for name, times in self.times.items()}
        bars = Bars(self.bookings, runs_ms, round(1000 * (now_s + self.parameters.gap_s)))
        for one in self.schedulers:
            one.core.on_bars(bars)


def play(slots: int, runs: str, books: bool = True) -> list[float]:
    """Return how long each large task waited, in mean run times; one that has not started counts until the end."""
    parameters = Parameters(
        schedulers=4, partitions=4, slots=10 * NODES, rate=200.0, scale=1.0, strategy=SimStrategy.QUALITY
    )
    rng = np.random.default_rng(7)
    rate = LOAD * 10 * NODES / MEAN_S
    at_s = np.cumsum(rng.exponential(1 / rate, round(rate * UNTIL_S)))
    lengths = np.full(len(at_s), MEAN_S) if runs == "equal" else rng.exponential(MEAN_S, len(at_s))
    arrivals = [Arrival(float(a), max(float(run), 0.01)) for a, run in zip(at_s, lengths, strict=True)]
    arrivals += [Arrival(a, MEAN_S, slots) for a in LARGE_AT_S]
    arrivals.sort()
    made = Backfilled(parameters, [Group("all", 4)], [Listed(arrivals)], np.random.SeedSequence(5))
    made.begin()
    made.books = books
    for length in lengths[:2000].tolist():
        made.times.setdefault("work", RunTimes()).add(1000 * length)
    made.times[f"work{slots}"] = RunTimes()
    made.times[f"work{slots}"].add(1000 * MEAN_S)
    ids = {f"t{number + 1}": one for number, one in enumerate(arrivals) if one.slots > 1}
    begun: dict[str, float] = {}
    for tick in range(1, round(UNTIL_S / parameters.tick_s)):
        made.tick(tick)
        for id in ids.keys() - begun.keys():
            if id not in made._arrivals and tick * parameters.tick_s > ids[id].at_s + parameters.tick_s:
                begun[id] = tick * parameters.tick_s
    return [(begun.get(id, UNTIL_S) - one.at_s) / MEAN_S for id, one in ids.items()]


@pytest.mark.parametrize(("slots", "runs", "most"), [(8, "equal", 1.5), (10, "equal", 1.5), (8, "exponential", 3.0)])
def test_a_large_task_beside_a_stream_of_small_ones_starts_soon(slots: int, runs: str, most: float) -> None:
    waits = play(slots, runs)
    print(f"{slots} of 10 slots, {runs} run times: waits of {min(waits):.2f} to {max(waits):.2f} mean run times")
    assert max(waits) <= most


def test_without_bookings_it_starves() -> None:
    assert min(play(8, "equal", books=False)) > 5
