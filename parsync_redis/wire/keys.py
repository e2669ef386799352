"""The one place that spells keys. Keys that one script touches have the same hash tag."""

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from .. import errors
from ..model.ids import check_name, shard_of

DEFAULT_SHARDS: Final = 1
"""Shards of a new cluster's queue on one server."""

DEFAULT_SHARDS_OF_SEVERAL: Final = 16
"""Shards of a new cluster's queue on several servers: more than there will be primaries."""

_OF_QUEUE: Final = (
    "meta kinds changed later tasks messages taken running ended ended_1 ended_2 outbox dead "
    "expires shapes feasible choices choices_1 names apps accounts policy events"
)
QUEUE_KINDS = tuple(_OF_QUEUE.split())
PARTITION_KINDS = (
    "meta",
    "slots",
    "free",
    "left",
    "changed",
    "nodes",
    "alive",
    "lost",
    "notes",
    "events",
)
CLUSTER_KINDS = (
    "config",
    "schedulers",
    "leader",
    "dealt",
    "quarantine",
    "losses",
    "times",
    "bookings",
    "streaks",
    "policy",
    "shares",
    "events",
)

TYPES = {
    "meta": "hash",
    "kinds": "hash",
    "changed": "zset",
    "later": "zset",
    "taken": "hash",
    "running": "hash",
    "tasks": "hash",
    "messages": "hash",
    "ended": "hash",
    "ended_1": "hash",
    "ended_2": "hash",
    "outbox": "list",
    "dead": "zset",
    "expires": "zset",
    "shapes": "hash",
    "feasible": "hash",
    "choices": "hash",
    "choices_1": "hash",
    "names": "hash",
    "apps": "zset",
    "accounts": "hash",
    "policy": "hash",
    "holders": "zset",
    "slots": "hash",
    "free": "string",
    "left": "hash",
    "nodes": "hash",
    "alive": "hash",
    "lost": "set",
    "notes": "hash",
    "config": "hash",
    "schedulers": "hash",
    "leader": "hash",
    "dealt": "hash",
    "quarantine": "zset",
    "losses": "hash",
    "times": "hash",
    "bookings": "hash",
    "streaks": "hash",
    "shares": "hash",
    "events": "stream",
    "pending": "zset",
    "extra": "hash",
    "inbox": "list",
    "stats": "hash",
}
"""Kind of key -> its Redis type. Every script checks the types of its keys first."""

NUMBERS = {
    "meta": ("version", "epoch", "slots", "free", "inc", "submitted", "floor"),
    "leader": ("epoch",),
}
"""Kind of key -> the fields in which scripts count."""


T = TypeVar("T")

GATE = "gate"
"""The kind of a key that never exists.

On a Redis Cluster, each script sends this key last, see `gate_of`.
"""

ANY_CONFIG = "parsync:{*}:config"
"""The glob of a key that every cluster has, for a scan of the server."""


def cluster_of(config: str) -> str:
    """Return the cluster's name in a key that ANY_CONFIG matched."""
    return config.removeprefix("parsync:{").removesuffix("}:config")


def gate_of(key: str) -> str:
    """Return the key that never exists, with the hash tag of `key`.

    A script that sends this key does not run while its slot is being moved.
    """
    return key[: key.index("}") + 2] + GATE


