"""parsync replay gpu on a small generated trace: placed pods, the reasons of others, and the same
through a server.
"""

import csv
import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parsync_lab.replay.gpu_trace import GpuTrace, Pod, read_gpu_trace
from parsync_lab.replay.models import ModelUse, use_of_models
from parsync_lab.replay.page import write_page
from parsync_lab.replay.reasons import count_reasons
from parsync_lab.replay.replay import Replay, ReplayParameters
from parsync_lab.replay.result import as_json, replay_gpu
from parsync_lab.replay.timeline import Curve, Timeline
from parsync_lab.replay.virtual_store import VirtualStore
from parsync_redis.cli import app
from parsync_redis.model.needs import read_amounts
from parsync_redis.model.place import Place
from parsync_redis.store import Store
from tests.kit.waiting import limited

NODE_HEAD = "sn,cpu_milli,memory_mib,gpu,model"
POD_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
NODES = (
    *(f"t{i},32000,65536,2,T4" for i in range(4)),
    *(f"g{i},96000,393216,8,G2" for i in range(2)),
    "v0,8000,32768,1,V100M16",
    *(f"c{i},16000,32768,0," for i in range(2)),
)
SHARES = ((1, 470), (1, 1000), (2, 1000), (1, 110), (0, 0), (1, 810), (8, 1000), (1, 320))
SPECS = ("", "T4", "", "V100M16|V100M32|V100M32", "G2", "")
PODS = tuple(
    f"pod{i},{1000 * (1 + i % 5)},{1024 * (i % 4)},{SHARES[i % 8][0]},{SHARES[i % 8][1]},"
    f"{SPECS[i % 6] if SHARES[i % 8][0] else ''},LS,Running,{100 * (i // 3)},{100 * (i // 3) + 2000},"
    for i in range(120)
)
FAST = ReplayParameters(schedulers=3, partitions=4, speedup=2000)


def write_trace(folder: Path, nodes: tuple[str, ...] = NODES, pods: tuple[str, ...] = PODS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "openb_node_list_all_node.csv").write_text("\n".join([NODE_HEAD, *nodes]))
    (folder / "openb_pod_list_gpuspec33.csv").write_text("\n".join([POD_HEAD, *pods]))
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trace(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="session")
def trace(folder: Path) -> GpuTrace:
    return read_gpu_trace(folder)


def result_of(
    trace: GpuTrace, parameters: ReplayParameters = FAST, url: str | None = None
) -> dict[str, Any]:
    return replay_gpu(trace, parameters, url is not None, url).result


def played(trace: GpuTrace, **parameters: Any) -> Timeline:
    store = VirtualStore("replay")
    given = {"schedulers": 3, "partitions": 4, "speedup": 2000.0, **parameters}
    return Replay(trace, store, ReplayParameters(**given)).run()


def rows(folder: Path, pattern: str, key: str) -> dict[str, Mapping[str, str]]:
    with next(folder.glob(pattern)).open() as file:
        return {row[key]: row for row in csv.DictReader(file)}


def test_the_same_seed_gives_the_same_result_and_another_seed_other_places(trace: GpuTrace) -> None:
    first = result_of(trace)
    assert as_json(result_of(trace)) == as_json(first)
    assert (
        result_of(trace, ReplayParameters(3, 4, speedup=2000, seed=2))["decisions"]
        != first["decisions"]
    )


@pytest.mark.parametrize("ends", [False, True])
def test_a_real_server_makes_the_same_decisions_and_keeps_nothing(
    trace: GpuTrace, server: Any, ends: bool
) -> None:
    parameters = ReplayParameters(3, 4, speedup=2000, ends=ends)
    virtual = result_of(trace, parameters)
    live = result_of(trace, parameters, server.url)
    assert live.pop("audit") == []
    assert (virtual.pop("live"), live.pop("live")) == (False, True)
    assert live == virtual
    assert live["placed"] > 30
    with Store.from_url(server.url, "any").client as client:
        assert client.keys("*") == []


