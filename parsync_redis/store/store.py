"""The state of one cluster on one server: run calls, repair damage that they meet, and read records."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ..errors import AccessDenied
from ..model.ids import readable
from ..model.kind import read_why
from ..model.node import Lease, Node, read_nodes
from ..model.status import FIELDS, TaskStatus
from ..model.task import TaskState
from .calls import Call
from .losses import read_losses
from .repair import find_queues, repair_keys
from .runner import Runner
from .server_info import check_info

_REPAIRS: Final = ("repair_partition", "discard")


class Store(Runner):
    """The state of one cluster on one server. Calls come from `store.commands`."""

    def _repair(self, call: Call[Any], told: str) -> bool:
        """Repair the keys of a call that met damage; False if it is a repair itself or this login may not repair."""
        try:
            return call.script.verb not in _REPAIRS and repair_keys(self, [*call.keys, *find_queues(self.keys, told)])
        except AccessDenied:
            return False

    # -- records -----------------------------------------------------------------------------------------------------

    def config(self) -> dict[str, str]:
        """Return the cluster's settings; {} before its first scheduler."""
        return self.hash(self.keys.shared("config"))

    def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """Return what is known of each task, in order; one round trip, and one more if any is pending.

        A task that waits has the reason of its kind, else of its own last setback.
        """
        names = list(ids)
        rows = self.pipe([("hmget", self.keys.task(id), FIELDS) for id in names])
        found = [
            TaskStatus.of(id, {f: readable(v) for f, v in zip(FIELDS, row, strict=True) if v is not None})
            for id, row in zip(names, rows, strict=True)
        ]
        states = {task.state for task in found}
        found = self._explain_pending(found) if TaskState.PENDING in states else found
        return self._explain_gone(found) if TaskState.GONE in states else found

    def _explain_pending(self, found: list[TaskStatus]) -> list[TaskStatus]:
        """Return the same; those of which a scheduler wrote why their kind waits say so, unless they are not due."""
        kinds = list(dict.fromkeys(task.kind for task in found if task.state is TaskState.PENDING))
        lines, (seconds, _) = self.pipe([("hmget", self.keys.queue("kinds"), kinds), ("time",)])
        whys = {kind: why for kind, line in zip(kinds, lines, strict=True) if (why := read_why(readable(line or b"")))}
        return [
            replace(task, why=whys[task.kind])
            if task.state is TaskState.PENDING
            and task.kind in whys
            and (task.times["ready"] or 0) < (int(seconds) + 1) * 1000
            else task
            for task in found
        ]

    def _explain_gone(self, found: list[TaskStatus]) -> list[TaskStatus]:
        """Return the same; tasks that are gone say so if the server is known to have lost writes."""
        losses = read_losses(self)
        if not losses:
            return found
        why = f"it was never submitted, its record has expired, or the server lost it: {losses[0].text}"
        return [replace(task, why=why) if task.state is TaskState.GONE and not task.why else task for task in found]

    def states(self, ids: Sequence[str]) -> list[str]:
        """Return the state of each task as text, '' where nothing is known; one round trip."""
        return [readable(state or b"") for state in self.pipe([("hget", self.keys.task(id), "state") for id in ids])]

    def nodes(self, partition: int) -> dict[str, Node]:
        """Return the nodes of a partition by name; records that cannot be read are left out."""
        return read_nodes(self.read("hgetall", self.keys.partition(partition, "nodes")))[0]

    def leases(self, partition: int, nodes: Iterable[Node], damaged: list[str] | None = None) -> list[Lease]:
        """Return the leases of these nodes; reads only their slots' fields.

        damaged: takes the fields whose lease cannot be read, or where a lease and its lead do not agree.
        """
        found: list[Lease] = []
        damaged = [] if damaged is None else damaged
        for node in nodes:
            before = len(found)
            fields = [f"{node.name}/{slot}" for slot in range(node.span)]  # MAX_SLOTS at most, read at one moment
            values = self.read("hmget", self.keys.partition(partition, "slots"), fields) if fields else []
            for slot, value in enumerate(values):
                try:
                    found += [Lease.of(node.name, slot, readable(value))] if value is not None else []
                except ValueError:
                    damaged.append(fields[slot])
            places = {lease.slot: lease.place for lease in found[before:]}
            for slot, place in places.items():
                if place.partition != partition or any(places.get(other) != place for other in place.slots):
                    damaged.append(fields[slot])
        return found

    # -- the server --------------------------------------------------------------------------------------------------

    def run_id(self) -> str:
        """Return what tells this run of this server from every other; '' if it does not tell."""
        return str(self.read("info", "server").get("run_id", ""))

    def check_server(self) -> dict[str, Any]:
        """Return INFO of a server that parsync can use; raises ServerUnfit that says what is wrong and the fix."""
        return check_info(self.address, self.read("info", "everything"))
