"""Runs see the devices that they hold, in prefork and solo workers; nodes with devices take no
other tasks.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parsync_redis import Infeasible
from parsync_redis.model.explanation import Outlook
from tests.kit.rig import LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
SMI = """#!/bin/sh
echo "0, GPU-aaaa1111, 24576"
echo "1, GPU-bbbb2222, 24576"
echo "2, GPU-cccc3333, 8192"
echo "3, GPU-dddd4444, 8192"
"""
GIVEN = ("2", "3", "1")
"""The devices that the workers themselves were given.

A flag that names devices counts these from 0.
"""


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig], tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """Return a rig with a cluster in which nvidia-smi lists four GPUs to the workers, of which
    CUDA_VISIBLE_DEVICES allows three.
    """
    folder: Path = tmp_path_factory.mktemp("smi")
    (folder / "nvidia-smi").write_text(SMI)
    (folder / "nvidia-smi").chmod(0o700)
    rig = new_rig(
        PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", CUDA_VISIBLE_DEVICES=",".join(GIVEN)
    )
    rig.schedulers(1, lease_s=LONG_LEASE_S)
    return rig


@pytest.fixture
def no_nodes(rig: Rig) -> Iterator[None]:
    """Forget all nodes after the test: submit knows none either."""
    yield
    names = [name for name in rig.stack.alive() if not name.startswith("scheduler")]
    for name in names:
        rig.stack.terminate(name, 30)
    rig.until(lambda: {rig.node(name).state for name in names} <= {""}, f"{names} have left")
    for name in names:
        rig.store.run(rig.store.commands.offer(name, "", None))


@pytest.mark.usefixtures("no_nodes")
@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_run_finds_the_devices_that_it_holds(rig: Rig, pool: str) -> None:
    slots = 4 if pool == "prefork" else 1
    flags = ["--parsync-device", "gpu=0-2", "--parsync-device-resource", "gpu.mem=24GiB"]
    rig.worker(f"{pool}1", *flags, slots=slots, pool=pool)
    asks: list[dict[str, Any]] = [
        {"gpu": 1},
        {"gpu": 0.5},
        {"gpu": 2, "gpu.mem": "16GiB"},
        {"gpu.mem": "8GiB"},
    ] * 3
    results = [rig.tasks.devices.apply_async(("x",), parsync={"resources": ask}) for ask in asks]
    for ask, result in zip(asks, results, strict=True):
        found = result.get(timeout=180)
        place = found["parsync"]
        held = place["devices"]["gpu"]
        assert found["CUDA_VISIBLE_DEVICES"] == ",".join(GIVEN[index] for index in held)
        assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert len(held) == ask.get("gpu", 1) if ask.get("gpu") != 0.5 else len(held) == 1
        assert {"node", "slots", "attempt"} <= place.keys()
        assert (place["node"], len(place["slots"])) == (f"{pool}1", 1)
    assert "--parsync-device gpu=0,1,2 does not name devices of CUDA_VISIBLE_DEVICES" in rig.lines(
        f"{pool}1"
    )
    if pool == "prefork":
        assert len({result.get(timeout=60)["pid"] for result in results}) == len(results), (
            "each run has a process of its own"
        )
    rig.until_idle()
    assert {
        amount for name, amount in rig.node(f"{pool}1").left.items() if name.startswith("gpu@")
    } == {1}


@pytest.mark.usefixtures("no_nodes")
def test_runs_at_the_same_time_have_devices_of_their_own(rig: Rig) -> None:
    rig.worker("n1", "--parsync-device", "gpu=0,1", slots=8)
    ids = [
        rig.tasks.devices.apply_async((f"k{at}", "go"), parsync={"resources": {"gpu": 0.5}}).id
        for at in range(6)
    ]
    rig.until(lambda: len(rig.marks("sees")) == 4, "four of them run")
    assert Counter(mark[1].partition("=")[2] for mark in rig.marks("sees")) == {
        GIVEN[0]: 2,
        GIVEN[1]: 2,
    }
    waiting = next(id for id in ids if rig.status(id).state == "waiting")
    explanation = rig.client.explain(waiting)
    assert explanation.outlook is Outlook.WAITS
    assert "is short of gpu: the task needs gpu=0.5, on one device" in explanation.why
    assert "no gpu has gpu=0.5 left; the freest, gpu 0, has 0 until " in explanation.why
    assert "1 more gpu with enough left on n1" in explanation.remedies
    rig.open()
    for id in ids:
        rig.until_state(id, "succeeded")


@pytest.mark.usefixtures("no_nodes")
def test_nvidia_devices_are_found_and_a_protected_node_takes_no_plain_task(rig: Rig) -> None:
    rig.worker("n1", slots=2)
    node = rig.node("n1")
    mem = {f"gpu.mem@{at}": size * 2**20 for at, size in ((1, 24576), (2, 8192), (3, 8192))}
    assert dict(node.resources) == {"gpu@1": 1, "gpu@2": 1, "gpu@3": 1, **mem}
    assert (
        rig.tasks.devices.apply_async(("x",), parsync={"resources": {"gpu.mem": "16GiB"}}).get(
            timeout=180
        )["CUDA_VISIBLE_DEVICES"]
        == "1"
    )
    sentence = "every node has devices \\(gpu\\) and takes only tasks that ask for some of them"
    with pytest.raises(Infeasible, match=sentence):
        rig.client.submit(rig.tasks.add.name, [1, 2])
    with pytest.raises(
        Infeasible, match=r"gpu=1\.5; devices are given whole, or a share of one below 1"
    ):
        rig.client.submit(rig.tasks.add.name, [1, 2], resources={"gpu": 1.5})
    with pytest.raises(Infeasible, match=r"no device has more gpu.mem than 24GiB \(n1\)"):
        rig.client.submit(rig.tasks.add.name, [1, 2], resources={"gpu.mem": "32GiB"})
    rig.worker("n2", "--parsync-device", "none", slots=1, pool="solo")
    assert rig.node("n2").resources == {}
    results = [rig.tasks.where.delay() for _ in range(6)]
    assert {result.get(timeout=180)["node"] for result in results} == {"n2"}
    rig.worker("n3", "--parsync-shared-devices", "--parsync-device", "gpu=0", slots=1, score=100.0)
    rig.stack.terminate("n2", 30)
    found = rig.tasks.devices.delay("plain").get(timeout=180)
    assert (found["parsync"]["node"], found["CUDA_VISIBLE_DEVICES"]) == ("n3", "-1"), (
        "it sees no device"
    )


@pytest.mark.usefixtures("no_nodes")
def test_the_node_chooses_the_variable(rig: Rig) -> None:
    flags = ["--parsync-device", "gpu=3", "--parsync-device-variable", "gpu=ROCR_VISIBLE_DEVICES"]
    rig.worker("n1", *flags, slots=1)
    found = rig.tasks.devices.apply_async(("x",), parsync={"resources": {"gpu": 1}}).get(
        timeout=180
    )
    assert (found["ROCR_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("3", None)


def test_threads_are_refused_with_the_reason(rig: Rig) -> None:
    rig.worker("t1", "--parsync-device", "gpu=0", slots=2, pool="threads", up=False)
    rig.until(lambda: not rig.stack.processes["t1"].alive, "it stops")
    assert (
        "--parsync-device: a node with devices cannot use the pool threads, because all threads "
        "share" in rig.lines("t1")
    )
