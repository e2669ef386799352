"""Each experiment, small: the same seed gives the same result.json, byte for byte, and the table
says what was seen.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from parsync_lab.simulate import experiment, simulation
from parsync_lab.simulate.cluster import SimCluster
from parsync_lab.simulate.experiment import (
    Outcome,
    as_json,
    draw,
    figures_of,
    run_experiment,
    write_result,
)
from parsync_lab.simulate.experiments import EXPERIMENTS, conflicts, extra_slots, omega, omega_cell
from parsync_lab.simulate.parameters import SimStrategy, Sync
from parsync_lab.simulate.report import OF_TRACE, write_report
from parsync_lab.simulate.runs import RunFigures

SMALL = {
    "strategies": {"scale": 0.01, "length": 0.03},
    "statesync": {"scale": 0.01, "length": 0.004, "schedulers": 5},
    "conflicts": {"scale": 0.01},
    "staleness": {"scale": 0.005, "schedulers": 4, "partitions": 8},
    "extra-slots": {"scale": 0.04, "schedulers": 4},
    "omega": {"length": 0.05},
    "trace": {"scale": 0.01, "length": 0.05, "schedulers": 5},
    "fairness": {"slots": 160, "partitions": 8, "length": 0.44, "schedulers": 2},
    "jobs": {"slots": 80, "scale": 0.5, "schedulers": 2, "partitions": 4},
    "unequal": {"length": 0.005, "schedulers": 2, "partitions": 2, "slots": 36},
}
PLACED = {
    "utilisation",
    "delay_mean_s",
    "delay_p50_s",
    "delay_p99_s",
    "conflict_fraction",
    "score_mean",
    "staleness_mean_s",
    "staleness_min_s",
    "staleness_max_s",
}

HOLDS = {
    "strategies": (
        {"scale": 0.005, "length": 0.25, "tau_s": 0.3},
        {
            "latency.conflicts",
            "latency.utilisation3",
            "quality.slope2A",
            "adaptive.partB",
            "adaptive.utilisation3",
        },
    ),
    "statesync": (
        {"scale": 0.005, "length": 0.06, "tau_s": 0.3, "schedulers": 10, "partitions": 10},
        {
            "order.latency",
            "order.adaptive",
            "order.quality",
            "statesync.growth",
            "score.latency",
            "score.adaptive",
        },
    ),
    "extra-slots": (
        {"scale": 0.02},
        {
            "A4",
            "A8",
            "grows.rate",
            "grows.gap_s",
            "grows.scores",
            "shrinks.amplifier",
            "steady.partitions",
        },
    ),
    "omega": ({"length": 0.1}, {"rising", "falling"}),
    "trace": ({"scale": 0.01, "length": 0.1, "schedulers": 5}, {"trace.conflicts", "trace.delay"}),
    "fairness": (
        {"slots": 160, "partitions": 8, "length": 0.44, "schedulers": 2},
        {"age.age N=2", "mean.fair N=2", "p99.fair N=2", "ahead.history N=2"},
    ),
    "jobs": (
        {"slots": 80, "scale": 0.5, "schedulers": 2, "partitions": 4, "load": 1.2},
        {"jobs.slowdown", "jobs.makespan"},
    ),
}
"""Parameters of runs that are small, and the claims that hold even there."""

SWEEPS = extra_slots.SWEEPS


@pytest.fixture(autouse=True)
def _fewer_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra_slots, "SWEEPS", {"amplifier": (2, 8)})
    monkeypatch.setattr(extra_slots, "EXTRA_SLOTS_ROUNDS", 4)
    monkeypatch.setattr(conflicts, "CONFLICT_ROUNDS", 4)
    monkeypatch.setattr(omega, "OMEGA_SCHEDULERS", (1, 4))


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small trace with the columns of Alibaba's: bursts of equal tasks, and rows of tasks
    that never ran.
    """
    path = tmp_path_factory.mktemp("trace") / "batch.csv.gz"
    rows = [
        "task_create_time, task_end_time, job_id, task_id,number_of_instances, status,cpus,memory"
    ]
    rows += [
        f"{100 + 7 * i},{150 + 7 * i + i % 5 * 20},{i},1,{1 + i % 3 * 40},Terminated,50,0.1"
        for i in range(200)
    ]
    rows += ["90,80,x,1,5,Failed,,", "100,,y,1,393,Waiting,,"]
    path.write_bytes(gzip.compress("\n".join(rows).encode()))
    return path


