"""The GPUs of a worker: what nvidia-smi lists, what the worker's own variables allow, and what its
runs get.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
from celery.concurrency.thread import TaskPool as ThreadPool

from parsync_redis import InvalidInput
from parsync_redis.model.place import Place
from parsync_redis.worker.node import devices
from parsync_redis.worker.node.node import NodeSpec
from tests.unit.test_node_devices import no_nvidia as no_nvidia
from tests.unit.test_node_devices import smi, spec

UUIDS = ("GPU-8932f937-d72c", "GPU-8932f999-0000", "GPU-aaaa0000-1111", "GPU-bbbb0000-1111")
FOUR = tuple(f'echo "{index}, {uuid}, 81920"' for index, uuid in enumerate(UUIDS))
NONE_HERE = (
    "this node declares none, so it takes the tasks that ask for none; --parsync-device gpu=0,1 "
    "declares devices"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
FALLEN = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"
UNKNOWN = (
    "the memory of gpu 0 is unknown (nvidia-smi does not say it): no task that asks for gpu.mem "
    "gets it"
)


def offered(indexes: Iterable[str], mib: int = 81920) -> str:
    """Return the amounts of an offer with GPUs of these indexes and of equal memory; 0: unknown."""
    memory = [f"gpu.mem@{index}={mib * 2**20} " for index in indexes if mib]
    return "".join([*memory, *(f"gpu@{index}=1 " for index in indexes)]).strip()


@pytest.mark.parametrize(
    ("lines", "environment", "flag", "offer", "entries", "warning"),
    [
        pytest.param(FOUR, {}, (), offered("0123"), "0,1,2,3", "", id="no restriction"),
        pytest.param(FOUR, {"CUDA": "2,3"}, (), offered("23"), "2,3", "", id="two by index"),
        pytest.param(FOUR, {"CUDA": UUIDS[2]}, (), offered("2"), UUIDS[2], "", id="by UUID"),
        pytest.param(
            FOUR,
            {"CUDA": "GPU-aaaa"},
            (),
            offered("2"),
            "GPU-aaaa",
            "",
            id="by the beginning of a UUID",
        ),
        pytest.param(
            FOUR,
            {"CUDA": "GPU-8932f9"},
            (),
            "",
            "",
            "CUDA_VISIBLE_DEVICES='GPU-8932f9' hides all 4 devices that nvidia-smi lists "
            "(GPU-8932f9 is no device, or "
            f"no single one, that nvidia-smi lists): {NONE_HERE}",
            id="by the beginning of two UUIDs",
        ),
        pytest.param(
            FOUR, {"CUDA": ""}, (), "", "", f"('' names no device): {NONE_HERE}", id="empty"
        ),
        pytest.param(
            FOUR, {"CUDA": "-1"}, (), "", "", f"('-1' names no device): {NONE_HERE}", id="-1"
        ),
        pytest.param(
            FOUR,
            {"CUDA": "0,-1,1"},
            (),
            offered("0"),
            "0",
            "CUDA_VISIBLE_DEVICES='0,-1,1' gives this node only 0, because the list ends there: "
            "'-1' names no device",
            id="a word that ends the list",
        ),
        pytest.param(
            FOUR,
            {"CUDA": "NoDevFiles"},
            (),
            "",
            "",
            f"('NoDevFiles' names no device): {NONE_HERE}",
            id="NoDevFiles",
        ),
        pytest.param(
            FOUR,
            {"CUDA": "all"},
            (),
            "",
            "",
            f"('all' names no device, it is a word of NVIDIA_VISIBLE_DEVICES): {NONE_HERE}",
            id="all",
        ),
        pytest.param(
            FOUR,
            {"CUDA": "MIG-4c60d78c-506f"},
            (),
            offered("0", 0),
            "MIG-4c60d78c-506f",
            "the memory of gpu 0 is unknown (nvidia-smi does not list this slice, "
            "MIG-4c60d78c-506f)",
            id="a slice",
        ),
        pytest.param(
            FOUR,
            {"CUDA": f"MIG-{UUIDS[0]}/1/0"},
            (),
            offered("0", 0),
            f"MIG-{UUIDS[0]}/1/0",
            f"(nvidia-smi does not list this slice, MIG-{UUIDS[0]}/1/0)",
            id="a slice by its old name",
        ),
        pytest.param(
            FOUR,
            {"CUDA": "2,3"},
            ("gpu=0,1",),
            offered("01", 0),
            "2,3",
            "--parsync-device gpu=0,1 does not name devices of CUDA_VISIBLE_DEVICES='2,3', which "
            "this worker was given,"
            " so it counts them from 0: runs get 2,3",
            id="flags that count the devices given",
        ),
        pytest.param(
            FOUR,
            {"ORDER": "FASTEST_FIRST"},
            (),
            offered("0123"),
            "0,1,2,3",
            "",
            id="the order of CUDA",
        ),
        pytest.param(
            ('echo "0, GPU-1, [N/A]"',), {}, (), offered("0", 0), "0", UNKNOWN, id="unified memory"
        ),
        pytest.param(
            ('echo "0, GPU-1, [Insufficient Permissions]"', 'echo "1, GPU-2, [Unknown Error]"'),
            {},
            (),
            offered("01", 0),
            "0,1",
            UNKNOWN,
            id="unknown memory",
        ),
        pytest.param(
            (f"echo {MISMATCH}", "exit 18"),
            {},
            (),
            "",
            "",
            f"nvidia-smi lists no devices ({MISMATCH}; its exit code is 18): {NONE_HERE}",
            id="a driver that does not match",
        ),
        pytest.param(
            ("echo No devices were found", "exit 6"),
            {},
            (),
            "",
            "",
            f"nvidia-smi lists no devices (No devices were found; its exit code is 6): {NONE_HERE}",
            id="no devices",
        ),
        pytest.param(
            (f"echo {FALLEN}", 'echo "1, GPU-2, 81920"', "exit 15"),
            {},
            (),
            offered("1"),
            "GPU-2",
            f"nvidia-smi: {FALLEN}; its exit code is 15. This node declares none but the devices "
            "that are listed",
            id="one of two fell off the bus",
        ),
        pytest.param(
            ("echo No devices were found",),
            {},
            (),
            "",
            "",
            f"nvidia-smi lists no devices (No devices were found): {NONE_HERE}",
            id="no devices, exit code 0",
        ),
    ],
)
def test_a_node_offers_the_gpus_that_are_there_and_its_own(
    lines: tuple[str, ...],
    environment: dict[str, str],
    flag: tuple[str, ...],
    offer: str,
    entries: str,
    warning: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    smi(tmp_path, *lines)
    given(monkeypatch, environment)
    node = spec({"parsync_device": flag})
    assert node.offer.text == f"slots=2 {offer}".strip()
    assert whole(node) == entries
    assert warning in caplog.text
    assert bool(warning) == bool(caplog.records)


def given(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    names = {
        "CUDA": devices.CUDA,
        "ROCR": devices.ROCR,
        "HIP": devices.HIP,
        "ORDER": devices.CUDA_ORDER,
    }
    for name, text in environment.items():
        monkeypatch.setenv(names.get(name, name), text)


def whole(node: NodeSpec, kind: str = "gpu") -> str:
    """Return the value of the variable in which a run finds its devices; '' for a node without devices.

    The run holds all devices of the kind.
    """
    indexes = node.devices.indexes.get(kind, [])
    place = Place(
        "a", "1@1", 0, "n1", (0,), 1, 5, " ".join(f"{kind}@{index}=1" for index in sorted(indexes))
    )
    return node.devices.environment(place).get(node.devices.variables.get(kind, ""), "")


@pytest.mark.parametrize(
    ("text", "offer", "entries"),
    [
        ("3,1", offered("13"), "1,3"),
        ("1,2,1", "", ""),
        ("1,7,2", offered("1"), "1"),
        ("1,GPU-bbbb", offered("1"), "1"),
        ("GPU-bbbb,1", offered("3"), "GPU-bbbb"),
        ("GPU-bbbb,GPU-bbbb0", "", ""),
        (f" 1 , 2{' '}", offered("12"), "1,2"),
    ],
)
def test_a_list_of_devices_is_read_as_cuda_reads_it(
    text: str, offer: str, entries: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, *FOUR)
    given(monkeypatch, {"CUDA": text})
    assert spec({}).offer.text == f"slots=2 {offer}".strip()
    assert whole(spec({})) == entries


CARDS = (
    'echo "0, GPU-aaaa, 81920"',
    'echo "1, GPU-bbbb, [Insufficient Permissions]"',
    'echo "2, GPU-cccc, 81920"',
)
LIST = (
    "echo 'GPU 0: NVIDIA A100 (UUID: GPU-aaaa)'",
    "echo 'GPU 1: NVIDIA A100 (UUID: GPU-bbbb)'",
    "echo '  MIG 3g.40gb     Device  0: (UUID: MIG-1111-22)'",
    "echo '  MIG 1g.10gb     Device  1: (UUID: MIG-1133-44)'",
    "echo 'GPU 2: NVIDIA A100 (UUID: GPU-cccc)'",
)
MIG_DEVICE = (
    "<mig_device><index>{0}</index><gpu_instance_id>{1}</gpu_instance_id><compute_instance_id>0</compute_instance_id>"
    "<fb_memory_usage><total>{2} MiB</total></fb_memory_usage></mig_device>"
)
XML = (
    "<nvidia_smi_log><gpu><mig_devices>None</mig_devices><uuid>GPU-aaaa</uuid></gpu><gpu><mig_devices>"
    f"{MIG_DEVICE.format(0, 2, 40192)}{MIG_DEVICE.format(1, 9, 9728)}"
    "</mig_devices><uuid>GPU-bbbb</uuid></gpu></nvidia_smi_log>"
)


@pytest.mark.parametrize("flags", [(), ("gpu=0,1",)])
def test_a_card_that_must_be_divided_first_is_not_offered(
    flags: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can run on a card in MIG mode that has no slice."""
    mode = "<gpu><mig_mode><current_mig>{}</current_mig></mig_mode><uuid>{}</uuid></gpu>"
    xml = f"<log>{mode.format('Enabled', 'GPU-aaaa')}{mode.format('Disabled', 'GPU-bbbb')}</log>"
    cards = "echo '0, GPU-aaaa, 81920'; echo '1, GPU-bbbb, 81920'"
    smi(tmp_path, f"case $1 in -L) ;; -q) echo '{xml}' ;; *) {cards} ;; esac")
    node = spec({"parsync_device": flags} if flags else {})
    why = "card 0 is in MIG mode and has no slice, so nothing can run there"
    if flags:
        assert (
            f"this node declares gpu 0, but nvidia-smi does not list it: it lists 1 ({why})"
            in caplog.text
        )
    else:
        assert (node.offer.text, whole(node)) == (f"slots=2 {offered('1')}", "GPU-bbbb")
        assert (
            f"nvidia-smi: {why}. This node declares none but the devices that are listed"
            in caplog.text
        )


