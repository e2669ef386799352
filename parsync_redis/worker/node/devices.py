"""The devices of a node, the variables that tell a run its devices, and the GPUs of the machine.

The user declares the devices (node.py), or this module finds the GPUs. The worker's own
CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES bounds both: a run's variable
has entries of that list only.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...model.ids import shown
from ...model.place import Place
from . import amd
from .nvidia import SMI, Gpu, list_gpus, named_gpus

log = logging.getLogger("parsync.agent")

CUDA: Final = "CUDA_VISIBLE_DEVICES"
ROCR: Final = "ROCR_VISIBLE_DEVICES"
HIP: Final = "HIP_VISIBLE_DEVICES"
GPU_LISTS: Final = (CUDA, ROCR, HIP)
CUDA_ORDER: Final = "CUDA_DEVICE_ORDER"
CONTAINERS: Final = "NVIDIA_VISIBLE_DEVICES"
"""The variable that lists the GPUs of a container. The container's runtime reads it, CUDA does not.
"""
CONTAINER_WORDS: Final = ("", "all", "none", "void")
"""Words that NVIDIA_VISIBLE_DEVICES may have instead of a list."""

NO_GPU: Final = "-1"
"""The list of a run without GPUs.

An empty list shows all GPUs to HIP, and looks like no list to many programs.
"""
NVIDIA_CONTROL_FILE: Final = Path("/dev/nvidiactl")
"""NVIDIA's driver makes this file."""

_GPU_ENTRY: Final = re.compile(r"\d+|(GPU|MIG)-\S+")
_ASK_FOR_SOME: Final = (
    "this node declares none, so it takes the tasks that ask for none; --parsync-device gpu=0,1 "
    "declares devices, --parsync-device none says that there are none"
)


@dataclass(slots=True)
class NodeDevices:
    """The devices of a node.

    indexes: the indexes of each kind. resources: the amounts of devices, for `Resources.of`.
    variables: for each kind the variable in which a run finds its devices. entries: for each kind
    the entry of that variable for each index. by_bus: runs count GPUs by the PCI bus, as nvidia-smi
    does. shared: the node also takes tasks that ask for no device.
    """

    indexes: dict[str, list[str]] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    entries: dict[str, dict[str, str]] = field(default_factory=dict)
    by_bus: bool = True
    shared: bool = False

    def environment(self, place: Place) -> dict[str, str]:
        """Return the variables of a run: they name the devices that its place holds."""
        indexes = place.devices if self.variables else {}
        environment = {}
        for kind, variable in self.variables.items():
            entries = [self.entries[kind][str(index)] for index in indexes.get(kind, ())]
            environment[variable] = ",".join(entries) or (NO_GPU if variable in GPU_LISTS else "")
        if CUDA in environment and self.by_bus:
            # CUDA counts the fastest device first, nvidia-smi by the bus
            environment[CUDA_ORDER] = "PCI_BUS_ID"
        return environment


@dataclass(frozen=True, slots=True)
class DeviceList:
    """The devices that a variable of the worker's own environment lets it use.

    entries: the devices as the variable names them. end: why the list ends before its last word,
    "" if all its words count.
    """

    variable: str
    text: str
    entries: tuple[str, ...]
    end: str = ""

    def __str__(self) -> str:
        """Return the variable and its text, as messages show them."""
        return f"{self.variable}={shown(self.text)}"


def read_device_list(variable: str) -> DeviceList | None:
    """Return the devices that a variable lets this process use, None for no limit.

    CUDA reads a list up to the first word that names no device or is of another sort than the first
    word. It shows no device if a word comes twice. ROCm reads a list up to the first word that
    names no device or comes again.
    """
    text = os.environ.get(variable)
    if text is None or (variable == HIP and not text):
        return None
    if variable not in GPU_LISTS and text.strip() in CONTAINER_WORDS:
        return None
    entries: list[str] = []
    for word in map(str.strip, text.split(",")):
        entry = _GPU_ENTRY.fullmatch(word)
        first = _GPU_ENTRY.fullmatch(entries[0]) if entries else entry
        if not word or (variable in GPU_LISTS and not entry):
            end = f"{shown(word)} names no device"
            if word == "all":
                end += f", it is a word of {CONTAINERS}"
        elif variable == CUDA and entry and first and entry[1] != first[1]:
            end = f"{shown(word)} is of another sort than {entries[0]}"
        elif word in entries:
            end = f"{word} comes twice"
            entries = [] if variable == CUDA else entries
        else:
            entries.append(word)
            continue
        return DeviceList(variable, text, tuple(entries), end)
    return DeviceList(variable, text, tuple(entries))


