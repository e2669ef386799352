"""parsync replay serving on a small generated trace: cold starts, latencies, and what is read."""

import csv
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from parsync_lab.replay.harvest import Harvest
from parsync_lab.replay.serving import METHODS, Serving, ServingNode, ServingParameters, ring_of
from parsync_lab.replay.serving_trace import (
    CpuTrace,
    ModelRequest,
    read_harvest,
    read_loads,
    read_requests,
)
from parsync_redis.cli import app
from parsync_redis.errors import InvalidInput

HEAD = "gmt_create,predict_type,predict_status,exec_time_seconds,checkpoint_model_version_id"
HARVEST = """\
# calm/1
0          9

# busy_machines/2
0  8
600  2
900  8
# busy_machines/10
0  4
# busy_machines/1
0     6
1300  5
"""
BUSY = [ModelRequest(4.0 * number, f"M{number % 3}", 30.0) for number in range(100)]
SMALL = ServingParameters(speed=20.0, nodes=4, models=2)


SHRINKING = [CpuTrace([0, 20, 50, 90], cpus, 120.0) for cpus in ([8, 1, 6, 3], [2, 7, 1, 8])]


def standin(count: int = 150, models: int = 8, seed: int = 1) -> list[ModelRequest]:
    """Return generated requests: one every 4 s, of 5 to 20 s, a few models far more than others."""
    rng = np.random.default_rng(seed)
    ranks = 1 / np.arange(1, models + 1)
    chosen = rng.choice(models, count, p=ranks / ranks.sum()).tolist()
    runs_s = rng.uniform(5, 20, count).tolist()
    return [
        ModelRequest(80.0 * number, f"M{model}", run_s)
        for number, (model, run_s) in enumerate(zip(chosen, runs_s, strict=True))
    ]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving")
    lines = [
        f"2024-11-{15 + int(request.at_s) // 86400} "
        f"{int(request.at_s) // 3600 % 24:02}:{int(request.at_s) // 60 % 60:02}:"
        f"{int(request.at_s) % 60:02},TXT_2_IMG,{'FAILED' if number % 50 == 7 else 'SUCCEED'},"
        f"{request.runs_s:.1f},{request.model}"
        for number, request in enumerate(standin())
    ]
    (folder / "requests.csv").write_text("\n".join([HEAD, *reversed(lines)]))
    (folder / "loads.csv").write_text("timestamp_anon,value\n1.0,20000.0\n2.0,30000.0\n")
    with tarfile.open(folder / "loads.tar.gz", "w:gz") as archive:
        archive.add(folder / "loads.csv", "loads.csv")
    (folder / "harvest.txt").write_text(HARVEST)
    return folder


def replayed(method: str, parameters: ServingParameters = SMALL) -> Serving:
    replay = Serving(standin(), [20.0, 30.0], method, parameters)
    replay.run()
    return replay


