"""The devices of a node: those that the user declares, or NVIDIA's, which are found; and the variables of runs."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import InvalidInput
from ..model.devices import read_indexes
from ..model.ids import shown
from ..model.place import Place

log = logging.getLogger("parsync.agent")

CUDA: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
NONE: Final = "none"
SMI: Final = "nvidia-smi"
SMI_S: Final = 30.0
"""nvidia-smi may take so long: without its daemon it loads the driver first."""

_QUERY: Final = (SMI, "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class NodeDevices:
    """The devices of a node.

    indexes: by kind. resources: their amounts, for `Resources.of`. variables: by kind, the variable in which a run
    finds the indexes of its devices. shared: the node also takes tasks that ask for none.
    """

    indexes: dict[str, list[str]] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    shared: bool = False

    def environment(self, place: Place) -> dict[str, str]:
        """Return the variables of a run at a place: it sees the devices that it holds, and no other."""
        held = place.devices if self.variables else {}
        found = {variable: ",".join(map(str, held.get(kind, []))) for kind, variable in self.variables.items()}
        if CUDA in found and ORDER not in os.environ:
            found[ORDER] = "PCI_BUS_ID"  # CUDA counts the fastest device first, nvidia-smi by the bus
        return found


# Any: the values of click options, each of its own type
def node_devices(flags: Mapping[str, Any], said: Mapping[str, str], find: bool) -> NodeDevices:
    """Return the devices of a node by its flags; raises InvalidInput.

    find: look for NVIDIA's if nothing is said of devices. said: the flag or variable by which the user gave each.
    """
    words = list(flags.get("parsync_device") or ())
    shared = bool(flags.get("parsync_shared_devices"))
    if words == [NONE]:
        devices = NodeDevices()
    elif words:
        devices = NodeDevices(read_indexes(said["parsync_device"], words), shared=shared)
    else:
        devices = find_nvidia() if find else NodeDevices()
        devices.shared = shared
    own = _pairs(said.get("parsync_device_resource", ""), flags.get("parsync_device_resource"))
    devices.resources |= own
    devices.variables = {"gpu": CUDA} if "gpu" in devices.indexes else {}
    chosen = _pairs(said.get("parsync_device_variable", ""), flags.get("parsync_device_variable"))
    for kind, variable in chosen.items():
        where = f"{said['parsync_device_variable']} {shown(f'{kind}={variable}')} is not valid"
        if kind not in devices.indexes:
            known = ", ".join(sorted(devices.indexes)) or "none"
            raise InvalidInput(f"{where}: the node has no device {kind!r}; its devices are {known}")
        if not _VARIABLE.fullmatch(variable):
            raise InvalidInput(f"{where}: it must be KIND=VARIABLE, gpu=ROCR_VISIBLE_DEVICES")
        devices.variables[kind] = variable
    return devices


def find_nvidia() -> NodeDevices:
    """Return the GPUs that nvidia-smi lists and CUDA_VISIBLE_DEVICES of the worker allows; none without nvidia-smi."""
    devices = NodeDevices()
    if shutil.which(SMI) is None:
        return devices
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=SMI_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("%s lists no devices (%s): this node declares none", SMI, error)
        return devices
    allowed = os.environ.get(CUDA)
    for line in done.stdout.splitlines():
        index, uuid, memory = (*(word.strip() for word in line.split(",")), "", "")[:3]
        if index.isdecimal() and (allowed is None or _is_allowed(index, uuid, allowed)):
            devices.indexes.setdefault("gpu", []).append(index)
            if memory.isdecimal():
                devices.resources[f"gpu.mem@{index}"] = f"{memory}MiB"
    return devices


def _is_allowed(index: str, uuid: str, allowed: str) -> bool:
    words = [word.strip() for word in allowed.split(",")]
    return index in words or any(len(word) > 4 and uuid.startswith(word) for word in words)


def _pairs(flag: str, words: Iterable[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or name in found:
            wrong = f"{name} was given before, as {found[name]!r}" if name in found else "it must be NAME=VALUE"
            raise InvalidInput(f"{flag} {word!r} is not valid: {wrong}")
        found[name] = value
    return found
