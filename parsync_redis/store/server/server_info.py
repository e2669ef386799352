"""Judge a server by its INFO: whether parsync can use it, and what its crash would cost."""

from collections.abc import Mapping
from typing import Any, Final

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
            "tasks; "
            "set it to noeviction: redis-cli CONFIG SET maxmemory-policy noeviction"
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