def test_no_node_and_no_device_holds_more_than_it_has(folder: Path, trace: GpuTrace) -> None:
    """Judged from the files, not from what the reader made of them."""
    nodes = rows(folder, "openb_node*", "sn")
    pods = rows(folder, "openb_pod*", "name")
    held: defaultdict[str, Counter[str]] = defaultdict(Counter)
    slots: Counter[tuple[str, int]] = Counter()
    for place in played(trace).places:
        node = nodes[place.node]
        pod = pods[place.task]
        amounts = read_amounts(place.asked)
        held[place.node].update(amounts)
        slots.update((place.node, slot) for slot in place.slots)
        devices = [amount for name, amount in amounts.items() if name.startswith("gpu@")]
        assert devices == [int(pod["gpu_milli"])] * int(pod["num_gpu"])
        assert amounts["cpu"] == int(pod["cpu_milli"])
        assert amounts.get("mem", 0) == int(pod["memory_mib"]) * 2**20 * 1000
        assert not pod["gpu_spec"] or node["model"] in pod["gpu_spec"].split("|")
        assert bool(devices) == (int(node["gpu"]) > 0)
    for name, amounts in held.items():
        assert amounts.pop("cpu") <= int(nodes[name]["cpu_milli"])
        assert amounts.pop("mem", 0) <= int(nodes[name]["memory_mib"]) * 2**20 * 1000
        assert all(amount <= 1000 for amount in amounts.values())
        assert len(amounts) <= int(nodes[name]["gpu"])
    assert set(slots.values()) == {1}


def test_each_pod_that_waits_has_a_reason_and_none_is_for_want_of_slots(trace: GpuTrace) -> None:
    found = result_of(trace)
    assert found["placed"] + found["waiting"] == len(trace.pods)
    assert len(found["reasons"]) == 10
    assert found["claims"] == found["placed"] + found["lost_claims"]
    assert found["lost_claims"] > 0, "views are stale: some claims lose"
    for row in found["reasons"]:
        assert "full" not in row["why"]
        assert "slots" not in row["why"]
        assert "fit" in row["sentence"]
    assert any(
        "is short of gpu: the task needs gpu=2, 2 whole devices" in row["why"]
        for row in found["reasons"]
    )


def test_the_reasons_are_of_all_pods_that_wait_the_most_frequent_first(trace: GpuTrace) -> None:
    replay = Replay(trace, VirtualStore("replay"), FAST)
    placed = {place.task for place in replay.run().places}
    reasons = count_reasons(replay.cores[0])
    waiting = Counter(
        " ".join(sorted(pod.models)).replace(" ", "|")
        for pod in trace.pods
        if pod.name not in placed
    )
    counted: Counter[str] = Counter()
    for reason in reasons:
        counted[reason.models] += reason.pods
    assert counted == waiting
    assert [reason.pods for reason in reasons] == sorted(
        (reason.pods for reason in reasons), reverse=True
    )


def test_a_pod_that_no_node_can_hold_waits_with_the_reason(tmp_path: Path) -> None:
    pods = ("big,1000,0,8,1000,T4,LS,Pending,0,5,", "odd,1000,0,1,500,H900,LS,Pending,0,5,")
    found = result_of(read_gpu_trace(write_trace(tmp_path, pods=pods)))
    assert (found["placed"], found["waiting"]) == (0, 2)
    why = {row["models"]: (row["fitting"], row["why"]) for row in found["reasons"]}
    assert why["H900"] == (
        0,
        "no node fits: no node has label gpu_model:H900; there are gpu_model: G2, T4, V100M16",
    )
    assert why["T4"][0] == 0
    assert why["T4"][1].startswith("no node fits: no node has all of")