@pytest.mark.parametrize(
    ("text", "indexes", "mib", "entries"),
    [
        (None, "0123", (81920, 40192, 9728, 81920), "GPU-aaaa,MIG-1111-22,MIG-1133-44,GPU-cccc"),
        ("MIG-1133-44,MIG-1111-22", "01", (9728, 40192), "MIG-1133-44,MIG-1111-22"),
        ("MIG-1133", "0", (9728,), "MIG-1133"),
        ("MIG-GPU-bbbb/2/0", "0", (40192,), "MIG-GPU-bbbb/2/0"),
        ("1", "01", (40192, 9728), "MIG-1111-22,MIG-1133-44"),
        ("GPU-bbbb", "01", (40192, 9728), "MIG-1111-22,MIG-1133-44"),
        ("GPU-aaaa,GPU-cccc", "02", (81920, 81920), "GPU-aaaa,GPU-cccc"),
        ("MIG-11", "", (), ""),
        ("MIG-5555", "", (), ""),
    ],
)
def test_a_card_that_is_divided_is_offered_by_its_slices(
    text: str | None,
    indexes: str,
    mib: tuple[int, ...],
    entries: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    smi(
        tmp_path,
        'case "$1" in',
        "-L)",
        *LIST,
        ";;",
        f"-q) echo '{XML}';;",
        "*)",
        *CARDS,
        ";;",
        "esac",
    )
    given(monkeypatch, {} if text is None else {"CUDA": text})
    node = spec({})
    assert node.offer.amounts == tuple(
        sorted(
            [(f"gpu@{index}", 1000) for index in indexes]
            + [
                (f"gpu.mem@{index}", size * 2**20 * 1000)
                for index, size in zip(indexes, mib, strict=True)
            ]
        )
    )
    assert whole(node) == entries


def test_declared_gpus_that_are_no_whole_cards_here_are_declared_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    smi(
        tmp_path,
        'case "$1" in',
        "-L)",
        *LIST,
        ";;",
        f"-q) echo '{XML}';;",
        "*)",
        *CARDS,
        ";;",
        "esac",
    )
    assert spec({"parsync_device": ("gpu=0,1,7",)}).offer.text == f"slots=2 {offered('017', 0)}"
    assert [record.getMessage() for record in caplog.records] == [
        "this node declares gpu 1, a card in 2 slices, of which a run sees the first: without "
        "--parsync-device the "
        "node declares each slice",
        "this node declares gpu 7, but nvidia-smi does not list it: it lists 0, 1, 2",
    ]


def test_a_card_that_is_lost_is_not_declared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    smi(
        tmp_path,
        'echo "0, GPU-1, 81920"',
        'echo "1, GPU-2, [GPU is lost]"',
        'echo "2, GPU-3, [GPU requires reset]"',
    )
    assert spec({}).offer.text == f"slots=2 {offered('0')}"
    assert (
        "nvidia-smi: 1, GPU-2, [GPU is lost]; 2, GPU-3, [GPU requires reset]. This node declares "
        "none" in caplog.text
    )


def test_with_cudas_order_an_index_does_not_identify_a_card_among_unlike_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    smi(tmp_path, 'echo "0, GPU-1, 81920"', 'echo "1, GPU-2, 24576"')
    given(monkeypatch, {"CUDA": "0", "ORDER": "FASTEST_FIRST"})
    node = spec({})
    assert node.offer.text == "slots=2 gpu@0=1"
    assert (
        "gpu 0 is unknown (CUDA_DEVICE_ORDER=FASTEST_FIRST hides which card it is)" in caplog.text
    )
    place = Place("a", "1@1", 0, "n1", (0,), 1, 5, "gpu@0=1")
    assert node.devices.environment(place) == {"CUDA_VISIBLE_DEVICES": "0"}, (
        "as the worker itself counts"
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert spec({}).devices.environment(place) == {
        "CUDA_VISIBLE_DEVICES": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_the_memory_that_the_user_gives_comes_before_that_of_nvidia_smi(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    smi(tmp_path, 'echo "0, GPU-1, 81920"', 'echo "1, GPU-2, [N/A]"')
    assert spec({"parsync_device_resource": ("gpu.mem=1KiB",)}).offer.text == (
        "slots=2 gpu.mem@0=1024 gpu.mem@1=1024 gpu@0=1 gpu@1=1"
    )
    assert not caplog.records


@pytest.mark.parametrize(
    ("environment", "flags", "entries", "variable"),
    [
        ({"CUDA": "2,3"}, ("gpu=2,3",), "2,3", "CUDA"),
        ({"CUDA": "2,3"}, ("gpu=3",), "3", "CUDA"),
        ({"CUDA": "1,2,3"}, ("gpu=0,1",), "1,2", "CUDA"),
        ({"CUDA": "GPU-bbbb,GPU-aaaa"}, ("gpu=0,1",), "GPU-bbbb,GPU-aaaa", "CUDA"),
        ({"CUDA": "MIG-bbbb,MIG-aaaa"}, ("gpu=1",), "MIG-aaaa", "CUDA"),
        ({"ROCR": "2,GPU-DEAD"}, ("gpu=0,1",), "2,GPU-DEAD", "ROCR"),
        ({"HIP": "4,5"}, ("gpu=4,5",), "4,5", "HIP"),
        ({"HIP": ""}, ("gpu=0",), "0", "CUDA"),
        ({"CUDA": "1", "ROCR": "1"}, ("gpu=1",), "1", "CUDA"),
        ({}, ("gpu=0,1",), "0,1", "CUDA"),
    ],
)
def test_a_run_gets_entries_of_the_list_that_the_worker_was_given(
    environment: dict[str, str],
    flags: tuple[str, ...],
    entries: str,
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given(monkeypatch, environment)
    node = spec({"parsync_device": flags})
    assert node.devices.variables == {"gpu": f"{variable}_VISIBLE_DEVICES"}
    assert whole(node) == entries


@pytest.mark.parametrize("word", ["all", "void", "none", ""])
def test_a_word_of_containers_is_no_list(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {"NVIDIA_VISIBLE_DEVICES": word})
    node = spec(
        {"parsync_device": ("gpu=0,1",), "parsync_device_variable": ("gpu=NVIDIA_VISIBLE_DEVICES",)}
    )
    assert whole(node) == "0,1"


def test_the_list_is_that_of_the_variable_that_the_node_chooses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given(monkeypatch, {"NICS": "eth2,eth3"})
    node = spec({"parsync_device": ("nic=0,1",), "parsync_device_variable": ("nic=NICS",)})
    assert whole(node, "nic") == "eth2,eth3"
    assert node.devices.environment(Place("a", "1@1", 0, "n1", (0,), 1, 5)) == {"NICS": ""}


@pytest.mark.parametrize(
    ("environment", "flags", "why"),
    [
        (
            {"CUDA": "2,3"},
            ("gpu=0-3",),
            "--parsync-device gpu=0,1,2,3 is not valid: CUDA_VISIBLE_DEVICES='2,3' lets this "
            "worker use 2 devices: "
            r"name them \(2, 3\), or count them from 0",
        ),
        (
            {"CUDA": "-1"},
            ("gpu=0",),
            "CUDA_VISIBLE_DEVICES='-1' lets this worker use 0 devices: say --parsync-device none",
        ),
        (
            {"CUDA": "2,3,2"},
            ("gpu=0",),
            "use 0 devices: .*, or start the worker without CUDA_VISIBLE_DEVICES",
        ),
        (
            {"ROCR": "2,x"},
            ("gpu=1",),
            r"ROCR_VISIBLE_DEVICES='2,x' lets this worker use 1 devices: name them \(2\)",
        ),
    ],
)
def test_a_device_that_the_worker_was_not_given_is_refused(
    environment: dict[str, str], flags: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, environment)
    with pytest.raises(InvalidInput, match=why):
        spec({"parsync_device": flags})


@pytest.mark.parametrize(
    "variable", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"]
)
def test_a_run_without_gpus_has_a_list_that_shows_none_to_cuda_and_to_hip(variable: str) -> None:
    node = spec({"parsync_device": ("gpu=0",), "parsync_device_variable": (f"gpu={variable}",)})
    assert node.devices.environment(Place("a", "1@1", 0, "n1", (0,), 1, 5))[variable] == "-1", (
        "HIP shows all for ''"
    )


def test_lists_that_restrict_each_other_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given(monkeypatch, {"ROCR": "2,3", "HIP": "0,1"})
    spec({"parsync_device": ("gpu=2,3",)})
    assert "HIP_VISIBLE_DEVICES='0,1' also restricts this worker." in caplog.text
    assert (
        "see none of theirs in ROCR_VISIBLE_DEVICES: start the worker without HIP_VISIBLE_DEVICES"
        in caplog.text
    )


@pytest.mark.parametrize("sign", ["CUDA='2,3'", "ROCR='0'", "HIP='1'", "nvidiactl"])
def test_signs_of_gpus_without_their_tools_are_reported(
    sign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert spec({}).offer.text == "slots=2"
    assert not caplog.records
    if sign == "nvidiactl":
        (tmp_path / sign).touch()
    else:
        name, _, text = sign.partition("=")
        given(monkeypatch, {name: text.strip("'")})
    assert spec({}).offer.text == "slots=2"
    what = f"{sign.replace('=', '_VISIBLE_DEVICES=')} is a sign of GPUs"
    assert f"{what}, but neither nvidia-smi nor amd-smi nor rocm-smi is on the PATH" in caplog.text
    assert NONE_HERE in caplog.text
    caplog.clear()
    spec({"parsync_device": ("none",)})
    assert not caplog.records


def test_a_pool_of_threads_on_a_machine_with_gpus_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    smi(tmp_path, *FOUR)
    assert spec({}, ThreadPool).offer.text == "slots=2"
    assert (
        "the pool threads cannot have devices: this node declares none of the 4 gpu that are here"
        in caplog.text
    )


def test_an_unapplied_device_list_for_containers_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    smi(tmp_path, *FOUR)
    for text in ("all", "void", "0,1,2,3"):
        monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", text)
        spec({})
    assert not caplog.records
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", UUIDS[1])
    assert spec({}).offer.text == f"slots=2 {offered('0123')}"
    assert (
        f"NVIDIA_VISIBLE_DEVICES='{UUIDS[1]}' names 1 of the 4 GPUs that nvidia-smi lists."
        in caplog.text
    )
