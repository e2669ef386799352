"""Nodes of unequal speed: `fast` learns where names run fast, and shares may count work."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsync_lab.simulate.experiments import unequal
from parsync_lab.simulate.parameters import Parameters
from parsync_lab.simulate.tenant_simulation import TenantTask
from parsync_lab.simulate.throughputs import (
    GPU_CLASSES,
    draw_throughputs,
    least_makespan_s,
    read_throughputs,
)
from parsync_lab.simulate.unequal_simulation import NodePool, UnequalSimulation
from parsync_redis.errors import InvalidInput
from parsync_redis.model.policy_reader import read_policy

CELL = Parameters(schedulers=2, partitions=2, gap_s=0.5, slots=40, scale=1.0)
SPEEDS = {"k80": 0.5, "v100": 1.0}


def work_done(count: str, speeds: Mapping[str, float] = SPEEDS) -> tuple[float, float]:
    """Return the work of two tenants of the same weight; the tasks of `a` need a v100.

    Each of two classes has 20 slots.
    """
    pools = [NodePool(gpu, 5, 1.0, {"work": speed}) for gpu, speed in speeds.items()]
    tasks = [TenantTask(0.0, "a", 8.0, label="gpu:v100")] * 700
    tasks += [TenantTask(0.0, "b", 8.0)] * 700
    policy = read_policy(f'[tenants]\ncount = "{count}"\n')
    simulation = UnequalSimulation(
        CELL, tasks, np.random.SeedSequence(1), 0.25, pools, books=False, policy=policy
    )
    simulation.run(lambda done: None, end_s=160.0)
    return simulation.work_s["a"], simulation.work_s["b"]


def test_tenants_of_equal_weight_do_equal_work_on_fast_and_on_slow_nodes() -> None:
    on_fast, on_slow = work_done("work")
    assert on_fast == pytest.approx(on_slow, rel=0.1)
    on_fast, on_slow = work_done("held")
    assert on_fast > 1.25 * on_slow, "as many slots, most of them faster"


def test_work_changes_nothing_where_classes_are_equally_fast() -> None:
    equal = dict.fromkeys(SPEEDS, 1.0)
    assert work_done("work", equal) == work_done("held", equal)


def test_the_experiment_plays_all_tasks_without_a_trace() -> None:
    parameters = Parameters(**{**unequal.DEFAULTS, "length": 0.05, "slots": 80, "scale": 1.0})
    runs = unequal.runs(parameters, ())
    assert len(runs) == len(unequal.ARRIVALS) * len(unequal.COMPARED_WISHES)
    for run in runs[:2]:
        figures = run.work(parameters, np.random.SeedSequence(1), lambda done: None, *run.args)
        assert figures.placements == 100
        assert figures.summary["of_bound"] >= 1.0
        assert figures.summary["mean_run_s"] >= parameters.duration_s * 0.8


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_no_division_of_the_work_is_faster_than_the_bound(seed: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    speeds = unequal.speeds_of(draw_throughputs(rng))
    work_s = {name: float(rng.uniform(0, 100)) for name in speeds}
    bound_s = least_makespan_s(work_s, speeds, [slots] * 3)
    parts = rng.dirichlet([0.3] * 3, len(work_s))
    busy_s = [
        sum(
            part[number] * seconds / speeds[name][number]
            for part, (name, seconds) in zip(parts, work_s.items(), strict=True)
        )
        for number in range(3)
    ]
    assert bound_s <= max(busy_s) / slots * (1 + 1e-9)
    assert bound_s >= sum(work_s.values()) / (3 * slots) * (1 - 1e-9), "speeds are 1 at most"


def test_a_table_of_throughputs_is_read_and_anything_else_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    jobs = {"('CycleGAN', 1)": 2.0, "('LM (batch size 5)', 1)": 9.0, "('CycleGAN', 2)": 1.0}
    table = {gpu: {job: {"null": steps} for job, steps in jobs.items()} for gpu in GPU_CLASSES}
    path.write_text(json.dumps(table))
    assert read_throughputs(path) == {"CycleGAN": (2.0,) * 3, "LM-batch-size-5": (9.0,) * 3}
    table["v100"]["('CycleGAN', 1)"]["null"] = 0.0
    for text in (json.dumps(table), json.dumps({"k80": {}}), "[]"):
        path.write_text(text)
        with pytest.raises(InvalidInput, match="is not a table of throughputs"):
            read_throughputs(path)
    path.write_text("{")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_throughputs(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_throughputs(tmp_path / "none")