def run(name: str, trace: Path, **more: object) -> Outcome:
    given = {**SMALL[name], **({"trace": str(trace)} if name in OF_TRACE else {}), **more}
    return run_experiment(name, given, jobs=1)


def seen(name: str, trace: Path) -> Outcome:
    """Return the small run with the first seed; run it once for all tests."""
    if name not in _seen:
        _seen[name] = run(name, trace)
    return _seen[name]


_seen: dict[str, Outcome] = {}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_same_seed_gives_the_same_result_and_another_seed_another(
    name: str, trace: Path
) -> None:
    first = as_json(seen(name, trace).result)
    assert as_json(run(name, trace).result) == first
    result = json.loads(first)
    assert result["experiment"] == name
    assert result["parameters"]["seed"] == result["seed"] == 1
    assert result["runs"].keys() == result["series"].keys()
    assert {"series", "summary", "version", "repeat"} <= result.keys()
    for claim in result["claims"]:
        assert {"id", "claim", "paper", "ours", "tolerance", "holds"} <= claim.keys()
    if name != "staleness":  # which has the same rounds whatever the seed
        assert as_json(run(name, trace, seed=2).result) != first


def test_figures_are_shown_with_their_intervals(trace: Path) -> None:
    result = seen("jobs", trace).result
    instances = result["summary"]["age"]["instances"]["mean"]
    fair = {"instances": {"mean": 7, "ci95": None}, "small_mean": {"mean": 12.5, "ci95": 0.25}}
    columns, rows = figures_of({**result, "summary": {**result["summary"], "fair": fair}})
    assert columns == ("figure", "age", "fair")
    assert ("instances", f"{instances:g}", "7") in rows
    assert [fair for name, _, fair in rows if name == "small_mean"] == ["12.5 +-0.25"]
    assert [fair for name, _, fair in rows if name == "used"] == [""]
    assert figures_of(seen("conflicts", trace).result)[1] == []


@pytest.mark.parametrize("name", ["strategies", "statesync", "trace"])
def test_series_have_each_second_and_group(name: str, trace: Path) -> None:
    for groups in seen(name, trace).result["series"].values():
        for table in groups.values():
            assert table.keys() >= PLACED
            assert len({len(column) for column in table.values()}) == 1


def test_runs_side_by_side_find_what_runs_one_after_the_other_do(trace: Path) -> None:
    given = {**SMALL["staleness"], "schedulers": 2}
    one, two = (run_experiment("staleness", given, repeat=2, jobs=jobs) for jobs in (1, 2))
    assert as_json(one.result) == as_json(two.result)
    mean = one.result["summary"]["N=2"]["mean_s"]
    assert mean["ci95"] is not None
    assert one.result["repeat"] == 2


def test_the_claims_about_staleness_and_conflicts_hold_also_in_small(trace: Path) -> None:
    found = seen("staleness", trace).checks
    assert len(found) >= 8
    assert [check.id for check in found if not check.holds] == []
    alone = seen("conflicts", trace).checks[0]
    assert (alone.paper, alone.ours) == ("0", 0.0), "one scheduler never conflicts with itself"


