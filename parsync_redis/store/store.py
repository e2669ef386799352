"""The state of one cluster: run calls, repair the damage that calls meet, and read records."""

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
from .repair.repair import find_named_key, repair_keys
from .runner import Runner
from .scripts.calls import Call
from .server.primaries import away
from .server.redis_cluster import ClusterClient
from .server.server_errors import translate
from .server.server_info import ServerRun, check_info

log = logging.getLogger("parsync.store")

_LOSSES_SHOWN: Final = 3
_REPAIRS: Final = ("repair_partition", "discard")


class Store(Runner):
    """The state of one cluster, on one server or several. `store.commands` makes its calls."""

    def _repair(self, call: Call[Any], message: str) -> bool:
        """Repair the keys of a call that met damage; return True if a key was repaired.

        Returns False for a call that is a repair itself, and for a login that may not repair.
        message: the server's error reply.
        """
        try:
            return call.script.verb not in _REPAIRS and repair_keys(
                self, [*call.keys, *call.unsent, *find_named_key(self.keys, message)]
            )
        except AccessDenied:
            return False

    # -- records -----------------------------------------------------------------------------------

    def config(self) -> dict[str, str]:
        """Return the cluster's settings, and adopt its number of shards.

        Returns {} before the first scheduler.
        """
        settings = self.hash(self.keys.shared("config"))
        shards = settings.get("shards", "")
        if re.fullmatch("[1-9][0-9]{0,2}", shards):
            self.keys.shards = int(shards)
        return settings

    def read_any(self, command: str, kind: str, *args: Any) -> Any:
        """Read a key of the queue that is equal in all shards, from any server that answers.

        Raises ServerUnreachable if no server answers.
        """
        homes = {self.place_of(key): key for key in reversed(self.keys.queues(kind))}
        for key in reversed(homes.values()):
            try:
                return self.read(command, key, *args)
            except ServerUnreachable as error:
                trouble = error
        raise trouble

    def pipe_live(
        self, group_name: str, groups: Mapping[int, Sequence[tuple[Any, ...]]]
    ) -> dict[int, list[Any]]:
        """Run groups of plain commands, each group on one server; return the replies by group.

        groups: number -> commands. A group whose server is away is left out, and the log names it
        by `group_name` ('partition') and number. Raises what `pipe` raises, also if no server
        answers.
        """
        replies = iter(self.pipe_each([command for group in groups.values() for command in group]))
        live: dict[int, list[Any]] = {}
        unreachable: dict[int, ServerUnreachable] = {}
        for number, group in groups.items():
            answers = [next(replies) for _ in group]
            error = next((reply for reply in answers if isinstance(reply, Exception)), None)
            if isinstance(error, ServerUnreachable):
                unreachable[number] = error
            elif error is not None:
                raise translate(self.address, error)
            else:
                live[number] = answers
        for number, error in unreachable.items():
            if not live:
                raise error
            log.warning("%s %d is left out: %s", group_name, number, error)
        return live

    def records(self, ids: Iterable[str], extras: bool = True) -> list[Record]:
        """Return the record of each task, in order; one round trip.

        extras: read the rare fields as well.
        """
        names = list(ids)
        calls = [
            self.commands.read_tasks(names[start : start + MAX_BATCH], extras)
            for start in range(0, len(names), MAX_BATCH)
        ]
        return [record for batch in self.run_all(calls) for record in batch]

    def statuses(self, ids: Iterable[str]) -> list[TaskStatus]:
        """Return the status of each task, in order.

        Takes one round trip, and another if a task is gone. A waiting task has the reason of its
        kind, or without that the reason of its last setback.
        """
        statuses = [TaskStatus.of(record) for record in self.records(ids)]
        any_gone = any(task.state is TaskState.GONE for task in statuses)
        return self._explain_gone(statuses) if any_gone else statuses

    def _explain_gone(self, statuses: list[TaskStatus]) -> list[TaskStatus]:
        """Return the statuses; a task that is gone gets the server's known losses as its reason."""
        losses = read_losses(self)
        if not losses:
            return statuses
        lost = "; ".join(loss.text for loss in losses[:_LOSSES_SHOWN])
        why = f"it was never submitted, its record has expired, or the server lost it: {lost}"
        return [
            replace(task, why=why) if task.state is TaskState.GONE and not task.why else task
            for task in statuses
        ]

    def states(self, ids: Sequence[str]) -> list[str]:
        """Return the stored state of each task as text, '' for a task without a record.

        Costs one round trip.
        """
        return [
            "" if record.state == StoredState.GONE else record.state
            for record in self.records(ids, extras=False)
        ]

    def nodes(self, partition: int) -> dict[str, Node]:
        """Return the nodes of a partition by name; leave out records that cannot be read."""
        return read_nodes(self.read("hgetall", self.keys.partition(partition, "nodes")))[0]

    def leases(
        self, partition: int, nodes: Iterable[Node], damaged: list[str] | None = None
    ) -> list[Lease]:
        """Return the leases of these nodes; read only the fields of their slots.

        damaged: the list to which the names of fields are added whose lease cannot be read, or
        contradicts the other leases of its place.
        """
        leases: list[Lease] = []
        damaged = [] if damaged is None else damaged
        named = [
            [f"{node.name}/{slot}" for slot in range(node.span)] for node in nodes if node.span
        ]
        # One call reads all slots of a node (MAX_SLOTS at most) at the same moment.
        replies = self.pipe(
            [("hmget", self.keys.partition(partition, "slots"), fields) for fields in named]
        )
        for fields, values in zip(named, replies, strict=True):
            before = len(leases)
            name = fields[0].rpartition("/")[0]
            for slot, value in enumerate(values):
                if value is None:
                    continue
                try:
                    leases.append(Lease.of(name, slot, readable(value)))
                except ValueError:
                    damaged.append(fields[slot])
            places = {lease.slot: lease.place for lease in leases[before:]}
            for slot, place in places.items():
                if place.partition != partition or any(
                    places.get(position) != place for position in place.slots
                ):
                    damaged.append(fields[slot])
        return leases

    # -- the servers -------------------------------------------------------------------------------

    def run_id(self) -> str:
        """Return the run id of the server; on several servers, of the server that has `config`."""
        key = self.keys.shared("config")
        return self.server_runs([key])[key].id

    def server_runs(self, keys: Sequence[str]) -> dict[str, ServerRun]:
        """Return the run of each key's server; its id is '' while that server is away.

        The run changes after a restart, after a failover, and when the key's slot has moved. Costs
        one round trip.
        """
        if isinstance(self.client, ClusterClient):
            return self.client.server_runs(keys)
        return dict.fromkeys(keys, ServerRun.of(self.read("info", *ServerRun.SECTIONS)))

    def check_server(self) -> dict[str, Any]:
        """Return INFO of a server that parsync can use.

        Raises ServerUnfit, which says what is wrong and how to mend it.
        """
        return next(iter(self.check_servers().values()))

    def check_servers(self) -> dict[str, dict[str, Any]]:
        """Return INFO of each server that answers, by address, if parsync can use all of them.

        Raises ServerUnfit, which says what is wrong and how to mend it, and ServerUnreachable if no
        server answers.
        """
        infos: dict[str, dict[str, Any]] = {}
        trouble: Exception | None = None
        for address, server in self.servers().items():
            try:
                info = (server or _away(address)).read("info", "everything")
                infos[address] = check_info(address, info, self.several)
            except ServerUnreachable as error:
                trouble = error
        if trouble and not infos:
            raise trouble
        return infos


def _away(address: str) -> Reader:
    raise away(address)
