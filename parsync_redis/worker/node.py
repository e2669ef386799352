"""A worker's offer as a node, by its flags or variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from celery.concurrency.solo import TaskPool as SoloPool
from celery.concurrency.thread import TaskPool as ThreadPool

from ..errors import InvalidInput
from ..model.apps import KnownTasks, offer_with
from ..model.ids import check_name
from ..model.needs import Resources
from ..model.taints import offered_taints
from ..store.server_errors import AWAY
from ..store.store import Store
from .celery_types import Worker
from .look_ahead import room_of

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
)


@dataclass(slots=True)
class NodeSpec:
    """The offer of a worker that is a node. room: the waiting seats that it has behind its slots."""

    name: str
    offer: Resources
    score: float
    tasks: KnownTasks | None = None
    room: int = 0

    def tell(self, store: Store) -> None:
        """Tell each shard of the queue what the node offers. The reconciler tells one that is away now."""
        (answer,) = store.run_each([store.commands.offer(self.name, self.offer.text, self.tasks)])
        if isinstance(answer, Exception) and not (store.several and isinstance(answer, AWAY)):
            raise answer

    def know(self, tasks: KnownTasks, queues: Iterable[str]) -> None:
        """Add to the offer the tasks of the worker's app and the queues that it consumes."""
        self.tasks, self.offer = tasks, offer_with(self.offer, tasks, queues)


def pairs(flag: str, words: Iterable[str] | None, several: bool = False) -> dict[str, list[str]]:
    """Split the NAME=VALUE words of a repeatable flag or of its variable; raises InvalidInput.

    several: a name may have several values.
    """
    found: dict[str, list[str]] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidInput(f"{flag} {word!r} is not valid: it must be NAME=VALUE")
        if name in found and not several:
            raise InvalidInput(f"{flag} {word!r} is not valid: {name} was given before, as {found[name][0]!r}")
        found.setdefault(name, []).append(value)
    return found


# Any: the values of click options, each of its own type
def node_spec(worker: Worker, flags: dict[str, Any], said: dict[str, str]) -> NodeSpec:
    """Return what the worker offers by its flags; raises InvalidInput.

    said: the flag or variable by which the user gave each, for messages.
    """
    score = 1.0 if flags.get("parsync_score") is None else float(flags["parsync_score"])
    if not -1e9 < score < 1e9:
        raise InvalidInput(f"{said['parsync_score']} {score} is not valid: it must be a number between -1e9 and 1e9")
    concurrency = 1 if issubclass(worker.pool_cls, SoloPool) else worker.max_concurrency or worker.concurrency
    slots = concurrency if flags.get("parsync_slots") is None else flags["parsync_slots"]
    amounts = pairs(said.get("parsync_resource", ""), flags.get("parsync_resource"))
    resources = {name: amount for name, (amount,) in amounts.items()}
    labels = pairs(said.get("parsync_label", ""), flags.get("parsync_label"), several=True)
    _check("parsync_slots", said, lambda: Resources.of(slots))
    _check("parsync_resource", said, lambda: Resources.of(1, resources))
    _check("parsync_label", said, lambda: Resources.of(1, None, labels))
    taints = _check("parsync_taint", said, lambda: offered_taints(flags.get("parsync_taint") or ()))
    offer = Resources.of(slots, resources, labels, taints)
    name = flags.get("parsync_node")
    room = room_of(offer.slots, concurrency) if issubclass(worker.pool_cls, (SoloPool, ThreadPool)) else 0
    return NodeSpec(check_name("node name", worker.hostname if name is None else name), offer, score, room=room)


def _check(flag: str, said: dict[str, str], make: Callable[[], T]) -> T:
    """Make a part of the offer; raises InvalidInput that names the flag or variable it came by."""
    try:
        return make()
    except InvalidInput as error:
        raise InvalidInput(f"{said[flag]}: {error}" if flag in said else str(error)) from None