def test_an_experiment_leaves_its_result_its_plots_and_a_document_of_all(
    trace: Path, tmp_path: Path
) -> None:
    files = write_result(seen("staleness", trace), tmp_path / "staleness")
    assert [path.name for path in files] == ["result.json", "staleness.png", "staleness.svg"]
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in files[2].read_bytes()
    again = tmp_path / "again"
    again.mkdir()
    draw(json.loads(files[0].read_text()), again, "staleness")
    assert (again / "staleness.svg").read_bytes() == files[2].read_bytes(), (
        "a plot is a function of its result"
    )
    assert write_report(tmp_path, tmp_path / "docs" / "all.md") == ["staleness"]
    text = (tmp_path / "docs" / "all.md").read_text()
    assert "| N=4: mean staleness, s | 0.25 | 0.25 |" in text
    assert "`parsync simulate staleness --partitions 8 --scale 0.005 --schedulers 4`" in text
    assert "Runs: schedulers 4; partitions 8; gap_s 0.5; slots 200000; " in text
    assert "; sync parsync, state; " in text
    assert "per wall second, which this run missed in: staleness." in text
    assert (tmp_path / "docs" / "all" / "staleness.png").exists()


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "staleness"])
def test_every_plot_can_be_drawn(name: str, trace: Path, tmp_path: Path) -> None:
    files = draw(seen(name, trace).result, tmp_path, name)
    assert all(path.stat().st_size > 1000 for path in files)


