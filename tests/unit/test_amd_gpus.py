"""AMD's GPUs of a worker: what the kernel lists, and what the worker's own variables allow."""

from pathlib import Path

import pytest

from tests.unit.test_gpus import NONE_HERE, given, offered, whole
from tests.unit.test_node_devices import no_nvidia as no_nvidia
from tests.unit.test_node_devices import spec


def kfd(folder: Path, *cards: dict[str, int], gib: int = 64) -> None:
    """Make the kernel's list of a processor and these cards; one without facts is a card that may
    not be read.
    """
    for number, facts in enumerate(({"cpu_cores_count": 8, "simd_count": 0}, *cards)):
        node = folder / "nodes" / str(number)
        (node / "mem_banks/0").mkdir(parents=True)
        (node / "mem_banks/0/properties").write_text(
            f"heap_type 1\nsize_in_bytes {gib * 2**30}\nflags 0\n"
        )
        if facts:
            (node / "properties").write_text(
                "".join(f"{name} {value}\n" for name, value in facts.items())
            )
        else:
            (node / "properties").mkdir()


def rocm(folder: Path, tool: str = "rocm-smi") -> None:
    (folder / tool).write_text("#!/bin/sh\n")
    (folder / tool).chmod(0o700)


AMD = tuple({"simd_count": 304, "unique_id": 0xAB00000000000000 + number} for number in range(3))


@pytest.mark.parametrize(
    ("environment", "offer", "entries", "variable"),
    [
        ({}, "012", "0,1,2", "ROCR"),
        ({"ROCR": "2,1"}, "21", "1,2", "ROCR"),
        ({"ROCR": "GPU-ab00000000000001"}, "1", "GPU-ab00000000000001", "ROCR"),
        ({"HIP": "1"}, "1", "1", "HIP"),
        ({"CUDA": "0"}, "0", "0", "CUDA"),
        ({"ROCR": "7"}, "", "", ""),
    ],
)
def test_amds_cards_are_found_within_the_list_that_the_worker_was_given(
    environment: dict[str, str],
    offer: str,
    entries: str,
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rocm(tmp_path)
    kfd(tmp_path, *AMD)
    given(monkeypatch, environment)
    node = spec({})
    assert node.offer.text == f"slots=2 {offered(sorted(offer), 65536)}".strip()
    assert node.devices.variables == ({"gpu": f"{variable}_VISIBLE_DEVICES"} if variable else {})
    assert sorted(whole(node).split(",")) == entries.split(",")
    assert bool(caplog.records) == (not offer)
    assert (
        offer
        or f"hides all 3 devices that {tmp_path}/nodes lists (7 is no device, or no single one"
        in caplog.text
    )


def test_a_container_has_the_cards_whose_properties_it_may_read(tmp_path: Path) -> None:
    rocm(tmp_path, "amd-smi")
    kfd(tmp_path, {}, {"simd_count": 304})
    assert spec({}).offer.text == f"slots=2 {offered('0', 65536)}"


def test_a_card_of_amds_of_unknown_memory_and_a_machine_without_cards_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rocm(tmp_path)
    assert spec({}).offer.text == "slots=2"
    assert f"{tmp_path}/nodes lists no devices (it is empty): {NONE_HERE}" in caplog.text
    kfd(tmp_path, AMD[0], gib=0)
    assert spec({}).offer.text == "slots=2 gpu@0=1"
    assert f"the memory of gpu 0 is unknown ({tmp_path}/nodes does not say it)" in caplog.text


def test_cards_without_a_tool_of_rocm_are_told_if_the_worker_could_use_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A card for the screen only has no such tool, and its machine keeps taking the tasks that ask
    for no device.
    """
    kfd(tmp_path, AMD[0])
    assert spec({}).offer.text == "slots=2"
    assert not caplog.records
    (tmp_path / "kfd").touch()
    assert spec({}).offer.text == "slots=2"
    assert (
        f"{tmp_path}/kfd is a sign of GPUs, but neither nvidia-smi nor amd-smi nor rocm-smi is"
        in caplog.text
    )
