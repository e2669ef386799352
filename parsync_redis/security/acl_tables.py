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
    "q0:dead": "zscore",
    "q0:ended": "hmget",
    "q0:ended_1": "hmget",
    "q0:ended_2": "hmget",
    "q0:extra": "hget hmget",
    "q0:kinds": "hget hgetall hmget",
    "q0:running": "hmget",
    "q0:taken": "hmget",
    "q0:tasks": "hmget",
}
"""Reads of schedulers, nodes, partitions, kinds, and tasks whose ids are known: part of every role."""

VIEWER: Final[Kinds] = {
    ":quarantine": "zcard zrevrange",
    "q0:apps": "zrevrange",
    "q0:dead": "zcard zrange",
    "q0:ended": "hscan",
    "q0:ended_1": "hscan",
    "q0:ended_2": "hscan",
    "q0:later": "zcard zrange",
    "q0:names": "hmget",
    "q0:pending": "zcard zrange",
    "q0:running": "hlen hscan",
    "q0:shapes": "hgetall",
    "q0:taken": "hlen hscan",
}

AUDIT: Final[Kinds] = {
    ":*": "ttl",
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
    "q0:changed": "zscan",
    "q0:dead": "zscan",
    "q0:kinds": "hscan",
    "q0:later": "zscan",
    "q0:messages": "hexists hlen",
    "q0:meta": "hmget",
    "q0:pending": "zscan",
    "q0:tasks": "hscan",
}

CLIENT: Final[Kinds] = {
    "q0:apps": "zrevrange",
    "q0:changed": "zadd zcard zrangebyscore zrem",
    "q0:dead": "zrem",
    "q0:ended": "hdel hset",
    "q0:ended_1": "hdel",
    "q0:ended_2": "hdel",
    "q0:expires": "zadd",
    "q0:extra": "del expire hdel hset",
    "q0:feasible": "del hexists hlen hset",
    "q0:kinds": "hdel hexists hlen hset",
    "q0:later": "zadd zrem",
    "q0:messages": "hdel hexists hget hset",
    "q0:meta": "hdel hmget hset",
    "q0:names": "hget hmget",
    "q0:outbox": "lpush lrem ltrim",
    "q0:pending": "zadd zcard zcount zrem",
    "q0:running": "hdel",
    "q0:shapes": "hgetall hvals",
    "q0:taken": "hdel",
    "q0:tasks": "hdel hset",
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
    "q0:dead": "zadd zrange",
    "q0:ended": "hexists",
    "q0:later": "zrange",
    "q0:messages": "hmget",
    "q0:names": "hdel hexists hsetnx",
    "q0:outbox": "lrange",
    "q0:running": "hset",
    "q0:shapes": "hdel hget hset",
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
    "q0:apps": "del zadd zrem zrevrange zscore",
    "q0:changed": "del zadd zcard zrangebyscore zrem zscan zscore",
    "q0:dead": "del zadd zrange zrem",
    "q0:ended": "del exists hdel hscan hset rename",
    "q0:ended_1": "del exists hdel hscan rename",
    "q0:ended_2": "del hdel hscan rename unlink",
    "q0:expires": "del zadd zrangebyscore zrem",
    "q0:extra": "del expire hdel hset",
    "q0:feasible": "del",
    "q0:kinds": "del hdel hexists hlen hscan hset",
    "q0:later": "zadd zrange zrangebyscore zrem zscan zscore",
    "q0:messages": "hdel hexists hget",
    "q0:meta": "hdel hget hmget hset",
    "q0:names": "del hdel hmget hsetnx",
    "q0:outbox": "del lpush ltrim",
    "q0:pending": "del zadd zcard zcount zrange zrem zremrangebyrank zscan zscore",
    "q0:running": "hdel hget hscan hset",
    "q0:shapes": "del hdel hget hset hvals",
    "q0:taken": "hdel hget hscan hset",
    "q0:tasks": "hdel hset",
}

KINDS: Final[Mapping[Role, Sequence[Kinds]]] = {
    Role.VIEWER: (VIEW, VIEWER),
    Role.CLIENT: (VIEW, CLIENT),
    Role.WORKER: (VIEW, CLIENT, WORKER),
    Role.SCHEDULER: (VIEW, SCHEDULER),
}
"""The commands of each role, by kind of key."""

SCRIPTS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "read_tasks",
    Role.CLIENT: "cancel read_tasks submit",
    Role.WORKER: "cancel deal_node finish repair_partition offer quarantine read_tasks reclaim register_node release "
    "renew requeue ring set_node start submit",
    Role.SCHEDULER: "cancel commit configure deal_node discard expire forget_node repair_kind repair_partition "
    "repair_task set_reason record_loss offer purge quarantine read_partition read_tasks reclaim release "
    "renew_scheduler requeue revive rotate set_node confirm take give_back",
}
"""The scripts that each role runs."""

KEYLESS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "pubsub|numsub script|exists time",
    Role.CLIENT: "time",
    Role.WORKER: "script|load time",
    Role.SCHEDULER: "script|load time",
}
SCRIPT_KEYS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "q0:*",
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