def test_pods_that_end_make_room_and_the_share_is_that_of_their_time(tmp_path: Path) -> None:
    node = ("t0,32000,65536,2,T4",)
    pods = tuple(f"p{i},1000,0,2,1000,,LS,Running,{1000 * i},{1000 * i + 4000}," for i in range(2))
    trace = read_gpu_trace(write_trace(tmp_path, node, pods))
    stays = result_of(trace, ReplayParameters(1, 1, speedup=100))
    assert (stays["placed"], stays["waiting"]) == (1, 1)
    assert (stays["gpu_share"]["most"], stays["gpu_share"]["last"]) == (1.0, 1.0)
    ends = result_of(trace, ReplayParameters(1, 1, speedup=100, ends=True))
    assert (ends["placed"], ends["waiting"], ends["reasons"]) == (2, 0, [])
    assert (ends["gpu_share"]["most"], ends["gpu_share"]["last"]) == (1.0, 0.0)
    timeline = played(trace, schedulers=1, partitions=1, speedup=100.0, ends=True)
    begins = sorted(at_s for at_s, change in timeline.used.steps if change > 0)
    ended = sorted(at_s for at_s, change in timeline.used.steps if change < 0)
    assert [end - begin for begin, end in zip(begins, ended, strict=True)] == pytest.approx(
        [4000, 4000]
    )
    assert ended[0] <= begins[1] <= ended[0] + 50 + 1e-6, "the next tick after the first has ended"


def test_slots_are_as_many_as_the_smallest_pods_could_fill(tmp_path: Path) -> None:
    pods = (
        *(f"s{i},1000,0,1,50,,LS,Running,0,5," for i in range(50)),
        *(f"c{i},8000,1024,0,0,,LS,Running,0,5," for i in range(9)),
    )
    offers = read_gpu_trace(write_trace(tmp_path, pods=pods)).offers()
    assert {name: offer.slots for name, offer in offers.items()} == {
        **{f"t{i}": 32 for i in range(4)},  # of 1 CPU each; of the GPUs it would be 40
        **dict.fromkeys(("g0", "g1"), 50),  # there are no more pods
        "v0": 8,
        **dict.fromkeys(("c0", "c1"), 2),  # only pods without a GPU go there
    }
    assert dict(offers["t0"].amounts) == {
        "cpu": 32000,
        "mem": 65536 * 2**20 * 1000,
        "gpu@0": 1000,
        "gpu@1": 1000,
    }
    assert offers["t0"].labels == (("gpu_model", "T4"),)
    assert offers["c0"].labels == ()


def test_models_are_counted_by_who_asks_for_them_and_who_holds_them(tmp_path: Path) -> None:
    nodes = ("t0,32000,65536,2,T4", "v0,8000,32768,1,V100M16", "c0,8000,1024,0,")
    pods = tuple(
        f"p{i},1000,0,1,{share},{spec},LS,Running,{i},9,"
        for i, (share, spec) in enumerate(
            [(1000, "T4"), (500, "T4|V100M16"), (1000, "V100M16"), (1000, "T4")]
        )
    )
    trace = read_gpu_trace(write_trace(tmp_path, nodes, pods))
    timeline = Timeline()
    for task, node in (("p0", "t0"), ("p1", "v0")):
        timeline.places.append(Place(task, "1@1.s0.1", 0, node, (0,), 1, 0))
    assert use_of_models(trace, timeline) == [
        ModelUse("T4", 2, 2.0, 1.0, 0.0),
        ModelUse("V100M16", 1, 1.0, 0.5, 0.5),
    ]
    timeline.ended.add("p1")
    assert use_of_models(trace, timeline)[1] == ModelUse("V100M16", 1, 1.0, 0.0, 0.0)


def test_a_curve_is_a_sum_over_time() -> None:
    curve = Curve([(10.0, 2), (0.0, 1), (10.0, -1), (20.0, -2)])
    assert curve.levels() == ([0.0, 10.0, 20.0], [1, 2, 0])
    assert curve.values_at([-1, 0, 9, 10, 30]) == [0, 1, 1, 2, 0]
    assert curve.most == 2
    assert curve.mean(20) == pytest.approx(1.5)
    assert curve.mean(40) == pytest.approx(0.75)
    assert Curve().mean(1) == 0


def test_limit_takes_the_first_pods(folder: Path) -> None:
    assert [pod.name for pod in read_gpu_trace(folder, 3).pods] == ["pod0", "pod1", "pod2"]


