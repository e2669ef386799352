"""The simulation of tenants: when schedulers act, and what is drawn of a trace's jobs."""

from collections.abc import Sequence

import numpy as np
import pytest

from parsync_lab.simulate.experiments.jobs import draw_jobs, slowdown, used
from parsync_lab.simulate.parameters import Parameters
from parsync_lab.simulate.tenant_simulation import (
    TenantLoad,
    TenantMeasure,
    TenantSimulation,
    TenantTask,
    draw_tasks,
)
from parsync_lab.simulate.trace import TraceRow

CELL = Parameters(schedulers=1, partitions=1, gap_s=4.0, slots=10, scale=1.0)


def play(
    tasks: Sequence[TenantTask], parameters: Parameters = CELL, named: bool = True
) -> TenantMeasure:
    """Play tasks on a cluster of ten slots until all have ended."""
    dice = np.random.SeedSequence(1)
    return TenantSimulation(parameters, tasks, dice, 0.25, named).run(lambda done: None)


def test_a_freed_slot_and_a_new_task_do_not_wait_for_a_tick() -> None:
    tasks = [TenantTask(0.5, "a", 1.25)] * 10 + [TenantTask(0.75, "b", 1.0)]
    measure = play(tasks)
    assert [wait_s for _, wait_s in measure.waits_s["a"]] == [0.0] * 10
    assert measure.waits_s["b"] == [(0.75, 1.0)], "the ten tasks end 1.75 s after the beginning"
    assert measure.ends_s == {"a": 1.75, "b": 2.75}


@pytest.mark.parametrize("schedulers", [1, 4])
def test_steps_without_events_are_left_out(schedulers: int) -> None:
    tasks = [TenantTask(begin_s, "a", 1.0) for begin_s in (1.0, 100_000.0)]
    measure = play(tasks, CELL.with_(schedulers=schedulers, partitions=schedulers, slots=40))
    assert [wait_s for _, wait_s in measure.waits_s["a"]] == [0.0, 0.0]
    assert len(measure.slots_held) < 20 * schedulers


def test_tenants_share_the_slots_and_without_names_the_age_decides() -> None:
    flood = [TenantTask(0.5, "a", 1.0)] * 40
    tasks = [*flood, TenantTask(0.75, "b", 1.0)]
    assert play(tasks).waits_s["b"] == [(0.75, 0.75)]
    assert play(tasks, named=False).waits_s["b"] == [(0.75, 3.75)]


def test_loads_are_drawn_with_their_rates_and_runs() -> None:
    loads = [TenantLoad("a", flood=5), TenantLoad("b", rate=50.0, begin_s=10.0, slots=2)]
    tasks = draw_tasks(loads, 110.0, 2.0, np.random.default_rng(1))
    steady = [task for task in tasks if task.tenant == "b"]
    assert [task.at_s for task in tasks if task.tenant == "a"] == [0.0] * 5
    assert len(steady) == pytest.approx(5000, rel=0.05)
    assert np.mean([task.runs_s for task in steady]) == pytest.approx(2.0, rel=0.05)
    assert {task.slots for task in steady} == {2}
    assert 10.0 < min(task.at_s for task in steady) < max(task.at_s for task in steady) < 110.0


ROWS = [
    *(TraceRow(100.0 + 50 * number, 20.0, 3, f"small{number}") for number in range(20)),
    *(TraceRow(100.0 + 50 * number, 5000.0, 400, f"large{number}") for number in range(20)),
    TraceRow(1100.0, 20.0, 9, "late"),
    TraceRow(1100.0, 20.0, 9, "late"),
]
ROWS.sort(key=lambda row: row.at_s)


def test_small_jobs_are_drawn_whole_and_large_ones_to_the_load() -> None:
    jobs = draw_jobs(ROWS, CELL.with_(slots=100, load=0.9), np.random.default_rng(1))
    small = [tasks for job, tasks in jobs.items() if job.startswith("small")]
    large = [task for job, tasks in jobs.items() if not job.startswith("small") for task in tasks]
    assert [len(tasks) for tasks in small] == [3] * 20
    assert sum(task.runs_s for task in large) == pytest.approx(0.9 * 100 * 1000, rel=0.02)
    assert max(task.runs_s for task in large) == 100.0, "a tenth of the trace's span"
    assert min(task.at_s for tasks in jobs.values() for task in tasks) == 0.0


def test_the_scale_is_the_part_of_the_jobs_that_are_drawn() -> None:
    parameters = CELL.with_(slots=100, scale=0.5, load=0.9)
    counts = [len(draw_jobs(ROWS, parameters, np.random.default_rng(i))) for i in range(40)]
    assert np.mean(counts) == pytest.approx(0.5 * 41, rel=0.1)


def test_the_slowdown_of_a_job_is_its_time_over_the_time_without_a_wait() -> None:
    tasks = [TenantTask(10.0, "a", 5.0), TenantTask(20.0, "a", 30.0)]
    measure = TenantMeasure(ends_s={"a": 90.0})
    assert slowdown(tasks, measure) == 2.0
    measure.slots_held = [(10.0, {"a": 4}), (20.0, {"a": 2, "b": 3}), (40.0, {})]
    assert used(measure, 0.0, 30.0) == pytest.approx((10 * 4 + 10 * 5) / 30)