class Keys:
    """The keys of one cluster.

    queue(kind, shard), partition(p, kind) and shared(kind) name the families. extra, pending, inbox
    and stats have a key for each id.

    The queue of tasks has `shards` parts, each with a hash tag of its own. A task is in the shard
    that its id tells, so all processes of a cluster must know the same number of shards.
    `Store.config` sets the number; until then `usual_shards` counts.

    `tick`, wakes(shard) and frees(p) name channels. A channel has the hash tag of the script that
    publishes there, so that SPUBLISH goes where the script's keys are. A channel ends in the number
    of the database, because channels belong to the whole server.
    """

    def __init__(self, cluster: str, db: int = 0, shards: int = DEFAULT_SHARDS) -> None:
        self.cluster = check_name("cluster name", cluster)
        self.db = db
        self.shards = self.usual_shards = shards
        self._shared = f"parsync:{{{cluster}}}:"
        self.tick = f"{self._shared}tick@{db}"
        self._wake = f"wake@{db}"
        self._partitions: dict[tuple[int, str], str] = {}
        self._prefixes: dict[int, str] = {}

    # -- the queue of tasks ------------------------------------------------------------------------

    def shard_of(self, id: str) -> int:
        """Return the shard of a task by its encoded id."""
        return shard_of(id, self.shards)

    def by_shard(self, items: Sequence[T], id_of: Callable[[T], str]) -> list[tuple[int, list[T]]]:
        """Return (shard, items) of each shard that has items, sorted by shard.

        The items of a shard keep their order.
        """
        items_by_shard: dict[int, list[T]] = {}
        for item in items:
            items_by_shard.setdefault(self.shard_of(id_of(item)), []).append(item)
        return sorted(items_by_shard.items())

    def prefix(self, kind: str = "", shard: int = 0) -> str:
        """Return the beginning of a shard's keys.

        kind: '' for all keys, "extra:" for keys of tasks, "pending:" for keys of kinds, "holders:"
            for keys of accounts.
        """
        prefix = self._prefixes.get(shard)
        if prefix is None:
            prefix = self._prefixes[shard] = f"parsync:{{{self.cluster}:q{shard}}}:"
        return prefix + kind

    def queue(self, kind: str, shard: int = 0) -> str:
        """Return a key of a shard of the task queue."""
        if kind not in QUEUE_KINDS:
            raise errors.BrokenContract(f"no queue key {kind}")
        return self.prefix(kind, shard)

    def queues(self, kind: str) -> list[str]:
        """Return a key of the task queue in each shard."""
        return [self.queue(kind, shard) for shard in range(self.shards)]

    def in_shard_of(self, kind: str, id: str) -> str:
        """Return a key of the task queue in the shard of a task."""
        return self.queue(kind, self.shard_of(id))

    def extra(self, id: str) -> str:
        """Return the key of a task's rare fields."""
        return self.prefix("extra:", self.shard_of(id)) + id

    def pending(self, kind: str, shard: int = 0) -> str:
        """Return the key of the tasks of a kind that wait in a shard, sorted by order."""
        return self.prefix("pending:", shard) + kind

    def holders(self, account: str, shard: int = 0) -> str:
        """Return the key of the tasks of a shard that count to an account."""
        return self.prefix("holders:", shard) + account

    def shard_in(self, key: str) -> int | None:
        """Return the number of a key's shard, None for a key that is not of the task queue."""
        match = re.match(r"parsync:\{[^{}]*:q(\d+)\}:", key)
        return int(match[1]) if match else None

    # -- partitions and the cluster ----------------------------------------------------------------

    def partition(self, number: int, kind: str) -> str:
        """Return a key of partition `number`."""
        key = self._partitions.get((number, kind))
        if key is None:
            if kind not in PARTITION_KINDS:
                raise errors.BrokenContract(f"no partition key {kind}")
            key = self._partitions[number, kind] = f"parsync:{{{self.cluster}:p{number}}}:{kind}"
        return key

    def number_of(self, key: str) -> int | None:
        """Return the number of a key's partition, None for a key of no partition."""
        match = re.match(r"parsync:\{[^{}]*:p(\d+)\}:", key)
        return int(match[1]) if match else None

    def shared(self, kind: str) -> str:
        """Return a key of the cluster as a whole."""
        if kind not in CLUSTER_KINDS:
            raise errors.BrokenContract(f"no shared key {kind}")
        return self._shared + kind

    def inbox(self, number: int, node: str) -> str:
        """Return the key of a node's doorbells, a list that its agent reads."""
        return f"parsync:{{{self.cluster}:p{number}}}:inbox:{node}"

    def stats(self, scheduler: str) -> str:
        """Return the key of a scheduler's statistics."""
        return f"{self._shared}stats:{scheduler}"

    def wrong_type(self, key: str, type: str) -> str:
        """Return what is wrong with a key of this Redis type; '' if nothing is.

        A missing key has the type "none", which is right for every key.
        """
        expected = TYPES[key.partition("}:")[2].partition(":")[0]]
        return "" if type in ("none", expected) else f"{key} is a {type}, not a {expected}"

    def pattern(self, kind: str) -> str:
        """Return the glob of all keys of a kind, for an ACL.

        kind: 'q:later' for the queue, 'p:slots' for partitions, ':config' for the cluster; '*' is
        every kind.
        """
        family, _, name = kind.partition(":")
        kinds_by_family = {
            "q": (*QUEUE_KINDS, "extra:*", "holders:*", "pending:*"),
            "p": (*PARTITION_KINDS, "inbox:*"),
            "": (*CLUSTER_KINDS, GATE, "stats:*"),
        }
        glob = {
            "extra": "extra:*",
            "holders": "holders:*",
            "pending": "pending:*",
            "inbox": "inbox:*",
            "stats": "stats:*",
        }.get(name, name)
        if glob != "*" and glob not in kinds_by_family.get(family, ()):
            raise errors.BrokenContract(f"no kind of key {kind}")
        tag = {"q": f"{self.cluster}:q*", "p": f"{self.cluster}:p*", "": self.cluster}[family]
        return f"parsync:{{{tag}}}:{glob}"

    def events(self, partitions: int) -> list[str]:
        """Return the keys of all streams of events: of cluster, shards and partitions."""
        return [
            self.shared("events"),
            *self.queues("events"),
            *(self.partition(number, "events") for number in range(partitions)),
        ]

    # -- channels ----------------------------------------------------------------------------------

    def wakes(self, shard: int = 0) -> str:
        """Return the channel that tells schedulers of new tasks, without its end :SCHEDULER."""
        return self.prefix(self._wake, shard)

    def frees(self, number: int) -> str:
        """Return the channel that tells schedulers of a freed slot, without its end :SCHEDULER."""
        return f"parsync:{{{self.cluster}:p{number}}}:freed@{self.db}"

    def hearing(self, word: str) -> str:
        """Return the glob of the channels on which schedulers hear a word, for an ACL.

        word: tick, wake or freed.
        """
        tag = {"wake": f"{self.cluster}:q*", "freed": f"{self.cluster}:p*"}.get(word)
        return f"parsync:{{{tag}}}:{word}@{self.db}:*" if tag else self.tick

    def own_channels(self, scheduler: str, partitions: int) -> dict[str, tuple[str, int]]:
        """Return the channels of one scheduler: channel -> (wake, shard) or (freed, partition)."""
        wakes = {
            f"{self.wakes(shard)}:{scheduler}": ("wake", shard) for shard in range(self.shards)
        }
        return wakes | {f"{self.frees(p)}:{scheduler}": ("freed", p) for p in range(partitions)}
