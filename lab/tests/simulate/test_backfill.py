"""Large tasks beside a stream of small ones, in virtual time: with bookings they start soon,
without they starve.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from parsync_lab.simulate.experiments.fairness import LARGE_DUE, play_large
from parsync_lab.simulate.parameters import Parameters, SchedulerGroup, SimStrategy
from parsync_lab.simulate.simulation import Simulation
from parsync_lab.simulate.workload import Arrival, Listed
from parsync_redis.model.booking import Booking
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import parse_needs
from parsync_redis.model.times import LearntTimes, RunTimes
from parsync_redis.placement.backfill import NEAREST, LargeTask, by_lack, choose, unused
from parsync_redis.placement.facts import Holder, NodeFacts
from parsync_redis.placement.forecast import ExpectedEnd
from parsync_redis.scheduler.core.large_kinds import LeastAsked, find_large
from parsync_redis.scheduler.core.reservations import BarredNodes
from parsync_redis.scheduler.leader.backfill import TASKS_PER_KIND
from parsync_redis.scheduler.process.lease_watch import AgeTracker
from parsync_redis.store.reference.store import Queue

MEAN_S = 10.0
NODES = 20
LOAD = 0.95
PASS_S = 1.25
"""An eighth of the usual lease."""

LARGE_AT_S = tuple(40.0 + 23.0 * number for number in range(6))


def first_of(queue: Queue, kind: str) -> Sequence[tuple[str, int]]:
    """Return the first waiting tasks of a kind, each with its order."""
    waits = queue.kinds.get(kind)
    return sorted(waits.orders.items(), key=lambda pair: pair[1])[:TASKS_PER_KIND] if waits else ()


class Backfilled(Simulation):
    """A simulation whose leader books nodes, by what a real one reads of the server.

    books: False for none.
    """

    books = True

    def begin(self) -> None:
        self.ages = AgeTracker(10.0)
        self.times = LearntTimes()
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
        now_ms = round(now_s * 1000)
        queue = self.cluster.queues[0]
        large = find_large(self.schedulers[0].core.queue.blocked.strict, LeastAsked(10.0))
        tasks = sorted(
            (order, id, one.kind) for one in large for id, order in first_of(queue, one.kind)
        )
        ages = self.ages.look(now_s, [id for _, id, _ in tasks])
        facts = list[NodeFacts]()
        held = dict[str, list[ExpectedEnd]]()
        kinds = dict[str, str]()
        for partition in self.cluster.partitions:
            for place in {place.task: place for place in partition.leases.values()}.values():
                kinds[place.task] = queue.tasks[place.task].job.kind
                name = kinds[place.task].split()[0]
                learnt = self.times.get(name)
                until_ms = learnt.end_ms(place.since_ms, now_ms) if learnt else None
                holder = Holder(place.node, place.task, {}, len(place.slots), place.since_ms)
                held.setdefault(place.node, []).append(ExpectedEnd(holder, until_ms))
            for node in partition.nodes.values():
                free = sum(partition.is_free(node, slot) for slot in range(node.offer.slots))
                facts.append(NodeFacts(node.name, node.state, False, node.offer, free))
        needs = {one.kind: parse_needs(Kind.of(one.kind).needs) for one in large}
        mine = {kind: [b.node for b in self.bookings if b.kind == kind] for kind in needs}
        nodes = {kind: by_lack(asked, facts, mine[kind])[:NEAREST] for kind, asked in needs.items()}
        waiting = [LargeTask(kind, needs[kind], id, 1000 * ages[id]) for _, id, kind in tasks]
        before = unused(self.bookings, held, kinds)
        self.bookings = choose(waiting, nodes, held, before, len(facts), now_ms)

    def tell(self, now_s: float) -> None:
        """Do what each scheduler does once in a gap."""
        bars = BarredNodes(
            self.bookings,
            self.times.p95_ms,
            round(1000 * (now_s + self.parameters.gap_s)),
        )
        for one in self.schedulers:
            one.core.on_barred(bars)


def play(
    slots: int,
    runs: str,
    books: bool = True,
    large_at_s: Sequence[float] = LARGE_AT_S,
    nodes: int = NODES,
) -> list[float]:
    """Return how long each large task waited, in mean run times; one that has not started counts
    until the end.
    """
    parameters = Parameters(
        schedulers=4,
        partitions=4,
        slots=10 * nodes,
        rate=200.0,
        scale=1.0,
        strategy=SimStrategy.QUALITY,
    )
    rng = np.random.default_rng(7)
    rate = LOAD * 10 * nodes / MEAN_S
    until_s = large_at_s[-1] + 60.0
    at_s = np.cumsum(rng.exponential(1 / rate, round(rate * until_s)))
    lengths = np.full(len(at_s), MEAN_S) if runs == "equal" else rng.exponential(MEAN_S, len(at_s))
    arrivals = [
        Arrival(float(a), max(float(run), 0.01)) for a, run in zip(at_s, lengths, strict=True)
    ]
    arrivals += [Arrival(a, MEAN_S, slots) for a in large_at_s]
    arrivals.sort()
    made = Backfilled(
        parameters, [SchedulerGroup("all", 4)], [Listed(arrivals)], np.random.SeedSequence(5)
    )
    made.begin()
    made.books = books
    for length in lengths[:2000].tolist():
        made.times.setdefault("work", RunTimes()).add(1000 * length)
    made.times[f"work{slots}"] = RunTimes()
    made.times[f"work{slots}"].add(1000 * MEAN_S)
    ids = {f"t{number + 1}": one for number, one in enumerate(arrivals) if one.slots > 1}
    begun: dict[str, float] = {}
    for tick in range(1, round(until_s / parameters.tick_s)):
        made.tick(tick)
        for id in ids.keys() - begun.keys():
            if (
                id not in made._arrivals
                and tick * parameters.tick_s > ids[id].at_s + parameters.tick_s
            ):
                begun[id] = tick * parameters.tick_s
    return [(begun.get(id, until_s) - one.at_s) / MEAN_S for id, one in ids.items()]


@pytest.mark.parametrize(
    ("slots", "runs", "most"), [(8, "equal", 1.5), (10, "equal", 1.5), (8, "exponential", 3.0)]
)
def test_a_large_task_beside_a_stream_of_small_ones_starts_soon(
    slots: int, runs: str, most: float
) -> None:
    waits = play(slots, runs)
    print(
        f"{slots} of 10 slots, {runs} run times: waits of {min(waits):.2f} to {max(waits):.2f} "
        "mean run times"
    )
    assert max(waits) <= most


@pytest.mark.parametrize(("count", "nodes"), [(6, 20), (6, 6), (60, 60)])
def test_many_large_tasks_of_one_kind_do_not_wait_for_each_other(count: int, nodes: int) -> None:
    """Each has a booking of its own, while a quarter of the nodes suffices."""
    waits = play(8, "equal", large_at_s=[40.0] * count, nodes=nodes)
    most = 1.5 + count / 5
    print(
        f"{count} tasks on {nodes} nodes: waits of {min(waits):.2f} to {max(waits):.2f} mean run "
        f"times; bar {most:g}"
    )
    assert max(waits) <= min(most, 5.0), "one that has not started waits for 6"


def test_without_bookings_it_starves() -> None:
    assert min(play(8, "equal", books=False)) > 5


def test_a_tenant_of_large_tasks_gets_its_share_beside_a_flood_of_small_ones() -> None:
    """Its tasks ask for 8 of 10 slots; both tenants have the same weight."""
    parameters = Parameters(schedulers=2, partitions=8, slots=120, scale=1.0, duration_s=20.0)
    summary = play_large(parameters, np.random.SeedSequence(1), lambda _: None).summary
    print(f"share {summary['share_l']:.3f} of a due .50, {summary['used']:.3f} of all slots used")
    assert summary["share_l"] >= 0.9 * LARGE_DUE
    assert summary["used"] >= 0.95
