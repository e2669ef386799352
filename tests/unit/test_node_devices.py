"""The devices of a worker by its flags, its environment and nvidia-smi; the variables
of its runs.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool

from parsync_redis import InvalidInput
from parsync_redis.model.place import Place
from parsync_redis.settings import node_options
from parsync_redis.worker.celery.port import read_facts, replace_used_processes
from parsync_redis.worker.isolation.tie import seeing
from parsync_redis.worker.node import amd, devices
from parsync_redis.worker.node.node import NodeSpec, node_spec


@pytest.fixture(autouse=True)
def no_nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no program be on the PATH but those of `smi`, and the kernel list no card of AMD's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(devices, "NVIDIA_CONTROL_FILE", tmp_path / "nvidiactl")
    monkeypatch.setattr(amd, "AMD_CONTROL_FILE", tmp_path / "kfd")
    monkeypatch.setattr(amd, "KFD", tmp_path / "nodes")
    for variable in (*devices.GPU_LISTS, devices.CUDA_ORDER, devices.CONTAINERS):
        monkeypatch.delenv(variable, raising=False)


def smi(folder: Path, *lines: str) -> None:
    (folder / "nvidia-smi").write_text("\n".join(["#!/bin/sh", *lines]))
    (folder / "nvidia-smi").chmod(0o700)


def worker(pool: Any = PreforkPool) -> Any:
    return SimpleNamespace(
        pool_cls=pool,
        concurrency=2,
        max_concurrency=None,
        hostname="celery@h",
        max_tasks_per_child=None,
    )


def spec(flags: dict[str, Any], pool: Any = PreforkPool) -> NodeSpec:
    return node_spec(read_facts(worker(pool)), *node_options({"parsync_node": "n1", **flags}))


def test_a_node_offers_the_devices_of_its_flags() -> None:
    flags = {
        "parsync_device": ("gpu=0,2-3", "nic=1"),
        "parsync_device_resource": ("gpu.mem=2KiB", "gpu.mem@3=4KiB", "nic.rate=1.5"),
        "parsync_resource": ("mem=8",),
        "parsync_taint": ("spot",),
    }
    assert spec(flags).offer.text == (
        "slots=2 gpu.mem@0=2048 gpu.mem@2=2048 gpu.mem@3=4096 gpu@0=1 gpu@2=1 gpu@3=1 mem=8 "
        "nic.rate@1=1.5 nic@1=1 "
        "parsync.taint:spot"
    )
    assert spec({"parsync_device": ("gpu=0",), "parsync_shared_devices": True}).offer.text == (
        "slots=2 gpu@0=1 parsync.devices:shared"
    )


def test_variables_say_what_the_flags_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARSYNC_NODE_DEVICES", "gpu=0,1,nic=4")
    monkeypatch.setenv("PARSYNC_NODE_DEVICE_RESOURCES", "gpu.mem=1KiB,nic.rate=2")
    monkeypatch.setenv("PARSYNC_NODE_DEVICE_VARIABLES", "nic=NICS,gpu=ROCR_VISIBLE_DEVICES")
    monkeypatch.setenv("PARSYNC_NODE_SHARED_DEVICES", "1")
    found = spec({})
    assert found.offer.text == (
        "slots=2 gpu.mem@0=1024 gpu.mem@1=1024 gpu@0=1 gpu@1=1 nic.rate@4=2 nic@4=1 "
        "parsync.devices:shared"
    )
    assert found.devices.variables == {"gpu": "ROCR_VISIBLE_DEVICES", "nic": "NICS"}


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"parsync_device": ("0",)}, "--parsync-device '0' is not valid: it must be KIND=INDEXES"),
        ({"parsync_device": ("gpu=a",)}, "--parsync-device: index 'a' of device gpu is not valid"),
        ({"parsync_device": ("gpu=1000",)}, "--parsync-device: index '1000' of device gpu"),
        ({"parsync_device": ("gpu=3-1",)}, "--parsync-device: index '3-1' of device gpu"),
        (
            {"parsync_device": ("gpu=0,0",)},
            "--parsync-device: device gpu is not valid: .* each once",
        ),
        ({"parsync_device": ("GPU=0",)}, "--parsync-device: device name 'GPU' is not valid"),
        ({"parsync_device": ("slots=0",)}, "--parsync-device: device name 'slots' is taken"),
        (
            {"parsync_device": ("apart_web=0",)},
            "--parsync-device: device name 'apart_web' is reserved",
        ),
        ({"parsync_device": ("gpu=0-63",)}, "65 amounts of resources and devices are too many"),
        (
            {"parsync_device_resource": ("gpu.mem=1",)},
            "--parsync-device-resource: .* it has no devices",
        ),
        (
            {"parsync_device": ("gpu=0",), "parsync_device_resource": ("nic.a=1",)},
            "its devices are gpu",
        ),
        (
            {"parsync_device": ("gpu=0",), "parsync_device_resource": ("gpu.mem@1=1",)},
            "device gpu has no index '1'",
        ),
        (
            {"parsync_device": ("gpu=0",), "parsync_device_resource": ("gpu=1",)},
            "resource name '' is not valid",
        ),
        (
            {"parsync_device": ("gpu=0",), "parsync_resource": ("gpu=1",)},
            "resource gpu is given twice",
        ),
        (
            {"parsync_device": ("gpu=0",), "parsync_device_variable": ("nic=A",)},
            "the node has no device 'nic'",
        ),
        (
            {"parsync_device": ("gpu=0",), "parsync_device_variable": ("gpu=1A",)},
            "it must be KIND=VARIABLE",
        ),
    ],
)
def test_devices_without_sense_are_refused(flags: dict[str, Any], why: str) -> None:
    if "too many" in why:
        flags = {**flags, "parsync_resource": ("mem=1",)}
    with pytest.raises(InvalidInput, match=why):
        spec(flags)


def test_threads_are_refused_with_the_reason() -> None:
    with pytest.raises(
        InvalidInput, match="--parsync-device: a node with devices cannot use the pool threads, b"
    ):
        spec({"parsync_device": ("gpu=0",)}, ThreadPool)


def test_a_prefork_process_with_devices_runs_one_task() -> None:
    for pool, flags, most in (
        (PreforkPool, {"parsync_device": ("gpu=0",)}, 1),
        (PreforkPool, {}, None),
        (SoloPool, {"parsync_device": ("gpu=0",)}, None),
    ):
        some = worker(pool)
        offer = node_spec(read_facts(some), *node_options({"parsync_node": "n1", **flags}))
        replace_used_processes(some, offer)
        assert some.max_tasks_per_child == most


def test_nvidia_devices_are_found_unless_the_user_says_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(
        tmp_path,
        'echo "0, GPU-aaaa1111, 24576"',
        'echo "1, GPU-bbbb2222, [N/A]"',
        'echo "what is this"',
    )
    assert spec({}).offer.text == f"slots=2 gpu.mem@0={24 * 2**30} gpu@0=1 gpu@1=1"
    assert spec({"parsync_device": ("none",)}).offer.text == "slots=2"
    assert spec({"parsync_device": ("gpu=7",)}).offer.text == "slots=2 gpu@7=1"
    assert spec({"parsync_resource": ("gpu=1",)}).offer.text == "slots=2 gpu=1"
    assert spec({}, ThreadPool).offer.text == "slots=2"
    for allowed, found in (("GPU-bbbb", " gpu@1=1"), ("", ""), ("3", "")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
        assert spec({}).offer.text == f"slots=2{found}"


def test_an_nvidia_smi_that_fails_finds_nothing_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    smi(tmp_path, "exit 9")
    assert spec({}).offer.text == "slots=2"
    assert "nvidia-smi lists no devices" in caplog.text
    assert "this node declares none" in caplog.text


def test_a_run_sees_its_devices_and_no_other_and_the_variables_are_as_before_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = spec({"parsync_device": ("gpu=0-3", "nic=1")}).devices
    place = Place("a", "1@1", 0, "n1", (0,), 1, 5, "gpu.mem@1=8 gpu@1=1 gpu@3=1")
    assert node.environment(place) == {
        "CUDA_VISIBLE_DEVICES": "1,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert node.environment(Place("a", "1@1", 0, "n1", (0,), 1, 5))["CUDA_VISIBLE_DEVICES"] == "-1"
    assert spec({}).devices.environment(place) == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    with seeing(node.environment(place)):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert "CUDA_DEVICE_ORDER" not in os.environ
