"""The small benches, and the document that is made of what they print."""

import json
import re
import threading
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from parsync_lab.bench.cost import COMMANDSTATS, CostParameters, run_cost
from parsync_lab.bench.decide import run_decide
from parsync_lab.bench.markdown import cell_of
from parsync_lab.bench.memory import run_memory
from parsync_lab.bench.micro import run_idle, run_read, run_submit
from parsync_lab.bench.parameters import BenchParameters
from parsync_lab.bench.placement import run_placement
from parsync_lab.bench.report import write_report
from parsync_lab.bench.scale import run_scale
from parsync_redis.cli import app

STOP = threading.Event()


def quiet(text):
    pass


@pytest.mark.serial
def test_a_snapshot_is_less_than_all_leases():
    found = run_read(1000, 3, STOP, quiet)
    assert found["held"] == 1000
    assert 0 < found["snapshot"]["server_us"] < found["hgetall"]["server_us"]


@pytest.mark.serial
def test_submit_many_sends_more_than_apply_async():
    found = run_submit(200, 1, STOP, quiet)
    assert found["submit_many"] > found["apply_async"] > 0


@pytest.mark.serial
def test_an_idle_cluster_is_counted_by_who_asks():
    asked = BenchParameters(2, 400, 4, gap_s=0.2, rate=1, seconds=2, node_slots=100)
    found = run_idle(asked, STOP, quiet)
    assert found["commands_per_s"]["schedulers"] > 0 < found["commands_per_s"]["agents"]
    assert 0 < found["requests_per_scheduler_and_s"] < found["commands_per_scheduler_and_s"]


@pytest.mark.serial
def test_costs_by_slots_and_schedulers_make_a_document(tmp_path):
    asked = BenchParameters(1, 400, 2, gap_s=0.1, rate=50, duration_s=0.2, seconds=1)
    found = run_scale(asked, [200], [2], STOP, quiet)
    assert [row["slots"] for row in found["by_slots"]] == [200]
    assert [row["schedulers"] for row in found["by_schedulers"]] == [2]
    assert found["ratio_slots"] is None
    found["by_slots"].append(found["by_slots"][0] | {"slots": 10**6})
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "scale.json").write_text(
        json.dumps({"command": ["scale"], "found": found})
    )
    write_report(tmp_path / "kept", tmp_path / "performance.md")
    text = (tmp_path / "performance.md").read_text()
    assert "`parsync bench scale`" in text
    assert " of 50/s, " in text, "the row of a million slots among the targets"
    assert (tmp_path / "performance" / "scale.svg").exists()


@pytest.mark.serial
def test_rates_costs_and_memory_make_a_document(tmp_path):
    asked = BenchParameters(1, 400, 2, gap_s=0.1, rate=50, duration_s=0.2, seconds=6)
    cost = CostParameters(
        tasks=10, calls=10, held=10, rounds=1, sizes=(100, 10, 1), by=COMMANDSTATS
    )
    runs = {
        "ladder-50": run_placement(asked, STOP, quiet),
        "memory": run_memory(500, STOP, quiet),
        "cost": run_cost(cost, STOP, quiet),
        "cluster-cost": run_cost(replace(cost, shards=3, mixed=True), STOP, quiet),
        "primaries-1": run_placement(asked, STOP, quiet),
        "primaries-2": run_placement(replace(asked, primaries=2), STOP, quiet),
    }
    runs["ladder-50"]["sustained"] = (
        True  # on a busy machine it may not be, and then the document has no row of it
    )
    for name, found in runs.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"command": [name], "found": found}))
    write_report(tmp_path, tmp_path / "performance.md")
    text = (tmp_path / "performance.md").read_text()
    for title in (
        "Targets",
        "Placements per second",
        "Cost of each verb",
        "Memory of a task",
        "Several servers",
    ):
        assert f"## {title}\n" in text
    assert "| 1 primaries, 3 shards, calls of any shards | " in text
    one, two = (max(runs[f"primaries-{n}"]["primaries_us_per_placement"]) for n in (1, 2))
    assert re.search(
        rf"\| {cell_of(two)} \| {cell_of(one / two)} \| .* \| `parsync bench primaries-2` \|", text
    )
    clients = sum(runs["ladder-50"]["us_per_placement"].values())
    assert (
        f"| CPU of schedulers, agents and generators per placement | 40 us | {clients:.0f} us |"
        in text
    )
    assert (
        f"| plain | waiting | {cell_of(runs['memory']['memory']['plain']['waiting']['bytes'])} |"
        in text
    )
    for name in (
        "ladder-50",
        "primaries-1",
        "primaries-2",
    ):  # nothing was placed while it was measured
        runs[name] |= {
            "redis_us_per_placement": 0.0,
            "primaries_us_per_placement": [0.0, 0.0],
            "placed_per_s": 0.0,
        }
        (tmp_path / f"{name}.json").write_text(json.dumps({"command": [name], "found": runs[name]}))
    write_report(tmp_path, tmp_path / "performance.md")
    assert "| 2 | 0 | 0 | 0 | 0 |" in (tmp_path / "performance.md").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["placement", "--rate", "0"], "--rate 0 is not valid: it must be from 1 to 1,000,000"),
        (
            ["placement", "--schedulers", "0"],
            "--schedulers 0 is not valid: it must be from 1 to 64",
        ),
        (
            ["placement", "--slots", "10"],
            "--slots 10 is not valid: it must be a multiple of --node-slots 100",
        ),
        (
            ["scale", "--slots", "many"],
            "--slots 'many' is not valid: it must be whole numbers with commas between",
        ),
        (["idle", "--schedulers", "30"], "--partitions 20 is too few"),
    ],
)
def test_a_bench_that_cannot_be_is_one_line_and_exit_code_2(words, says):
    result = CliRunner().invoke(app, ["bench", *words])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert says in result.stderr


def test_deciding_is_measured_without_a_server():
    found = run_decide(10_000, 50, 1, STOP, quiet)
    assert found["nodes"] == 1000
    assert min(found["ms"].values()) > 0
    assert {
        f"one task{wishes}, {kind} kind"
        for wishes in ("", " with wishes")
        for kind in ("new", "known")
    } < set(found["ms"])
