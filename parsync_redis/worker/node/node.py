"""The offer of a worker that is a node, by its flags and the facts about the worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...errors import InvalidInput
from ...model.apps import KnownTasks, offer_with
from ...model.devices import device_amounts
from ...model.ids import check_name
from ...model.limits import MAX_SLOTS
from ...model.needs import QUEUE_LABEL, Resources, queue_label
from ...model.taints import offered_taints
from ...store.server.server_errors import AWAY
from ...store.store import Store
from .devices import NodeDevices, node_devices
from .look_ahead import room_of
from .process_limits import warn_of_limits
from .worker_port import WorkerFacts

log = logging.getLogger("parsync.agent")

T = TypeVar("T")

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
)


@dataclass(slots=True)
class NodeSpec:
    """The offer of a worker that is a node.

    tasks: the tasks that the worker's app knows.
    room: the number of waiting seats behind the slots.
    devices: the node's devices, and the variables in which runs find theirs.
    most_slots: the slots of the flag, else no limit: the slots follow the number of processes.
    """

    name: str
    offer: Resources
    score: float
    tasks: KnownTasks | None = None
    room: int = 0
    devices: NodeDevices = field(default_factory=NodeDevices)
    most_slots: int = MAX_SLOTS

    @property
    def note(self) -> str:
        """The score and the offer, as `set_node` takes them."""
        return f"{self.score!r} {self.offer.text}"

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
    amounts = pairs(flag_names.get("parsync_resource", ""), flags.get("parsync_resource"))
    resources = {name: amount for name, (amount,) in amounts.items()}
    labels = pairs(flag_names.get("parsync_label", ""), flags.get("parsync_label"), several=True)
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
    room = 0 if worker.pool == "prefork" else room_of(offer.slots, worker.concurrency)
    name = check_name("node name", worker.hostname if name is None else name)
    return NodeSpec(name, offer, score, None, room, devices, asked_slots or MAX_SLOTS)


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
    devices = node_devices(flags, flag_names, find="gpu" not in resources)
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


def _check(flag: str, flag_names: dict[str, str], make: Callable[[], T]) -> T:
    """Return a part of the offer; raises InvalidInput that names its flag or variable."""
    try:
        return make()
    except InvalidInput as error:
        raise InvalidInput(
            f"{flag_names[flag]}: {error}" if flag in flag_names else str(error)
        ) from None
