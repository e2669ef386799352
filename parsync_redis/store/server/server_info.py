"""Reads a server's INFO: its fitness for parsync, the cost of a crash, and the server's run.

Two runs of a server are told apart, and a replica from the server that it replaces.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from ...errors import ServerUnfit

OLDEST_REDIS: Final = (7, 0)
OLDEST_VALKEY: Final = (7, 2)

LIST_SETTINGS: Final = {"zset-max-listpack-entries": 8, "hash-max-listpack-entries": 32}
"""Sizes up to which a server searches sorted sets and hashes from the beginning.

With the server's defaults, parsync is 5 % slower.
"""


def check_info(address: str, info: Mapping[str, Any], in_cluster: bool = False) -> dict[str, Any]:
    """Return INFO with the server's `name` and `version` added.

    in_cluster: the address of the server says that it belongs to a Redis Cluster. Raises
    ServerUnfit, which says what is wrong and how to mend it.
    """
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    version = str(info.get("valkey_version" if name == "Valkey" else "redis_version", "0"))
    oldest = OLDEST_VALKEY if name == "Valkey" else OLDEST_REDIS
    if tuple(int(n) for n in version.split(".")[:2]) < oldest:
        raise ServerUnfit(
            f"the server at {address} is {name} {version}; parsync needs Redis 7.0 or Valkey 7.2, "
            "or newer"
        )
    if int(info.get("cluster_enabled", 0)) and not in_cluster:
        raise ServerUnfit(
            f"the server at {address} is of a cluster: write its address as "
            f"redis+cluster://{address}"
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        raise ServerUnfit(
            f"the server at {address} evicts keys (maxmemory-policy {policy}), which would lose "
            "tasks; set it to noeviction: redis-cli CONFIG SET maxmemory-policy noeviction"
        )
    return {**info, "name": name, "version": version}


def explain_durability(info: Mapping[str, Any]) -> str:
    """Return what a crash of a server would lose, by its INFO; '' if its append-only file is on."""
    if int(info.get("aof_enabled", 0)):
        return ""
    return (
        "its append-only file is off: a crash loses all since its last snapshot; redis-cli CONFIG "
        "SET appendonly yes"
    )


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A run of a server, as its INFO tells it.

    id: its run id, '' while the server is away.
    history: the id of the server's replication stream.
    before: the id of the stream of the server whose place this server has taken, up to the offset
        `since`.
    up_s: whole seconds since the server's process began.
    at_s: when INFO was read, in monotonic seconds.
    """

    SECTIONS: ClassVar = ("server", "replication")
    """The sections of INFO that `of` reads."""

    id: str = ""
    history: str = ""
    before: str = ""
    since: int = 0
    up_s: int = 0
    at_s: float = field(default_factory=time.monotonic, compare=False)

    @classmethod
    def of(cls, info: Mapping[str, object]) -> ServerRun:
        """Return the run that these sections of INFO describe; missing fields are empty."""
        return cls(
            str(info.get("run_id", "")),
            str(info.get("master_replid", "")),
            str(info.get("master_replid2", "")),
            int(str(info.get("second_repl_offset", 0))),
            int(str(info.get("uptime_in_seconds", 0))),
        )

    def took_over_from(self, earlier: ServerRun) -> bool:
        """Return True if this server was a replica of `earlier`'s server and has taken its place.

        The last writes of the earlier server may be lost then. A server that restarts goes on with
        its own stream too, but its process began after `earlier` was read.
        """
        is_replica = bool(earlier.history) and self.before == earlier.history
        return self.id != earlier.id and is_replica and self.up_s > self.at_s - earlier.at_s
