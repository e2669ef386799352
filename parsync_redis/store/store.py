"""The state of one cluster on one server: run calls, repair damage that they meet, and read records."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ..errors import AccessDenied
from ..model.ids import readable
from ..model.limits import MAX_BATCH
from ..model.node import Lease, Node, read_nodes
from ..model.record import Record
from ..model.status import TaskStatus
from ..model.task import TaskState
from .calls import Call
from .losses import read_losses
from .repair import find_told, repair_keys
from .runner import Runner
from .server_info import check_info

_REPAIRS: Final = ("repair_partition", "discard")


class Store(Runner):
    """The state of one cluster on one server. Calls come from `store.commands`."""

    def _repair(self, call: Call[Any], told: str) -> bool:
        """Repair the keys of a call that met damage; False if it is a repair itself or this login may not repair."""
        try:
            return call.script.verb not in _REPAIRS and repair_keys(
                self, [*call.keys, *call.unsent, *find_told(self.keys, told)]
            )
        except AccessDenied:
            return False

    # -- records -----------------------------------------------------------------------------------------------------

    def config(self) -> dict[str, str]:
        """Return the cluster's settings; {} before its first scheduler."""
        return self.hash(self.keys.shared("config"))

    def records(self, ids: Iterable[str], extras: bool = True) -> list[Record]:
        """Return the record of each task, in order; one round trip."""
        names = list(ids)
        calls = [self.commands.read_tasks(names[at : at + MAX_BATCH], extras) for at in range(0, len(names), MAX_BATCH)]
        return [record for some in self.run_all(calls) for record in some]

    def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """Return the status of each task, in order; one round trip, and one more if any is gone.

        The reason of a task that waits is that of its kind, else of its own last setback.
        """
        found = [TaskStatus.of(record) for record in self.records(ids)]
        gone = any(task.state is TaskState.GONE for task in found)
        return self._explain_gone(found) if gone else found

    def _explain_gone(self, found: list[TaskStatus]) -> list[TaskStatus]:
        """Return the same; tasks that are gone say so if the server is known to have lost writes."""
        losses = read_losses(self)
        if not losses:
            return found
        why = f"it was never submitted, its record has expired, or the server lost it: {losses[0].text}"
        return [replace(task, why=why) if task.state is TaskState.GONE and not task.why else task for task in found]

    def states(self, ids: Sequence[str]) -> list[str]:
        """Return the state of each task as text, '' for a task without a record; one round trip."""
        return ["" if record.state == TaskState.GONE else record.state for record in self.records(ids, extras=False)]

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