def test_only_requests_that_succeeded_are_read_in_order_of_time(files: Path) -> None:
    requests = read_requests(files / "requests.csv")
    with (files / "requests.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["predict_status"] == "SUCCEED"]
    assert len(requests) == len(rows) == 147
    assert [request.at_s for request in requests] == sorted(request.at_s for request in requests)
    assert requests[0].at_s == 0.0
    assert requests[1].at_s == 80.0
    assert [request.model for request in requests] == [
        row["checkpoint_model_version_id"] for row in reversed(rows)
    ]
    assert read_requests(files / "requests.csv", 3) == requests[:3]


@pytest.mark.parametrize("name", ["loads.csv", "loads.tar.gz"])
def test_loads_are_read_in_seconds(files: Path, name: str) -> None:
    assert read_loads(files / name) == [20.0, 30.0]


def test_the_machines_of_a_regime_are_read_and_begin_again(files: Path) -> None:
    first, second, tenth = read_harvest(files / "harvest.txt", "busy")
    assert second == CpuTrace([0, 600, 900], [8, 2, 8], 1200.0)
    assert (first.length_s, tenth.cpus) == (1301.0, [4])
    changes_s = [0.0]
    for _ in range(6):
        changes_s.append(second.next_s(changes_s[-1]))
    assert changes_s == [0, 600, 900, 1200, 1800, 2100, 2400]
    assert [second.at(at_s) for at_s in changes_s] == [8, 2, 8, 8, 2, 8, 8]
    assert [second.at(at_s - 1) for at_s in changes_s[1:]] == [8, 2, 8, 8, 2, 8]
    assert [second.most(at_s, at_s + 1) for at_s in (598, 599, 600, 899, 1799)] == [8, 8, 2, 8, 8]


def test_a_node_keeps_the_models_that_were_used_last() -> None:
    node = ServingNode(2)
    assert node.use("a", 0.0, 20.0) == (True, 20.0)
    assert node.use("a", 5.0, 99.0) == (False, 20.0), "it waits for the load that is under way"
    assert node.use("b", 30.0, 10.0) == (True, 40.0)
    assert node.use("a", 50.0, 99.0) == (False, 50.0)
    assert node.use("c", 60.0, 5.0) == (True, 65.0)
    assert node.use("a", 70.0, 99.0) == (False, 70.0)
    assert node.use("b", 80.0, 10.0) == (True, 90.0), "c and a were used later"


def test_each_request_ends_once_after_its_run_and_cold_ones_after_a_load_too() -> None:
    replay = replayed("least-loaded")
    measure = replay.measure
    assert (measure.starts, len(measure.latencies_s)) == (150, 150)
    assert 0 < measure.cold_starts < 150
    least_s = min(request.runs_s for request in standin())
    assert min(measure.latencies_s) > least_s - 0.06, "a step is 0.05 s"
    all_warm = sum(request.runs_s for request in standin())
    assert sum(measure.latencies_s) > all_warm + 19.9 * measure.cold_starts


def test_the_same_seed_gives_the_same_figures_and_another_seed_other_rings() -> None:
    assert replayed("hash").figures == replayed("hash").figures
    names = [ServingParameters(seed=seed).names for seed in (1, 2)]
    orders = [[ring_of("M1", nodes).index(name) for name in nodes] for nodes in names]
    assert orders[0] != orders[1]


def test_a_ring_is_followed_while_its_first_node_has_a_slot() -> None:
    tasks = [ModelRequest(0.0, "M1", 10.0)] * 11
    replay = Serving(tasks, [20.0], "hash", SMALL)
    used: list[str] = []
    for name, node in replay.nodes.items():
        node.use = lambda *_, name=name: used.append(name) or (True, 0.0)  # type: ignore[method-assign]
    replay.run()
    first, second, *_ = ring_of("M1", SMALL.names)
    assert used == [first] * 8 + [second] * 3


def test_rings_have_far_fewer_cold_starts_than_least_loaded() -> None:
    cold = {name: replayed(name).figures.cold for name in METHODS}
    assert cold["hash"] < cold["least-loaded"] / 2
    assert cold["warm"] < cold["least-loaded"] / 2
    assert cold["warm"] < cold["none"] / 2


def on_machines(
    requests: Sequence[ModelRequest], *machines: CpuTrace, method: str = "none"
) -> Serving:
    parameters = ServingParameters(1.0, len(machines), schedulers=1, partitions=1)
    replay = Serving(requests, [1.0], method, parameters, machines)
    replay.run()
    return replay


def test_a_node_that_shrinks_recalls_its_newest_runs_after_a_while() -> None:
    machine = CpuTrace([0, 30, 300], [4, 2, 4], 1200.0)
    tasks = [ModelRequest(5.0 * number, "M1", 100.0) for number in range(4)]
    measure = on_machines(tasks, machine).measure
    assert measure.recalls == {"2": 1, "3": 1}
    assert measure.starts == 6
    # the two others end after 101 and 105 s, and the recalled requests begin again then
    assert measure.latencies_s == pytest.approx([101.0, 100.0, 191.0, 190.0], abs=0.3)


def test_a_node_that_shrinks_again_recalls_a_run_that_was_not_recalled_yet() -> None:
    machine = CpuTrace([0, 30, 60, 90, 200], [3, 2, 3, 2, 3], 1200.0)
    tasks = [ModelRequest(5.0 * number, "M1", 300.0) for number in range(3)]
    assert on_machines(tasks, machine).measure.recalls == {"2": 1, "1": 1}


def test_a_node_that_shrinks_for_a_moment_recalls_nothing() -> None:
    machine = CpuTrace([0, 30, 38], [4, 2, 4], 1200.0)
    replay = on_machines([ModelRequest(0.0, "M1", 60.0)] * 4, machine)
    assert (replay.measure.starts, replay.measure.recalls) == (4, {})


@pytest.mark.parametrize("method", METHODS)
def test_no_claim_is_beyond_a_capacity_and_each_request_ends(method: str) -> None:
    replay = on_machines(BUSY, *SHRINKING, method=method)
    assert len(replay.measure.latencies_s) == len(BUSY)
    assert replay.measure.starts == len(BUSY) + replay.measure.recalls.total()
    assert replay.figures.recalls > 0
    assert replay.figures.beyond == 0


def test_claims_beyond_a_capacity_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Harvest, "_tell", lambda harvest, node: None)
    assert on_machines(BUSY, *SHRINKING).figures.beyond > 0


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["replay", "serving", *words])


