"""The one place that spells keys. A family of keys that scripts touch together has one hash tag."""

import re

from .. import errors
from ..model.ids import check_name

QUEUE_KINDS = (
    "meta",
    "kinds",
    "changed",
    "later",
    "tasks",
    "messages",
    "taken",
    "running",
    "ended",
    "ended_1",
    "ended_2",
    "outbox",
    "dead",
    "expires",
    "shapes",
    "feasible",
    "names",
    "apps",
)
PARTITION_KINDS = ("meta", "slots", "free", "left", "nodes", "alive", "lost", "notes")
CLUSTER_KINDS = ("config", "schedulers", "leader", "dealt", "quarantine", "losses")

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
    "names": "hash",
    "apps": "zset",
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
    "pending": "zset",
    "extra": "hash",
    "inbox": "list",
    "stats": "hash",
}
"""Kind of key -> its Redis type; every script checks the types of its keys first."""

NUMBERS = {"meta": ("version", "epoch", "slots", "free", "inc", "submitted", "floor"), "leader": ("epoch",)}
"""Kind of key -> the fields that scripts count in."""


ANY_CONFIG = "parsync:{*}:config"
"""The glob of a key that every cluster has, for a scan of the server."""


def cluster_of(config: str) -> str:
    """Return the cluster's name of a key that ANY_CONFIG found."""
    return config.removeprefix("parsync:{").removesuffix("}:config")


class Keys:
    """The keys of one cluster.

    queue(kind), partition(p, kind), shared(kind) name the families; extra, pending, inbox, stats have one key an id;
    `tick` is the channel on which schedulers hear ticks: it names the database, for channels are the whole server's.
    """

    def __init__(self, cluster: str, db: int = 0) -> None:
        self.cluster, self.db = check_name("cluster name", cluster), db
        self._queue = f"parsync:{{{cluster}:q0}}:"
        self._shared = f"parsync:{{{cluster}}}:"
        self.tick = f"{self._shared}tick@{db}"
        self.extra_prefix = f"{self._queue}extra:"
        self.pending_prefix = f"{self._queue}pending:"
        self._partitions: dict[tuple[int, str], str] = {}

    def queue(self, kind: str) -> str:
        """Return a key of the task queue."""
        if kind not in QUEUE_KINDS:
            raise errors.BrokenContract(f"no queue key {kind}")
        return self._queue + kind

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

    def extra(self, id: str) -> str:
        """Return the key of a task's rare fields."""
        return self.extra_prefix + id

    def pending(self, kind: str) -> str:
        """Return the key of the tasks of a kind that wait, by their order."""
        return self.pending_prefix + kind

    def inbox(self, number: int, node: str) -> str:
        """Return the key of a node's doorbells, a list that its agent reads."""
        return f"parsync:{{{self.cluster}:p{number}}}:inbox:{node}"

    def pattern(self, kind: str) -> str:
        """Return the glob of all keys of a kind, for an ACL: 'q0:later', 'p:slots', ':config'; '*' is every kind."""
        family, _, name = kind.partition(":")
        of = {
            "q0": (*QUEUE_KINDS, "extra:*", "pending:*"),
            "p": (*PARTITION_KINDS, "inbox:*"),
            "": (*CLUSTER_KINDS, "stats:*"),
        }
        wanted = {"extra": "extra:*", "pending": "pending:*", "inbox": "inbox:*", "stats": "stats:*"}.get(name, name)
        if wanted != "*" and wanted not in of.get(family, ()):
            raise errors.BrokenContract(f"no kind of key {kind}")
        tag = {"q0": f"{self.cluster}:q0", "p": f"{self.cluster}:p*", "": self.cluster}[family]
        return f"parsync:{{{tag}}}:{wanted}"

    def own_channel(self, scheduler: str) -> str:
        """Return the channel that tells one scheduler of a freed slot where it waits, or of new tasks."""
        return f"{self.tick}:{scheduler}"

    def stats(self, scheduler: str) -> str:
        """Return the key of a scheduler's statistics."""
        return f"{self._shared}stats:{scheduler}"