@pytest.mark.parametrize("name", ["strategies", "statesync", "omega", "trace"])
def test_runs_that_are_compared_have_the_same_nodes_and_the_same_arrivals(
    name: str, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters: list[tuple[dict[str, float], list[float]]] = []

    class Seen(SimCluster):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            clusters.append((self.score, []))

        def submit(self, group: int, id: str, at_s: float, slots: int = 1) -> None:
            super().submit(group, id, at_s, slots)
            clusters[-1][1].append(at_s)

    monkeypatch.setattr(simulation, "SimCluster", Seen)
    monkeypatch.setattr(omega_cell, "SimCluster", Seen)
    run(name, trace)
    (scores, arrivals), *others = clusters
    assert len(set(scores.values())) > 1
    assert len(set(arrivals)) > 1
    assert others
    for other in others:
        assert other == (scores, arrivals)


def test_an_experiment_has_the_cases_that_were_asked_for(trace: Path) -> None:
    few = run_experiment("staleness", {"partitions": 8, "scale": 0.005}, jobs=1).result["summary"]
    assert list(few) == ["N=1", "N=2", "N=4", "StateSync"], (
        "as many schedulers as partitions at most"
    )
    given = {"schedulers": 4, "slots": 4000, "rate": 4000.0, "amplifier": 2.0, "scale": 0.1}
    (name,) = run_experiment("conflicts", given, jobs=1).result["summary"]
    assert name == "N=4 K=100 S=400", "K = A R G / N, at the scale"
    given = {
        "schedulers": 16,
        "partitions": 16,
        "length": 0.02,
        "rate": 600.0,
        "slots": 9000,
        "duration_s": 2.0,
    }
    summary = run_experiment("omega", given, jobs=1).result["summary"]
    assert {name.rpartition("=")[2] for name in summary} == {"16"}
    most = run_experiment(
        "omega", {"schedulers": max(omega.OMEGA_SCHEDULERS), "length": 0.02}, jobs=1
    )
    assert {check.id.partition(".")[0] for check in most.checks} == {"coarse", "whole"}, (
        "there is no N=1 to compare"
    )
    assert summary["fine, incremental, N=16"]["jobs"]["mean"] > 40, (
        "ten times as many as by default"
    )


def test_tasks_of_an_experiment_prefer_what_was_asked_for(trace: Path) -> None:
    for name in ("strategies", "trace"):
        scores = []
        for prefer in ((), ("score",)):
            result = run(name, trace, strategy=SimStrategy.LATENCY, prefer=prefer).result
            assert result["parameters"]["prefer"] == prefer
            first_phase = next(iter(result["summary"]["latency"].values()))
            means = [group["score_mean"]["mean"] for group in first_phase.values()]
            scores.append(sum(means) / len(means))
        assert scores[1] > scores[0] + 0.2, "`score` decides before the freshness of a partition"


def test_a_result_says_what_each_run_used_and_not_what_none_did(trace: Path) -> None:
    def used(name: str, key: str) -> list[object]:
        return [run_[key] for run_ in seen(name, trace).result["runs"].values()]

    assert used("strategies", "strategy") == ["latency", "quality", "adaptive"]
    assert "strategy" not in seen("strategies", trace).result["parameters"]
    one = run("strategies", trace, strategy=SimStrategy.ADAPTIVE).result
    assert one["parameters"]["strategy"] == "adaptive"
    assert used("statesync", "sync") == ["parsync", "parsync", "parsync", "state"]
    assert used("conflicts", "schedulers") == [1, 2, 10, 20, 20, 80]
    assert used("conflicts", "claims") == [10, 10, 10, 10, 10, 10]
    assert "rate" not in seen("conflicts", trace).result["parameters"]
    assert used("staleness", "schedulers") == [4, 4]
    assert used("extra-slots", "amplifier") == [2, 8]
    assert set(used("omega", "slots")) == {2571}
    assert set(used("omega", "scale")) == {1.0}
    assert set(used("trace", "slots")) < set(range(5000, 200_000)), "fitted to the trace's load"
    assert "slots" not in seen("trace", trace).result["parameters"]
    assert "duration_s" not in seen("trace", trace).result["runs"]["latency"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, True),
        ({"seed": 5}, True),
        ({"strategy": SimStrategy.QUALITY}, True),
        ({"sharpness": 1.0}, False),
        ({"scale": 0.02}, False),
        ({"sync": Sync.STATE}, False),
    ],
)
def test_a_reason_is_given_for_the_parameters_that_it_was_found_for(
    more: dict[str, Any], said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {metric: [1.0] * 97 for metric in (*PLACED, "placed")}

    found = RunFigures({"A": table, "B": table}, {"p": {"A": {"conflict_fraction": 0.0}}})
    monkeypatch.setattr(experiment, "carry_out", lambda runs, *rest: [[found] for _ in runs])
    why = {
        check.id: check.why
        for check in run_experiment("strategies", more).checks
        if not check.holds
    }
    assert why["quality.score1"].startswith(
        "sampling that loses as few" if said else "no reason was sought"
    )
    assert why["quality.slope2A"] == "", "what has no reason gets none"


@pytest.mark.parametrize("name", ["strategies", "trace"])
def test_with_nothing_measured_no_claim_holds(
    name: str, monkeypatch: pytest.MonkeyPatch, trace: Path
) -> None:
    table = {metric: [None] * 97 for metric in (*PLACED, "placed")}
    none = dict.fromkeys(("conflict_fraction", "delay_mean_s", "score_mean"))
    nothing = RunFigures({"A": table, "B": table}, {"all": {"A": none, "B": none, "all": none}})
    monkeypatch.setattr(experiment, "carry_out", lambda runs, *rest: [[nothing] for _ in runs])
    given = {"trace": str(trace)} if name == "trace" else {}
    checks = run_experiment(name, given).checks
    assert len(checks) > 2
    assert {(check.holds, check.why) for check in checks} == {(False, "not measured")}


@pytest.mark.parametrize("name", HOLDS)
def test_the_claims_that_need_no_large_cluster_hold_in_small(
    name: str, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, claims = HOLDS[name]
    monkeypatch.setattr(extra_slots, "SWEEPS", SWEEPS)
    monkeypatch.setattr(extra_slots, "EXTRA_SLOTS_ROUNDS", 2)
    found = run_experiment(
        name, {**given, **({"trace": str(trace)} if name in OF_TRACE else {})}, jobs=1
    ).checks
    assert {check.id: check.ours for check in found if check.id in claims and not check.holds} == {}
    assert claims <= {check.id for check in found}
    against = {
        "latency.score1",
        "grows.score_variance",
        "whole.busyness",
    }  # docs/reproduction.md says why
    assert not any(check.holds for check in found if check.id in against)