def check_gpus(devices: NodeDevices, detected: bool) -> None:
    """Warn of declared GPUs that nvidia-smi does not list, and of lists that clash.

    A declared GPU should be a whole card. ROCm applies one list within another list.
    """
    variable = devices.variables["gpu"]
    indexes = devices.indexes["gpu"]
    has_smi = shutil.which(SMI) is not None
    if variable != CUDA or not has_smi:
        for other_list in GPU_LISTS:
            if other_list != variable and (device_list := read_device_list(other_list)):
                log.warning(
                    "%s also restricts this worker. ROCm counts the devices of one list within the "
                    "other, so runs may see none of theirs in %s: start the worker without %s",
                    *(device_list, variable, other_list),
                )
    if detected or variable != CUDA or not has_smi:
        return
    listing = list_gpus()
    gpus = listing.gpus
    for index in indexes:
        named = named_gpus(devices.entries["gpu"][index], gpus)
        if not named:
            cards = ", ".join(dict.fromkeys(gpu.card for gpu in gpus)) or "none"
            cards += f" ({'; '.join(listing.troubles)})" if listing.troubles else ""
            log.warning(
                "this node declares gpu %s, but %s does not list it: it lists %s", index, SMI, cards
            )
        elif len(named) > 1:
            log.warning(
                "this node declares gpu %s, a card in %d slices, of which a run sees the first: "
                "without --parsync-device the node declares each slice",
                *(index, len(named)),
            )


def find_gpus(amounts: Mapping[str, str]) -> NodeDevices:
    """Return the GPUs of the machine that the worker may use.

    NVIDIA's GPUs count where nvidia-smi is on the PATH, else AMD's where ROCm's tools are.

    amounts: the amounts of devices that the user declares. They take precedence over the listing.
    """
    if shutil.which(SMI) is not None:
        variable = CUDA
        lister = SMI
        listing = list_gpus()
    elif amd.has_rocm():
        # HIP reads each of the three; the first counts all cards
        variable = next((name for name in (ROCR, HIP, CUDA) if read_device_list(name)), ROCR)
        lister = str(amd.KFD)
        listing = amd.list_amd()
    else:
        _warn_of_signs()
        return NodeDevices()
    device_list = read_device_list(variable)
    gpus = listing.gpus
    allowed, end = _allowed(gpus, device_list, lister)
    troubles = "; ".join(listing.troubles)
    if troubles and allowed:
        log.warning(
            "%s: %s. This node declares none but the devices that are listed", lister, troubles
        )
    if not gpus and not allowed:
        log.warning(
            "%s lists no devices (%s): %s", lister, troubles or "it is empty", _ASK_FOR_SOME
        )
    elif not allowed:
        log.warning(
            "%s hides all %d devices that %s lists (%s): %s",
            device_list,
            len(gpus),
            lister,
            end,
            _ASK_FOR_SOME,
        )
    elif end:
        log.warning(
            "%s gives this node only %s, because the list ends there: %s",
            device_list,
            ",".join(allowed),
            end,
        )
    if variable == CUDA:
        _warn_of_container(gpus, device_list)
    devices = _declare(gpus, allowed, device_list, amounts, lister)
    if devices.indexes:
        devices.variables["gpu"] = variable
    return devices


