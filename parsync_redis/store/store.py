"""The state of one cluster: run calls, repair damage that they meet, and read records."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..errors import AccessDenied, ServerUnreachable
from ..model.ids import readable
from ..model.limits import MAX_BATCH
from ..model.node import Lease, Node, read_nodes
from ..model.record import Record
from ..model.status import TaskStatus
from ..model.task import StoredState, TaskState
from .reader import Reader
from .repair.losses import read_losses
from .repair.repair import find_told, repair_keys
from .runner import Runner
from .scripts.calls import Call
from .server.primaries import away
from .server.redis_cluster import ClusterClient
from .server.server_errors import translate
from .server.server_info import check_info
from .server.server_run import ServerRun

log = logging.getLogger("parsync.store")

_LOSSES_SHOWN: Final = 3
_REPAIRS: Final = ("repair_partition", "discard")


class Store(Runner):
    """The state of one cluster, on one server or several. Calls come from `store.commands`."""

    def _repair(self, call: Call[Any], told: str) -> bool:
        """Repair the keys of a call that met damage; False if it is a repair itself or this login
        may not repair.
        """
        try:
            return call.script.verb not in _REPAIRS and repair_keys(
                self, [*call.keys, *call.unsent, *find_told(self.keys, told)]
            )
        except AccessDenied:
            return False

    # -- records -----------------------------------------------------------------------------------

    def config(self) -> dict[str, str]:
        """Return the cluster's settings, and go by its number of shards; {} before its first
        scheduler.
        """
        found = self.hash(self.keys.shared("config"))
        shards = found.get("shards", "")
        self.keys.shards = (
            int(shards) if re.fullmatch("[1-9][0-9]{0,2}", shards) else self.keys.shards
        )
        return found

    def read_any(self, command: str, kind: str, *args: Any) -> Any:
        """Read a key of the queue that all shards have alike; from another server if
        one is away.
        """
        homes = {self.place_of(key): key for key in reversed(self.keys.queues(kind))}
        for key in reversed(homes.values()):
            try:
                return self.read(command, key, *args)
            except ServerUnreachable as error:
                trouble = error
        raise trouble

    def pipe_live(
        self, what: str, groups: Mapping[int, Sequence[tuple[Any, ...]]]
    ) -> dict[int, list[Any]]:
        """Run plain commands by groups, each of one server; return the replies of those whose
        server answers.

        The log names the others: what 'partition', number 3. Raises what `pipe` raises, also if
        none answers.
        """
        replies = iter(self.pipe_each([command for group in groups.values() for command in group]))
        found: dict[int, list[Any]] = {}
        trouble: dict[int, ServerUnreachable] = {}
        for number, group in groups.items():
            mine = [next(replies) for _ in group]
            error = next((reply for reply in mine if isinstance(reply, Exception)), None)
            if isinstance(error, ServerUnreachable):
                trouble[number] = error
            elif error is not None:
                raise translate(self.address, error)
            else:
                found[number] = mine
        for number, unreachable in trouble.items():
            if not found:
                raise unreachable
            log.warning("%s %d is left out: %s", what, number, unreachable)
        return found

    def records(self, ids: Iterable[str], extras: bool = True) -> list[Record]:
        """Return the record of each task, in order; one round trip."""
        names = list(ids)
        calls = [
            self.commands.read_tasks(names[at : at + MAX_BATCH], extras)
            for at in range(0, len(names), MAX_BATCH)
        ]
        return [record for some in self.run_all(calls) for record in some]

    def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """Return the status of each task, in order; one round trip, and one more if any is gone.

        The reason of a task that waits is that of its kind, else of its own last setback.
        """
        found = [TaskStatus.of(record) for record in self.records(ids)]
        gone = any(task.state is TaskState.GONE for task in found)
        return self._explain_gone(found) if gone else found

    def _explain_gone(self, found: list[TaskStatus]) -> list[TaskStatus]:
        """Return the same; tasks that are gone say so if the server is known to have
        lost writes.
        """
        losses = read_losses(self)
        if not losses:
            return found
        lost = "; ".join(loss.text for loss in losses[:_LOSSES_SHOWN])
        why = f"it was never submitted, its record has expired, or the server lost it: {lost}"
        return [
            replace(task, why=why) if task.state is TaskState.GONE and not task.why else task
            for task in found
        ]

    def states(self, ids: Sequence[str]) -> list[str]:
        """Return the stored state of each task as text, '' for a task without a record; one round
        trip.
        """
        return [
            "" if record.state == StoredState.GONE else record.state
            for record in self.records(ids, extras=False)
        ]

    def nodes(self, partition: int) -> dict[str, Node]:
        """Return the nodes of a partition by name; records that cannot be read are left out."""
        return read_nodes(self.read("hgetall", self.keys.partition(partition, "nodes")))[0]

    def leases(
        self, partition: int, nodes: Iterable[Node], damaged: list[str] | None = None
    ) -> list[Lease]:
        """Return the leases of these nodes; reads only their slots' fields.

        damaged: takes the fields whose lease cannot be read, or where a lease and its lead do not
        agree.
        """
        found: list[Lease] = []
        damaged = [] if damaged is None else damaged
        named = [
            [f"{node.name}/{slot}" for slot in range(node.span)] for node in nodes if node.span
        ]
        # MAX_SLOTS of a node at most, read at one moment
        replies = self.pipe(
            [("hmget", self.keys.partition(partition, "slots"), fields) for fields in named]
        )
        for fields, values in zip(named, replies, strict=True):
            before = len(found)
            name = fields[0].rpartition("/")[0]
            for slot, value in enumerate(values):
                try:
                    found += [Lease.of(name, slot, readable(value))] if value is not None else []
                except ValueError:
                    damaged.append(fields[slot])
            places = {lease.slot: lease.place for lease in found[before:]}
            for slot, place in places.items():
                if place.partition != partition or any(
                    places.get(other) != place for other in place.slots
                ):
                    damaged.append(fields[slot])
        return found

    # -- the servers -------------------------------------------------------------------------------

    def run_id(self) -> str:
        """Return what tells this run of the server from every other; of several, the one that has
        `config`.
        """
        key = self.keys.shared("config")
        return self.server_runs([key])[key].id

    def server_runs(self, keys: Sequence[str]) -> dict[str, ServerRun]:
        """Return for each key what tells this run of its server from every other; its id is ''
        while that is away.

        It is another one after a restart, after a failover, and when the key's slot has moved. One
        round trip.
        """
        if isinstance(self.client, ClusterClient):
            return self.client.server_runs(keys)
        return dict.fromkeys(keys, ServerRun.of(self.read("info", *ServerRun.SECTIONS)))

    def check_server(self) -> dict[str, Any]:
        """Return INFO of a server that parsync can use; raises ServerUnfit that says what is wrong
        and the fix.
        """
        return next(iter(self.check_servers().values()))

    def check_servers(self) -> dict[str, dict[str, Any]]:
        """Return INFO of each server that answers, by its address, if parsync can use all of them.

        Raises ServerUnfit that says what is wrong and the fix, and ServerUnreachable if none
        answers.
        """
        found: dict[str, dict[str, Any]] = {}
        trouble: Exception | None = None
        for address, server in self.servers().items():
            try:
                info = (server or _away(address)).read("info", "everything")
                found[address] = check_info(address, info, self.several)
            except ServerUnreachable as error:
                trouble = error
        if trouble and not found:
            raise trouble
        return found


def _away(address: str) -> Reader:
    raise away(address)
