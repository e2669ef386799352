"""The offer of a worker that is a node: its slots, resources and devices.

The flags and the facts about the worker say what it offers. devices.py finds GPUs of the machine.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ...errors import InvalidInput
from ...model.apps import KnownTasks, offer_with
from ...model.devices import device_amounts, read_indexes
from ...model.ids import check_name, shown
from ...model.limits import MAX_SLOTS
from ...model.needs import QUEUE_LABEL, TRANSIENT, TRANSIENT_LABEL, Resources, queue_label
from ...model.taints import offered_taints
from ...store.server.server_errors import AWAY
from ...store.store import Store
from .capacity import NodeCapacity
from .devices import (
    CUDA,
    CUDA_ORDER,
    GPU_LISTS,
    NodeDevices,
    check_gpus,
    find_gpus,
    read_device_list,
)
from .look_ahead import room_of
from .notices import notice_source
from .process_limits import warn_of_limits
from .sources import TextSource, source_of
from .worker_port import WorkerFacts

log = logging.getLogger("parsync.agent")

T = TypeVar("T")

NO_DEVICES: Final = "none"
MAX_SHRINK_AFTER_S: Final = 86_400
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

FLAGS = (
    "parsync",
    "parsync_only",
    "parsync_node",
    "parsync_slots",
    "parsync_score",
    "parsync_label",
    "parsync_resource",
    "parsync_taint",
    "parsync_device",
    "parsync_device_resource",
    "parsync_device_variable",
    "parsync_shared_devices",
    "parsync_notice",
    "parsync_transient",
    "parsync_capacity",
    "parsync_shrink_after",
)


@dataclass(slots=True)
class NodeSpec:
    """The offer of a worker that is a node.

    tasks: the tasks that the worker's app knows.
    room: the number of waiting seats behind the slots.
    devices: the node's devices, and the variables in which runs find theirs.
    most_slots: the slots of the flag, else no limit: the slots follow the number of processes.
    capacity: what the node can give now.
    notice: where the node learns that it leaves; None if nowhere.
    """

    name: str
    offer: Resources
    score: float
    tasks: KnownTasks | None = None
    room: int = 0
    devices: NodeDevices = field(default_factory=NodeDevices)
    most_slots: int = MAX_SLOTS
    capacity: NodeCapacity = field(default_factory=NodeCapacity)
    notice: TextSource | None = None

    @property
    def note(self) -> str:
        """The score, the capacity and the offer, as `set_node` takes them."""
        capacity = self.capacity.of(self.offer)
        words = [repr(self.score), *([f"capacity={capacity}"] if capacity else [])]
        return " ".join([*words, self.offer.text])

    def tell(self, store: Store) -> None:
        """Tell each shard of the queue what the node offers.

        A shard that is away is told later, by the reconciler.
        """
        (answer,) = store.run_each([store.commands.offer(self.name, self.offer.text, self.tasks)])
        if isinstance(answer, Exception) and not (store.several and isinstance(answer, AWAY)):
            raise answer

    def know(self, tasks: KnownTasks, queues: Iterable[str]) -> None:
        """Add to the offer the tasks of the worker's app and the queues that it consumes."""
        self.tasks = tasks
        self.offer = offer_with(self.offer, tasks, queues)

    def follow(self, processes: int | None, queues: Collection[str] | None) -> None:
        """Adapt the slots to the processes of the pool, and the labels to the queues.

        processes: None or 0 leaves the slots as they are. At 0 the node is suspect until the pool
        has a process.
        queues: None leaves the labels as they are.
        """
        slots = self.offer.slots
        labels = self.offer.labels
        if processes:
            slots = min(processes, self.most_slots)
        if queues is not None and self.tasks is not None:
            own_labels = (label for label in labels if label[0] != QUEUE_LABEL)
            labels = tuple(sorted([*own_labels, *map(queue_label, queues)]))
        if (slots, labels) != (self.offer.slots, self.offer.labels):
            self.offer = Resources.made(slots, self.offer.amounts, labels)


def pairs(flag: str, words: Iterable[str] | None, several: bool = False) -> dict[str, list[str]]:
    """Split the NAME=VALUE words of a repeatable flag or of its variable; raises InvalidInput.

    several: a name may have several values.
    """
    pairs_by_name: dict[str, list[str]] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidInput(f"{flag} {word!r} is not valid: it must be NAME=VALUE")
        if name in pairs_by_name and not several:
            raise InvalidInput(
                f"{flag} {word!r} is not valid: {name} was given before, as "
                f"{pairs_by_name[name][0]!r}"
            )
        pairs_by_name.setdefault(name, []).append(value)
    return pairs_by_name