def _declare(
    gpus: list[Gpu],
    allowed: dict[str, Gpu],
    device_list: DeviceList | None,
    amounts: Mapping[str, str],
    lister: str,
) -> NodeDevices:
    """Return the devices of a node that may use these GPUs.

    If some are slices, their indexes count from 0: a slice has no index of its own.
    """
    devices = NodeDevices()
    in_cuda_order = (
        device_list is not None
        and any(map(str.isdecimal, device_list.entries))
        and CUDA_ORDER in os.environ
    )
    devices.by_bus = not in_cuda_order
    unlike = (
        os.environ.get(CUDA_ORDER) == "FASTEST_FIRST" and len({gpu.memory_mib for gpu in gpus}) > 1
    )
    counted = any(gpu.is_slice for gpu in allowed.values())
    for position, (entry, gpu) in enumerate(allowed.items()):
        index = str(position) if counted else gpu.card
        devices.indexes.setdefault("gpu", []).append(index)
        devices.entries.setdefault("gpu", {})[index] = entry
        if "gpu.mem" in amounts or f"gpu.mem@{index}" in amounts:
            continue
        if in_cuda_order and unlike:
            unknown = f"{CUDA_ORDER}=FASTEST_FIRST hides which card it is"
        elif not gpu.card:
            unknown = f"{lister} does not list this slice, {entry}"
        else:
            unknown = "" if gpu.memory_mib else f"{lister} does not say it"
        if unknown:
            log.warning(
                "the memory of gpu %s is unknown (%s): no task that asks for gpu.mem gets it; "
                "--parsync-device-resource gpu.mem@%s=24GiB declares it",
                *(index, unknown, index),
            )
        else:
            devices.resources[f"gpu.mem@{index}"] = f"{gpu.memory_mib}MiB"
    return devices


def _allowed(
    gpus: list[Gpu], device_list: DeviceList | None, lister: str
) -> tuple[dict[str, Gpu], str]:
    """Return the GPUs that the worker may use by their entries, and why the list ends early."""
    if device_list is None:
        counted = [gpu.card for gpu in gpus] == [str(number) for number in range(len(gpus))]
        whole = not any(gpu.is_slice for gpu in gpus)
        if counted and whole:
            return {gpu.card: gpu for gpu in gpus}, ""
        return {gpu.uuid: gpu for gpu in gpus}, ""
    allowed: dict[str, Gpu] = {}
    for word in device_list.entries:
        named = named_gpus(word, gpus)
        if not named:
            return allowed, f"{word} is no device, or no single one, that {lister} lists"
        if any(gpu in allowed.values() for gpu in named):
            return {}, f"{word} names a device for the second time"
        divided = not word.startswith("MIG-") and named[0].is_slice
        allowed |= {gpu.uuid: gpu for gpu in named} if divided else dict.fromkeys([word], named[0])
    return allowed, device_list.end


def _warn_of_signs() -> None:
    """Warn of signs of GPUs on a machine that has no tool of NVIDIA's or AMD's."""
    signs = [
        str(device_list)
        for variable in GPU_LISTS
        if (device_list := read_device_list(variable)) and device_list.entries
    ]
    signs += [str(NVIDIA_CONTROL_FILE)] if NVIDIA_CONTROL_FILE.exists() else []
    signs += [str(amd.AMD_CONTROL_FILE)] if amd.has_cards() else []
    if signs:
        tools = " nor ".join((SMI, *amd.TOOLS))
        log.warning(
            "%s is a sign of GPUs, but neither %s is on the PATH: %s",
            " and ".join(signs),
            tools,
            _ASK_FOR_SOME,
        )


def _warn_of_container(gpus: list[Gpu], device_list: DeviceList | None) -> None:
    """Warn if the worker was given fewer GPUs by a variable that CUDA does not read."""
    named = os.environ.get(CONTAINERS, "").split(",")
    words = [word for word in named if word not in CONTAINER_WORDS]
    cards = {gpu.card_uuid for gpu in gpus}
    if device_list is None and words and len(words) < len(cards):
        log.warning(
            "%s=%s names %d of the %d GPUs that %s lists. No container's runtime has applied it, "
            "and this node declares all: start the worker with %s if the others are not its own",
            *(CONTAINERS, shown(os.environ[CONTAINERS]), len(words), len(cards), SMI, CUDA),
        )
