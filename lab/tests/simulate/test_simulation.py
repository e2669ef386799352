"""The simulation itself: what is read when, that no slot is lost or double, and what the parts
compute.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_lab.simulate.claims import (
    ClaimCheck,
    about,
    above,
    below,
    between,
    difference,
    first_at,
    mean_over,
    most,
    ratio,
    slope,
)
from parsync_lab.simulate.experiments.conflicts import expected
from parsync_lab.simulate.measure import SimMeasure
from parsync_lab.simulate.modes import all_the_same, whole_state
from parsync_lab.simulate.parameters import Parameters, Phase, SchedulerGroup, SimStrategy, Sync
from parsync_lab.simulate.runs import merge, merge_with_interval
from parsync_lab.simulate.simulation import Simulation
from parsync_lab.simulate.workload import Arrival, Listed, Poisson
from parsync_redis.model.options import Strategy
from parsync_redis.scheduler.core import claim_outcomes
from parsync_redis.scheduler.core.freshness import partitioned


@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 10**6))
def test_at_every_tick_the_partitions_read_are_disjoint_and_n_ticks_cover_all(members, more, tick):
    partitions = members + more
    for k in range(tick, tick + members):
        turns = [set(partitioned(i, members, k, partitions)) for i in range(members)]
        assert sum(map(len, turns)) == partitions
        assert set.union(*turns) == set(range(partitions))
    for i in range(members):
        seen = set().union(
            *(partitioned(i, members, k, partitions) for k in range(tick, tick + members))
        )
        assert seen == set(range(partitions))


def test_statesync_reads_everything_once_a_gap_and_same_the_same_at_each_tick():
    for i in range(4):
        reads = [set(whole_state(i, 4, k, 8)) for k in range(4)]
        assert sorted(map(len, reads)) == [0, 0, 0, 8]
        assert set().union(*(all_the_same(i, 4, k, 8) for k in range(4))) == set(range(8))
        assert set(all_the_same(i, 4, 3, 8)) == set(all_the_same(0, 4, 3, 8))


def simulate(rate: float = 400.0, seconds: float = 4.0, **changes: Any) -> Simulation:
    parameters = Parameters(
        **{
            "schedulers": 4,
            "partitions": 4,
            "slots": 400,
            "rate": rate,
            "duration_s": 0.5,
            "scale": 1.0,
            "amplifier": 1.5,
            **changes,
        }
    )
    load = Poisson(np.random.default_rng(3), [(0.0, rate)], parameters.duration_s)
    simulation = Simulation(
        parameters, [SchedulerGroup("all", 4)], [load], np.random.SeedSequence(5)
    )
    simulation.run(seconds)
    return simulation


@pytest.mark.parametrize("strategy", SimStrategy)
@pytest.mark.parametrize("sync", Sync)
def test_no_task_and_no_slot_is_lost_or_double(strategy: SimStrategy, sync: Sync) -> None:
    simulation = simulate(strategy=strategy, sync=sync)
    cluster = simulation.cluster
    leases = [lease for partition in cluster.partitions for lease in partition.leases.values()]
    free = sum(byte.bit_count() for partition in cluster.partitions for byte in partition.bits)
    assert len(leases) == cluster.held[0] > 0
    assert len({lease.task for lease in leases}) == len(leases)
    assert free == 400 - len(leases)
    (queue,) = cluster.queues
    in_flight = sum(one.core.in_flight for one in simulation.schedulers)
    assert len(queue.tasks) == len(leases) + cluster.waiting(0) + in_flight
    cluster.finish_until(float("inf"))
    assert all(not partition.leases for partition in cluster.partitions)


def test_a_scheduler_claims_no_more_than_its_decision_rate_allows() -> None:
    simulation = simulate(rate=400.0, amplifier=0.5)
    claims = sum(value or 0 for value in simulation.measure.series()["all"]["claims"])
    assert 700 < claims <= 0.5 * 400 * 4 + 4 * 2
    assert simulation.cluster.queues[0].pending > 400


def test_tasks_without_free_slots_go_back_and_are_taken_again() -> None:
    simulation = simulate(
        rate=2000.0, amplifier=50.0, seconds=3.0
    )  # two and a half times what the slots carry
    cluster = simulation.cluster
    (queue,) = simulation.cluster.queues
    assert sum(one.core.counters.given_back for one in simulation.schedulers) > 0
    in_flight = sum(one.core.in_flight for one in simulation.schedulers)
    assert len(queue.tasks) == sum(cluster.held) + cluster.waiting(0) + in_flight
    assert (simulation.measure.series()["all"]["utilisation"][-1] or 0) > 0.7


def test_latency_first_loses_no_claim_where_slots_are_free() -> None:
    series = simulate(strategy=SimStrategy.LATENCY).measure.series()["all"]
    assert {value for value in series["conflict_fraction"] if value is not None} == {0.0}


def test_listed_arrivals_come_when_they_are_due() -> None:
    load = Listed([Arrival(0.5, 1.0), Arrival(1.0, 2.0)])
    assert load.until(0.5) == []
    assert load.until(1.0) == [Arrival(0.5, 1.0)]
    assert load.until(9.0) == [Arrival(1.0, 2.0)]


@pytest.mark.parametrize(
    ("case", "right"),
    [
        ((2, 1000, 4000), 0.125),
        ((10, 100, 4000), 0.105),
        ((20, 1000, 40_000), 0.205),
        ((20, 1000, 24_000), 0.312),
        ((80, 250, 40_000), 0.211),
        ((1, 1000, 4000), 0.0),
    ],
)
def test_the_formula_of_conflicts(case: tuple[int, int, int], right: float) -> None:
    assert expected(*case) == pytest.approx(right, abs=0.0006)


def test_claims_hold_within_their_tolerance_and_not_beyond() -> None:
    assert about("i", "c", 1.0, 1.1, 0.1).holds
    assert not about("i", "c", 1.0, 1.11, 0.1).holds
    assert not about("i", "c", 1.0, None, 9.0).holds, "what was not measured does not hold"
    assert between("i", "c", 1.0, 2.0, 2.0).holds
    assert not between("i", "c", 1.0, 2.0, 2.1).holds
    assert below("i", "c", "p", 1.0, 1.0).holds
    assert not above("i", "c", "p", 1.0, 0.9).holds
    assert "why" not in about("i", "c", 1.0, 1.0, 0.1, "because").as_dict()
    assert about("i", "c", 1.0, 2.0, 0.1, "less", "more").as_dict()["why"] == "more"
    assert about("i", "c", 1.0, 0.2, 0.1, "less", "more").as_dict()["why"] == "less"
    assert between("i", "c", 1.0, 2.0, 0.5, "less").why == "less"
    assert between("i", "c", 1.0, 2.0, 2.5, "less").why == "", "a reason for less is none for more"


@pytest.mark.parametrize(
    "check",
    [
        about("i", "c", 1.0, None, 9.0, "because"),
        between("i", "c", 0.0, 9.0, None),
        below("i", "c", "p", 9.0, None),
        above("i", "c", "p", 0.0, None),
        below("i", "c", "p", 1.0, ratio(0.0, 0.0)),
        below("i", "c", "p", 1.0, ratio(None, 1.0)),
        above("i", "c", "p", 0.0, difference(1.0, None)),
        below("i", "c", "p", 1.0, most([0.0, None])),
        below("i", "c", "p", 1.0, most([])),
    ],
)
def test_a_claim_without_a_measurement_does_not_hold(check: ClaimCheck) -> None:
    assert not check.holds
    assert check.as_dict()["why"] == "not measured"


def test_means_slopes_and_first_times_skip_what_is_not_there() -> None:
    table = {"m": [None, 1.0, 2.0, None, 4.0]}
    assert mean_over(table, "m", 0, 3) == 1.5
    assert mean_over(table, "m", 3, 4) is None
    assert slope(table, "m", 0, 5) == pytest.approx(1.0)
    assert slope(table, "m", 3, 5) is None
    assert first_at(table, "m", 2.0, 0) == 2.0
    assert first_at(table, "m", 9.0, 0) is None


def test_merging_takes_means_and_says_how_sure_they_are() -> None:
    assert merge([{"a": [1, None]}, {"a": [2, 3]}]) == {"a": [1.5, None]}
    one = merge_with_interval([{"a": 1.0}])
    assert one == {"a": {"mean": 1.0, "ci95": None}}
    several = merge_with_interval([{"a": value} for value in (1.0, 2.0, 3.0)])
    assert several["a"]["mean"] == 2.0
    assert several["a"]["ci95"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_adaptive_is_latency_first_while_delays_are_above_tau_and_quality_first_else() -> None:
    parameters = Parameters(
        schedulers=4,
        partitions=4,
        slots=2000,
        rate=1000.0,
        duration_s=1.0,
        scale=1.0,
        gap_s=0.2,
        amplifier=1.0,
        sharpness=4.0,
        tau_s=0.3,
        strategy=SimStrategy.ADAPTIVE,
    )
    load = Poisson(
        np.random.default_rng(3), [(0.0, 100.0), (2.0, 950.0), (8.0, 100.0)], parameters.duration_s
    )
    simulation = Simulation(
        parameters, [SchedulerGroup("all", 4)], [load], np.random.SeedSequence(5)
    )
    chosen: list[set[Strategy]] = []
    tick = 0
    for end_s in (2.0, 8.0, 12.0):
        while (tick + 1) * parameters.tick_s <= end_s:
            tick += 1
            simulation.tick(tick)
        chosen.append({one.core.selector.resolve("") for one in simulation.schedulers})
    series: dict[str, list[Any]] = simulation.measure.series()["all"]
    conflicts = series["conflict_fraction"]
    delays = series["delay_p50_s"]
    assert chosen[0] == chosen[2] == {Strategy.QUALITY}
    assert Strategy.LATENCY in chosen[1]
    assert conflicts[2] > 0.2, "quality-first, overloaded"
    assert min(conflicts[3:8]) == 0.0, "latency-first"
    assert 0.25 < delays[7] < 0.35, "about tau"
    assert delays[11] < 0.1


def test_the_queue_of_a_second_is_the_mean_over_its_ticks() -> None:
    measure = SimMeasure(Parameters(scale=1.0), ["all"])
    for at_s, waiting in ((0.0, 10), (0.5, 30), (1.0, 200)):
        measure.see_load(at_s, [0], [waiting])
    assert measure.series()["all"]["waiting"] == [20.0, 200.0]
    assert measure.summary([Phase("both", 2.0, (1.0,))])["both"]["all"]["waiting"] == 80.0


@pytest.mark.parametrize("most", [1, 4])
def test_four_schedulers_that_pack_lose_fewer_claims_when_the_last_rule_gives_way(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 nodes of 10 slots, three quarters in use, and four schedulers that act at the same ticks."""
    monkeypatch.setattr(claim_outcomes, "MAX_WIDTH", most)
    parameters = Parameters(
        schedulers=4,
        partitions=8,
        slots=600,
        rate=225.0,
        scale=1.0,
        amplifier=8.0,
        sharpness=4.0,
        prefer=["pack"],
    )
    rng = np.random.default_rng(1)
    starts_s = np.sort(rng.uniform(0, 30, 6750)).tolist()
    tasks = [Arrival(at_s, float(rng.exponential(2.0))) for at_s in starts_s]
    simulation = Simulation(
        parameters, [SchedulerGroup("all", 4)], [Listed(tasks)], np.random.SeedSequence(1)
    )
    measure = simulation.run(30.0)
    series: dict[str, list[Any]] = measure.series()["all"]
    lost = np.mean(series["conflict_fraction"][20:])
    used = {node for partition in simulation.cluster.partitions for node, _ in partition.leases}
    print(f"width {most}: {lost:.3f} of the last claims are lost, {60 - len(used)} nodes are empty")
    assert lost > 0.05 if most == 1 else lost < 0.03
