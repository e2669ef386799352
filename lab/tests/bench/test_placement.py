"""Tiny runs of the placement bench: the shape of what it tells, and a clean audit."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from parsync_lab import Stopped
from parsync_lab.bench.parameters import BenchParameters
from parsync_lab.bench.placement import run_placement
from parsync_redis.cli import app
from parsync_redis.errors import InvalidInput
from tests.kit.waiting import limited

pytestmark = pytest.mark.serial
TINY = BenchParameters(2, 200, 4, gap_s=0.1, rate=100, duration_s=0.3, seconds=1.5, node_slots=10)
CLEAN = {"lost", "ran_twice", "leaked_slots", "bitmap_mismatches", "counter_mismatches", "facts"}


def run(stop=None, **more):
    return run_placement(replace(TINY, **more), stop or threading.Event(), lambda text: None)


def test_the_product_under_load_places_and_ends_every_task():
    found = run(
        generators=2, seconds=6.0
    )  # a machine that stands still for a second has some seconds more
    assert {name: found["audit"][name] for name in CLEAN} == dict.fromkeys(CLEAN, 0)
    assert found["tasks"] == found["counts"]["placed"]
    assert 0 < found["tasks"] <= 600, (
        "a generator that is late leaves out what it cannot submit in time"
    )
    assert set(found["delay_ms"]) == {"p50", "p95", "p99", "p999"}
    assert 0 < found["delay_ms"]["p50"] <= found["delay_ms"]["p999"]
    for rate in ("placed_per_s", "started_per_s", "finished_per_s", "submitted_per_s"):
        assert 0 < found[rate] < 300
    for cost in (
        "baseline_claims_per_s",
        "redis_us_per_placement",
        "commands_per_placement",
        "bytes_per_placement",
    ):
        assert found[cost] > 0
    assert set(found["cpu_share"]) == {"agents", "schedulers", "generators", "redis"}


def test_tasks_of_fifty_kinds_go_where_they_fit():
    found = run(kinds=50, slots=500)
    assert {name: found["audit"][name] for name in CLEAN} == dict.fromkeys(CLEAN, 0)


def test_tasks_with_wishes_are_placed_and_ended():
    found = run(kinds=50, slots=500, prefer=("pack",))
    assert {name: found["audit"][name] for name in CLEAN} == dict.fromkeys(CLEAN, 0)
    assert found["counts"]["placed"] == found["tasks"] > 0


def test_a_cluster_under_load_places_and_ends_every_task():
    found = run(primaries=2, shards=4, seconds=6.0)
    assert {name: found["audit"][name] for name in CLEAN} == dict.fromkeys(CLEAN, 0)
    assert 0 < found["tasks"] == found["counts"]["placed"]
    assert len(found["primaries_us_per_placement"]) == 2


def test_the_command_tells_the_cost_of_each_primary():
    words = [
        "--schedulers",
        "1",
        "--slots",
        "100",
        "--partitions",
        "2",
        "--rate",
        "50",
        "--duration",
        "0.2",
    ]
    words += ["--node-slots", "10", "--seconds", "1"]
    result = CliRunner().invoke(app, ["bench", "placement", *words, "--primaries", "2"])
    assert result.exit_code == 0, result.stderr
    assert re.search(
        r"^primaries   \d+, \d+ us a placement, \d+ on the busiest", result.stdout, re.MULTILINE
    )


@pytest.mark.parametrize("system", ["central", "queues"])
def test_a_rival_of_one_server_refuses_a_cluster(system):
    with pytest.raises(InvalidInput, match=f"--primaries 2 does not go with --system {system}"):
        run(system=system, primaries=2)


def test_a_bench_that_is_stopped_leaves_no_process():
    stop = threading.Event()
    threading.Timer(1.0, stop.set).start()
    with pytest.raises(Stopped):
        run(stop, seconds=60)


def test_the_command_prints_json_and_ctrl_c_ends_it():
    words = [
        sys.executable,
        "-m",
        "parsync_redis.cli",
        "bench",
        "placement",
        "--schedulers",
        "1",
        "--slots",
        "100",
    ]
    words += [
        "--partitions",
        "1",
        "--rate",
        "50",
        "--duration",
        "0.2",
        "--node-slots",
        "10",
        "--json",
    ]
    done = subprocess.run([*words, "--seconds", "1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["audit"]["facts"] == 0
    long = subprocess.Popen(
        [*words, "--seconds", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert long.stderr
    with limited(long, "its baseline"):
        line = ""
        while "baseline" not in line and long.poll() is None:
            line = long.stderr.readline()  # limit: the block's
            time.sleep(0.01)
    long.send_signal(signal.SIGINT)
    assert long.wait(300) == 130


@pytest.mark.parametrize(
    ("system", "kinds"), [("state", 1), ("central", 1), ("central", 50), ("queues", 1)]
)
def test_a_rival_under_the_same_load_ends_every_task(system, kinds):
    found = run(system=system, kinds=kinds, slots=500, seconds=1.0)
    assert {name: found["audit"][name] for name in CLEAN} == dict.fromkeys(CLEAN, 0)
    assert 0 < found["tasks"] <= 100
    assert found["delay_ms"]["p50"] > 0