def _values(flag: str, words: Iterable[str] | None) -> dict[str, str]:
    """Return the values of a flag's NAME=VALUE words by name; raises InvalidInput."""
    return {name: value for name, (value,) in pairs(flag, words).items()}


# Any: the values of click options, each of its own type
def node_spec(worker: WorkerFacts, flags: dict[str, Any], flag_names: dict[str, str]) -> NodeSpec:
    """Return what the worker offers by its flags; raises InvalidInput.

    flags: the options of the worker that are set.
    flag_names: for each option the flag or variable by which the user set it, for messages.
    """
    score = 1.0 if flags.get("parsync_score") is None else float(flags["parsync_score"])
    if not -1e9 < score < 1e9:
        raise InvalidInput(
            f"{flag_names['parsync_score']} {score} is not valid: it must be a number "
            "between -1e9 and 1e9"
        )
    asked_slots = flags.get("parsync_slots")
    slots = worker.concurrency if asked_slots is None else asked_slots
    _check("parsync_slots", flag_names, lambda: Resources.of(slots))
    if slots > worker.concurrency:
        slots = _slots_of(worker, flag_names["parsync_slots"], slots)
    resources = _values(flag_names.get("parsync_resource", ""), flags.get("parsync_resource"))
    labels = pairs(flag_names.get("parsync_label", ""), flags.get("parsync_label"), several=True)
    if flags.get("parsync_transient"):
        labels.setdefault(TRANSIENT_LABEL, []).append(TRANSIENT)
    _check("parsync_resource", flag_names, lambda: Resources.of(1, resources))
    _check("parsync_label", flag_names, lambda: Resources.of(1, None, labels))
    taints = _check(
        "parsync_taint", flag_names, lambda: offered_taints(flags.get("parsync_taint") or ())
    )
    devices = _devices(worker, flags, flag_names, resources)
    offer = Resources.of(
        slots, resources, labels, taints, devices.indexes, devices.resources, devices.shared
    )
    warn_of_limits(offer)
    name = flags.get("parsync_node")
    capacity = _capacity(
        flags.get("parsync_capacity"), flags.get("parsync_shrink_after"), flag_names
    )
    # what waits at a worker could not begin once the node has shrunk
    looks_ahead = worker.pool != "prefork" and capacity.source is None
    room = room_of(offer.slots, worker.concurrency) if looks_ahead else 0
    name = check_name("node name", worker.hostname if name is None else name)
    notice = None
    if flags.get("parsync_notice"):
        notice = notice_source(flag_names["parsync_notice"], flags["parsync_notice"])
    most_slots = asked_slots or MAX_SLOTS
    return NodeSpec(name, offer, score, None, room, devices, most_slots, capacity, notice)


def _capacity(
    source: str | None, shrink_after_s: float | None, flag_names: dict[str, str]
) -> NodeCapacity:
    """Return the capacity of a node by its flags; raises InvalidInput."""
    if shrink_after_s is not None:
        flag = flag_names["parsync_shrink_after"]
        if not 0 <= shrink_after_s <= MAX_SHRINK_AFTER_S:
            raise InvalidInput(
                f"{flag} {shrink_after_s:g} is not valid: it must be a number of seconds from 0 "
                f"to {MAX_SHRINK_AFTER_S:,}"
            )
        if source is None:
            raise InvalidInput(f"{flag} is of no use without --parsync-capacity")
    if source is None:
        return NodeCapacity()
    return NodeCapacity(source_of(flag_names["parsync_capacity"], source), shrink_after_s)


def _slots_of(worker: WorkerFacts, flag: str, asked_slots: int) -> int:
    """Return the slots of a node whose flag asks for too many; log a warning.

    Tasks on the other slots would wait for the pool, and count as running. Tasks of a solo pool
    wait as placed tasks, so that its node keeps all slots.
    """
    if worker.pool == "solo":
        log.warning(
            "%s %d: the solo pool runs one task at a time, and the tasks on its other slots wait",
            flag,
            asked_slots,
        )
        return asked_slots
    units = "threads" if worker.pool == "threads" else "processes"
    log.warning(
        "%s %d is more than the %d %s of the pool: the node offers %d slots; --concurrency %d "
        "would let it offer all",
        flag,
        asked_slots,
        worker.concurrency,
        units,
        worker.concurrency,
        asked_slots,
    )
    return worker.concurrency