def test_the_command_prints_a_row_for_each_speed_and_method(files: Path) -> None:
    words = ["--trace", str(files / "requests.csv"), "--loads", str(files / "loads.tar.gz")]
    words += ["--limit", "60", "--nodes", "4", "--method", "none", "--method", "hash"]
    shown = run(*words)
    assert shown.exit_code == 0, shown.output
    assert [line.split()[:4] for line in shown.stdout.splitlines()[1:]] == [
        ["x", speed, method, "60"] for speed in ("10", "30") for method in ("none", "hash")
    ]
    shown = run(*words, "--harvest", str(files / "harvest.txt"), "--regime", "busy")
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert [line[:3] for line in lines if line and line[0] == "x"] == 2 * [
        ["x", "60", method] for method in ("none", "hash")
    ]
    assert {line[-1] for line in lines[-2:]} == {"0"}
    rows = json.loads(run(*words, "--speed", "20", "--json").stdout)
    assert [(row["speed"], row["method"], row["requests"]) for row in rows] == [
        (20.0, "none", 60),
        (20.0, "hash", 60),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "has no column gmt_create, predict_status"),
        (f"{HEAD}\n", "is empty"),
        (f"{HEAD}\n2024-11-15 16:57:50,x,FAILED,3,M1\n", "has no request with predict_status"),
        (f"{HEAD}\nyesterday,x,SUCCEED,3,M1\n", "line 2: gmt_create 'yesterday' is not valid"),
        (f"{HEAD}\n2024-11-15 16:57:50,x,SUCCEED,-3,M1\n", "line 2: exec_time_seconds '-3' is not"),
        (f"{HEAD}\n2024-11-15 16:57:50,x,SUCCEED,3,M 1\n", "checkpoint_model_version_id 'M 1' is"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_requests(tmp_path / "trace.csv")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 5\n", "line 1: a line # REGIME/NUMBER must come first"),
        ("# busy/1\n0 many\n", "line 2: cpus 'many' is not valid"),
        ("# busy/1\n5 5\n", "machine busy/1 must have lines SECONDS CPUS, the seconds from 0 on"),
        ("# busy/1\n", "machine busy/1 must have lines SECONDS CPUS"),
        ("# calm/1\n0 5\n", "'busy' is not valid: it must be a part of one of the regimes of"),
        ("# busy_a/1\n0 5\n# busy_b/1\n0 5\n", "busy_a, busy_b"),
    ],
)
def test_a_bad_trace_of_machines_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "harvest.txt").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_harvest(tmp_path / "harvest.txt", "busy")
    assert said in str(caught.value)


def test_bad_files_and_flags_are_refused(files: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.tar.gz").write_bytes(b"\x1f\x8bnonsense")
    (tmp_path / "empty.csv").write_text("value\n")
    for path, said in (("torn.tar.gz", "cannot be read"), ("empty.csv", "is empty")):
        with pytest.raises(InvalidInput, match=said):
            read_loads(tmp_path / path)
    for words, said in (
        (["--method", "random"], "--method 'random' is not valid: it must be one of none, "),
        (["--speed", "0"], "--speed 0 is not valid"),
        (["--schedulers", "9"], "--schedulers 9 is not valid"),
        (["--models", "0"], "--models 0 is not valid"),
        (
            ["--slots", "4", "--harvest", str(files / "harvest.txt")],
            "--slots with --harvest is not valid",
        ),
        (["--harvest", str(files / "harvest.txt")], "--regime 'active' is not valid"),
    ):
        refused = run("--trace", str(files / "requests.csv"), *words)
        assert refused.exit_code != 0
        assert said in str(refused.exception) + refused.output
