"""Tables of rights: role, kind of key, commands. Tests hold these tables to the text of the scripts."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """The parts that a login can have."""

    CLIENT = "client"
    SCHEDULER = "scheduler"
    WORKER = "worker"
    VIEWER = "viewer"


Kinds = Mapping[str, str]
"""Kind of key -> commands on it."""

CONNECT: Final = "ping select info"
"""Commands of every connection: redis-py and kombu ping and select, the check of the server reads INFO."""

VIEW: Final[Kinds] = {
    ":config": "hgetall",
    ":leader": "hgetall",
    ":losses": "hgetall",
    ":schedulers": "hgetall",
    ":stats": "hgetall pttl",
    "p:alive": "hgetall",
    "p:free": "get",
    "p:left": "hgetall",
    "p:meta": "hmget",
    "p:nodes": "hgetall",
    "p:notes": "hgetall",
    "p:slots": "hmget",
    "q0:kinds": "hgetall hmget",
    "q0:task": "hget hmget",
}
"""Reads of schedulers, nodes, partitions, kinds, and tasks whose ids are known: part of every role."""

VIEWER: Final[Kinds] = {
    ":quarantine": "zcard zrevrange",
    "q0:dead": "zcard zrange",
    "q0:later": "zcard zrange",
    "q0:apps": "zrevrange",
    "q0:names": "hmget",
    "q0:pending": "zcard zrange",
    "q0:placed": "hlen hscan",
    "q0:shapes": "hgetall",
    "q0:taken": "hlen hscan",
}

AUDIT: Final[Kinds] = {
    "p:alive": "hscan ttl",
    "p:free": "ttl",
    "p:inbox": "ttl",
    "p:left": "hscan ttl",
    "p:lost": "sscan ttl",
    "p:meta": "hscan ttl",
    "p:nodes": "hscan ttl",
    "p:notes": "hscan ttl",
    "p:slots": "hscan ttl",
    "q0:*": "ttl",
    ":*": "ttl",
    "q0:dead": "zscan",
    "q0:meta": "hmget",
    "q0:kinds": "hscan",
    "q0:changed": "zscan",
    "q0:later": "zscan",
    "q0:pending": "zscan",
}

CLIENT: Final[Kinds] = {
    "q0:expires": "zadd",
    "q0:feasible": "del hexists hlen hset",
    "q0:later": "zadd zrem",
    "q0:meta": "hdel hmget hset",
    "q0:names": "hget hmget",
    "q0:changed": "zadd zcard zrangebyscore zrem",
    "q0:kinds": "hdel hlen hset",
    "q0:pending": "zadd zcard zcount zrem",
    "q0:apps": "zrevrange",
    "q0:dead": "zrem",
    "q0:placed": "hdel",
    "q0:shapes": "hgetall hvals",
    "q0:taken": "hdel",
    "q0:task": "del expire hdel hset",
    "q0:outbox": "lpush lrem ltrim",
}

WORKER: Final[Kinds] = {
    ":dealt": "hdel hget hincrby hincrbyfloat hmget hset",
    ":quarantine": "del zadd zcard zremrangebyrank",
    "p:alive": "del hdel hget hgetall hset",
    "p:free": "bitfield del getbit setbit",
    "p:inbox": "blmpop del llen lpush",
    "p:left": "del hdel hmget hset",
    "p:lost": "del sadd srem",
    "p:meta": "del hdel hget hincrby hset",
    "p:nodes": "del hdel hexists hget hkeys hmget hset",
    "p:notes": "del hdel hget hset",
    "p:slots": "del hdel hget hgetall",
    "q0:apps": "zadd zrem zscore",
    "q0:dead": "zadd zrange zrem",
    "q0:later": "zrange",
    "q0:names": "hdel hexists hsetnx",
    "q0:placed": "hset",
    "q0:shapes": "hdel hget hset",
    "q0:task": "persist",
    "q0:outbox": "lrange",
}

SCHEDULER: Final[Kinds] = {
    ":config": "exists hset",
    ":dealt": "del hdel hget hincrby hincrbyfloat hmget hset",
    ":leader": "del hdel hget hincrby hmget hset",
    ":losses": "del expire hdel hlen hsetnx",
    ":quarantine": "del zadd zcard zremrangebyrank",
    ":schedulers": "del hdel hexists hget hincrby hlen hset",
    ":stats": "del expire hset",
    "p:alive": "del hdel hget hgetall hset",
    "p:free": "bitfield del getbit setbit",
    "p:inbox": "del llen lpush ltrim",
    "p:left": "del hdel hmget hset",
    "p:lost": "del sadd smembers srem",
    "p:meta": "del hdel hget hincrby hset",
    "p:nodes": "del hdel hexists hget hmget hset",
    "p:notes": "del hdel hget hset",
    "p:slots": "del hdel hget hgetall hset",
    "q0:dead": "del zadd zrange zrem",
    "q0:expires": "del zadd zrangebyscore zrem",
    "q0:feasible": "del",
    "q0:later": "zadd zrange zrangebyscore zrem zscan zscore",
    "q0:meta": "hdel hget hmget hset",
    "q0:apps": "del zadd zrem zrevrange zscore",
    "q0:names": "del hdel hmget hsetnx",
    "q0:changed": "del zadd zcard zrangebyscore zrem zscan zscore",
    "q0:kinds": "del hdel hget hlen hscan hset",
    "q0:pending": "del zadd zcard zcount zpopmin zrange zrem zscan zscore",
    "q0:placed": "hdel hget hscan hset",
    "q0:shapes": "del hdel hget hset hvals",
    "q0:taken": "hdel hget hmget hscan hset",
    "q0:task": "del exists expire hdel hset persist type",
    "q0:outbox": "del lpush ltrim",
}

KINDS: Final[Mapping[Role, Sequence[Kinds]]] = {
    Role.VIEWER: (VIEW, VIEWER),
    Role.CLIENT: (VIEW, CLIENT),
    Role.WORKER: (VIEW, CLIENT, WORKER),
    Role.SCHEDULER: (VIEW, SCHEDULER),
}
"""The commands of each role, by kind of key."""

SCRIPTS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "",
    Role.CLIENT: "cancel submit",
    Role.WORKER: "cancel deal_node finish repair_partition offer quarantine reclaim register_node release renew "
    "requeue ring set_node start submit",
    Role.SCHEDULER: "cancel commit configure deal_node discard expire forget_node repair_kind repair_partition "
    "repair_task set_reason record_loss offer purge quarantine read_partition reclaim release renew_scheduler requeue "
    "revive set_node confirm take give_back",
}
"""The scripts that each role runs."""

KEYLESS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "pubsub|numsub script|exists time",
    Role.CLIENT: "time",
    Role.WORKER: "script|load time",
    Role.SCHEDULER: "script|load time",
}
SCRIPT_KEYS: Final[Mapping[Role, str]] = {
    Role.CLIENT: "q0:*",
    Role.WORKER: "q0:* p:* :dealt :quarantine",
    Role.SCHEDULER: "q0:* p:* :*",
}
READS: Final = frozenset(
    (
        "exists",
        "get",
        "getbit",
        "hexists",
        "hget",
        "hgetall",
        "hkeys",
        "hlen",
        "hmget",
        "hscan",
        "hvals",
        "llen",
        "lrange",
        "mget",
        "pttl",
        "smembers",
        "sscan",
        "ttl",
        "watch",
        "zcard",
        "zcount",
        "zrange",
        "zrangebyscore",
        "zrevrange",
        "zscan",
        "zscore",
    )
)