# Any: the values of click options, each of its own type
def _devices(
    worker: WorkerFacts,
    flags: dict[str, Any],
    flag_names: dict[str, str],
    resources: dict[str, str],
) -> NodeDevices:
    """Return the devices of a worker; raises InvalidInput.

    Threads share one environment, so they can have none.
    """
    threads = worker.pool == "threads"
    devices = _declared_devices(flags, flag_names, find="gpu" not in resources)
    if threads and devices.indexes:
        if "parsync_device" in flag_names:
            raise InvalidInput(
                f"{flag_names['parsync_device']}: a node with devices cannot use the pool threads, "
                "because all threads share "
                "the variables that tell a run its devices: use prefork or solo"
            )
        log.warning(
            "the pool threads cannot have devices: this node declares none of the %d gpu that are "
            "here, and takes "
            "tasks that ask for none; use prefork or solo, or say --parsync-device none",
            len(devices.indexes["gpu"]),
        )
        devices = NodeDevices()
    if "parsync_device_resource" in flag_names:
        _check(
            "parsync_device_resource",
            flag_names,
            lambda: device_amounts(devices.indexes, devices.resources),
        )
    if "parsync_device" in flag_names:
        _check(
            "parsync_device",
            flag_names,
            lambda: Resources.of(1, resources, None, (), devices.indexes, devices.resources),
        )
    return devices


# Any: the values of click options, each of its own type
def _declared_devices(flags: dict[str, Any], flag_names: dict[str, str], find: bool) -> NodeDevices:
    """Return the devices of a node by its flags; raises InvalidInput.

    find: look for GPUs if no flag declares devices. flag_names: for each option the flag or
    variable by which the user set it, for messages.
    """
    words = list(flags.get("parsync_device") or ())
    amounts = _values(
        flag_names.get("parsync_device_resource", ""), flags.get("parsync_device_resource")
    )
    devices = NodeDevices()
    if words and words != [NO_DEVICES]:
        devices.indexes = read_indexes(flag_names["parsync_device"], words)
        devices.by_bus = CUDA_ORDER not in os.environ
    elif find and not words:
        devices = find_gpus(amounts)
    detected = bool(devices.entries)
    devices.shared = bool(flags.get("parsync_shared_devices")) and words != [NO_DEVICES]
    devices.resources |= amounts
    if "gpu" in devices.indexes:
        lists = [variable for variable in GPU_LISTS if read_device_list(variable)]
        devices.variables.setdefault("gpu", lists[0] if lists else CUDA)
    chosen = _values(
        flag_names.get("parsync_device_variable", ""), flags.get("parsync_device_variable")
    )
    for kind, variable in chosen.items():
        where = (
            f"{flag_names['parsync_device_variable']} {shown(f'{kind}={variable}')} is not valid"
        )
        if kind not in devices.indexes:
            kinds = ", ".join(sorted(devices.indexes)) or "none"
            raise InvalidInput(f"{where}: the node has no device {kind!r}; its devices are {kinds}")
        if not _VARIABLE.fullmatch(variable):
            raise InvalidInput(f"{where}: it must be KIND=VARIABLE, gpu=ROCR_VISIBLE_DEVICES")
        devices.variables[kind] = variable
    for kind, variable in devices.variables.items() if not detected else ():
        devices.entries[kind] = _run_entries(
            flag_names["parsync_device"], kind, devices.indexes[kind], variable
        )
    if devices.variables.get("gpu") in GPU_LISTS:
        check_gpus(devices, detected)
    return devices


def _run_entries(flag: str, kind: str, indexes: list[str], variable: str) -> dict[str, str]:
    """Return the entry of a run's variable for each declared index.

    The indexes name entries of the list that the worker was given. If the list lacks some of them,
    the indexes are positions in the list. Raises InvalidInput for a position behind the end of the
    list.
    """
    allowed = read_device_list(variable)
    if (
        allowed is None
        or not all(map(str.isdecimal, indexes))
        or set(indexes) <= {*allowed.entries}
    ):
        return dict(zip(indexes, indexes, strict=True))
    if any(int(index) >= len(allowed.entries) for index in indexes):
        if allowed.entries:
            right = f"name them ({', '.join(allowed.entries)}), or count them from 0"
        else:
            right = f"say --parsync-device {NO_DEVICES}, or start the worker without {variable}"
        raise InvalidInput(
            f"{flag} {kind}={','.join(indexes)} is not valid: {allowed} lets this worker use "
            f"{len(allowed.entries)} devices: {right}"
        )
    entries = {index: allowed.entries[int(index)] for index in indexes}
    if any(map(str.isdecimal, entries.values())):
        log.warning(
            "%s %s=%s does not name devices of %s, which this worker was given, so it counts them "
            "from 0: runs get %s",
            *(flag, kind, ",".join(indexes), allowed, ",".join(entries.values())),
        )
    return entries


def _check(flag: str, flag_names: dict[str, str], make: Callable[[], T]) -> T:
    """Return a part of the offer; raises InvalidInput that names its flag or variable."""
    try:
        return make()
    except InvalidInput as error:
        raise InvalidInput(
            f"{flag_names[flag]}: {error}" if flag in flag_names else str(error)
        ) from None