def test_a_share_and_whole_gpus_are_read_as_they_are(trace: GpuTrace) -> None:
    by_name: dict[str, Pod] = {pod.name: pod for pod in trace.pods}
    assert by_name["pod0"].needs.text == "slots=1 cpu=1 gpu=0.47 mem=0"
    assert by_name["pod6"].needs.text == "slots=1 cpu=2 gpu=8 mem=2147483648"
    assert (
        by_name["pod3"].needs.text
        == "slots=1 cpu=4 gpu=0.11 mem=3221225472 gpu_model:V100M16|V100M32"
    )


# -- the command -----------------------------------------------------------------------------------

WORDS = ("--schedulers", "3", "--partitions", "4", "--speedup", "2000")


def test_the_command_prints_what_it_found_and_writes_it(
    folder: Path, trace: GpuTrace, tmp_path: Path
) -> None:
    words = ["replay", "gpu", str(folder), *WORDS, "--out", str(tmp_path / "all")]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    found = result_of(trace)
    assert json.loads((tmp_path / "all" / "result.json").read_text()) == json.loads(as_json(found))
    assert f"{found['placed']} of 120 placed, {found['waiting']} wait" in done.stdout
    assert f"{found['gpu_share']['last']:.1%} at the end" in done.stdout
    for row in found["reasons"]:
        assert row["why"] in done.stdout
    assert "9 nodes register" in done.stderr
    assert (tmp_path / "all" / "replay-gpu.svg").stat().st_size > 1000
    assert json.loads((tmp_path / "all" / "speed.json").read_text()).keys() == {"wall_s", "cpu_s"}


def test_json_is_the_result_and_a_server_of_its_own_answers_live(
    folder: Path, trace: GpuTrace
) -> None:
    done = CliRunner().invoke(
        app, ["replay", "gpu", str(folder), *WORDS, "--live", "--json", "--limit", "40"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["live"], found["audit"], found["trace"]["limit"]) == (True, [], 40)
    first = GpuTrace(trace.nodes, trace.pods[:40], 40)
    assert found["decisions"] == result_of(first)["decisions"]


def test_ctrl_c_ends_it_and_leaves_no_server(folder: Path, tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "parsync_redis.cli",
        "replay",
        "gpu",
        str(folder),
        *WORDS,
        "--live",
    ]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stderr
        with limited(process, "that nodes register"):
            assert process.stderr.readline() == "9 nodes register\n"  # limit: it is killed then
        assert [path.name for path in tmp_path.glob("parsync-*")], "its server runs"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), error
    assert "Traceback" not in error
    assert list(tmp_path.glob("parsync-*")) == []


def test_the_page_has_each_replay_with_its_command_and_its_reasons(
    folder: Path, tmp_path: Path
) -> None:
    for name, more in (("virtual", []), ("short", ["--limit", "20", "--ends", "--no-plots"])):
        words = ["replay", "gpu", str(folder), *WORDS, "--out", str(tmp_path / "all" / name), *more]
        assert CliRunner().invoke(app, words).exit_code == 0
    document = tmp_path / "page.md"
    done = CliRunner().invoke(app, ["replay", "report", str(tmp_path / "all"), str(document)])
    assert done.exit_code == 0, done.output
    text = document.read_text()
    flags = "--schedulers 3 --partitions 4 --speedup 2000"
    assert f"`parsync replay gpu DIR {flags}`" in text
    assert f"`parsync replay gpu DIR --limit 20 {flags} --ends`" in text
    assert "![GPU share of the replay virtual](page/virtual.png)" in text
    assert (tmp_path / "page" / "virtual.svg").exists()
    assert not (tmp_path / "page" / "short.png").exists()
    found = json.loads((tmp_path / "all" / "virtual" / "result.json").read_text())
    for row in found["reasons"]:
        assert (
            f"| {row['pods']} | {row['models'] or 'any'} | {row['fitting']} | {row['why']} |"
            in text
        )
    for use in found["models"]:
        assert (
            f"| {use['model']} | {use['gpus']} | {use['asked']:,.1f} | {use['held']:,.1f} |" in text
        )
    assert f"> {found['reasons'][0]['sentence']}" in text
    assert write_page(tmp_path / "all", document) == ["short", "virtual"]
