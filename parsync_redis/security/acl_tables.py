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
    SERVE = "serve"


CommandsByKind = Mapping[str, str]
"""Kind of key -> commands on it."""

CONNECT_COMMANDS: Final = "ping select info cluster|slots cluster|info asking"
"""Commands of every connection.

redis-py and kombu ping and select, and the check of the server reads INFO. The last three commands
are for a Redis Cluster: the map of slots, and a request while its slot is moved.
"""

VIEW_RIGHTS: Final[CommandsByKind] = {
    ":bookings": "hgetall",
    ":config": "hgetall",
    ":leader": "hgetall",
    ":losses": "hgetall",
    ":policy": "hgetall",
    ":schedulers": "hgetall",
    ":shares": "hgetall",
    ":stats": "hgetall pttl",
    ":streaks": "hgetall",
    ":times": "hgetall hmget",
    "p:alive": "hgetall",
    "p:free": "get",
    "p:left": "hgetall",
    "p:meta": "hmget",
    "p:nodes": "hgetall",
    "p:notes": "hgetall",
    "p:slots": "hmget",
    "q:accounts": "hgetall hmget",
    "q:choices": "hget",
    "q:choices_1": "hget",
    "q:dead": "zscore",
    "q:ended": "hmget",
    "q:ended_1": "hmget",
    "q:ended_2": "hmget",
    "q:extra": "hget hmget",
    "q:holders": "zrange",
    "q:kinds": "hget hgetall hmget",
    "q:policy": "hgetall",
    "q:running": "hmget",
    "q:taken": "hmget",
    "q:tasks": "hmget",
}
"""Reads of schedulers, nodes, partitions, kinds, and tasks of known ids; every role has them."""

VIEWER_RIGHTS: Final[CommandsByKind] = {
    ":*": "type",
    ":events": "xrange xrevrange",
    "p:*": "type",
    "p:events": "xrange xrevrange",
    ":quarantine": "zcard zrevrange",
    "q:apps": "zrevrange",
    "q:dead": "zcard zrange",
    "q:ended": "hscan",
    "q:ended_1": "hscan",
    "q:ended_2": "hscan",
    "q:events": "xrange xrevrange",
    "q:later": "zcard zrange",
    "q:meta": "hmget",
    "q:names": "hmget",
    "q:pending": "zcard zcount zrange",
    "q:running": "hlen hscan",
    "q:shapes": "hgetall",
    "q:taken": "hlen hscan",
    "q:tasks": "hlen hscan",
}

AUDIT_RIGHTS: Final[CommandsByKind] = {
    ":*": "ttl",
    "p:*": "ttl",
    "p:alive": "hget hgetall",
    "p:changed": "zrange",
    "p:free": "bitcount get",
    "p:inbox": "exists",
    "p:left": "hget hgetall",
    "p:lost": "sismember",
    "p:meta": "hget hmget",
    "p:nodes": "hexists hget hgetall hmget",
    "p:notes": "hget",
    "p:slots": "hgetall hmget hscan",
    "q:*": "ttl",
    "q:accounts": "hmget hscan",
    "q:changed": "zcard zrangebyscore zscan zscore",
    "q:dead": "zcard zmscore zscan",
    "q:ended": "hmget hscan",
    "q:ended_1": "hmget hscan",
    "q:ended_2": "hmget hscan",
    "q:expires": "zmscore",
    "q:extra": "hmget",
    "q:holders": "zcard zrange zscore",
    "q:kinds": "hexists hget hlen hmget hscan hvals",
    "q:later": "zcard zmscore zscan",
    "q:messages": "hexists hlen",
    "q:meta": "hget hmget",
    "q:pending": "zcard zcount zmscore zrange zscan",
    "q:policy": "hmget",
    "q:running": "hkeys hlen hmget hscan",
    "q:taken": "hkeys hlen hmget hscan",
    "q:tasks": "hlen hmget hscan",
}
"""The rights that a viewer needs for `doctor --audit`: what the scripts that look read, and Python.

The audit counts messages and does not read them: they have the arguments of all tasks.
"""

AUDIT_SCRIPTS: Final = "look_at_nodes look_over recount repair_partition repair_queue"
"""The scripts that look, by which the rights of an auditing viewer are chosen.

EVALSHA is not bound to them: such a viewer may run any script up to its first write.
"""

CLIENT_RIGHTS: Final[CommandsByKind] = {
    "q:accounts": "hdel hset",
    "q:apps": "zrevrange",
    "q:changed": "zadd",
    "q:dead": "zrem",
    "q:ended": "hdel hset",
    "q:ended_1": "hdel",
    "q:ended_2": "hdel",
    "q:events": "del xadd",
    "q:expires": "zadd",
    "q:extra": "del expire hdel hset",
    "q:feasible": "del hexists hlen hset",
    "q:holders": "zrem",
    "q:kinds": "hdel hexists hset",
    "q:later": "zadd zrem",
    "q:messages": "hdel hexists hget hset",
    "q:meta": "hincrby hmget",
    "q:names": "hget hmget",
    "q:outbox": "lpush lrem ltrim",
    "q:policy": "hmget",
    "q:pending": "zadd zcard zcount zrem",
    "q:running": "hdel",
    "q:shapes": "hgetall hvals",
    "q:taken": "hdel",
    "q:tasks": "hdel hset",
}

WORKER_RIGHTS: Final[CommandsByKind] = {
    ":dealt": "hdel hget hgetall hincrby hincrbyfloat hkeys hlen hmget hset",
    ":events": "del xadd",
    ":quarantine": "del zadd zcard zremrangebyrank",
    ":streaks": "hdel hlen hmget hset",
    ":times": "hdel hlen hmget hset",
    "p:alive": "del hdel hget hgetall hset",
    "p:changed": "del zadd zcard zrange zrem",
    "p:events": "del xadd",
    "p:free": "bitcount bitfield del getbit setbit",
    "p:inbox": "blmpop del llen lpush",
    "p:left": "del hdel hget hmget hset",
    "p:lost": "del sadd sismember srem",
    "p:meta": "del hdel hget hincrby hset",
    "p:nodes": "del hdel hexists hget hkeys hmget hset",
    "p:notes": "del hdel hget hset",
    "p:slots": "del hdel hget hgetall",
    "q:apps": "zadd zrem zscore",
    "q:dead": "zadd zrange",
    "q:ended": "hexists",
    "q:later": "zrange",
    "q:messages": "hmget",
    "q:meta": "hset",
    "q:names": "hdel hexists hsetnx",
    "q:outbox": "lrange",
    "q:policy": "hset",
    "q:running": "hset",
    "q:shapes": "hdel hget hset",
}

SCHEDULER_RIGHTS: Final[CommandsByKind] = {
    ":bookings": "del expire hdel hmget hset",
    ":config": "exists hget hset",
    ":dealt": "del hdel hget hgetall hincrby hincrbyfloat hkeys hlen hmget hset",
    ":events": "del xadd",
    ":leader": "del hdel hget hincrby hmget hset",
    ":losses": "del expire hdel hlen hsetnx",
    ":policy": "hmget hset",
    ":quarantine": "del zadd zcard zremrangebyrank",
    ":schedulers": "del hdel hexists hget hincrby hlen hset",
    ":shares": "del expire hdel hlen hmget hset",
    ":stats": "del expire hset",
    ":streaks": "del hdel hlen hmget hset",
    ":times": "del hmget",
    "p:alive": "del hdel hget hgetall hset",
    "p:changed": "del zadd zcard zrange zrangebyscore zrem zscore",
    "p:events": "del xadd",
    "p:free": "bitcount bitfield del getbit setbit",
    "p:inbox": "del llen lpush ltrim",
    "p:left": "del hdel hget hkeys hmget hset hvals",
    "p:lost": "del sadd sismember smembers srem",
    "p:meta": "del hdel hget hincrby hset",
    "p:nodes": "del hdel hexists hget hkeys hmget hset",
    "p:notes": "del hdel hget hset",
    "p:slots": "del hdel hget hgetall hscan hset",
    "q:accounts": "del hdel hexists hkeys hlen hscan hset",
    "q:apps": "del zadd zrem zrevrange zscore",
    "q:changed": "del zadd zcard zrangebyscore zrem zscan zscore",
    "q:choices": "del hdel hlen hset rename",
    "q:choices_1": "del rename unlink",
    "q:dead": "del zadd zcard zmscore zrange zrem zscan",
    "q:ended": "del exists hdel hscan hset rename",
    "q:ended_1": "del exists hdel hscan rename",
    "q:ended_2": "del hdel hscan rename unlink",
    "q:events": "del xadd",
    "q:expires": "del zadd zmscore zrangebyscore zrem zscore",
    "q:extra": "del exists expire hdel hset",
    "q:feasible": "del hdel hgetall hset",
    "q:holders": "del zadd zcard zrange zrem zscore",
    "q:kinds": "del hdel hexists hkeys hlen hscan hset hvals",
    "q:later": "del zadd zcard zmscore zrange zrangebyscore zrem zscan zscore",
    "q:messages": "del hdel hexists hget hlen hscan hset",
    "q:meta": "del hdel hget hincrby hmget hset",
    "q:names": "del hdel hget hgetall hmget hsetnx",
    "q:outbox": "del lpush ltrim",
    "q:policy": "del hdel hget hgetall hmget hset",
    "q:pending": "del zadd zcard zcount zmscore zrange zrem zremrangebyrank zscan zscore",
    "q:running": "del hdel hget hkeys hlen hscan hset",
    "q:shapes": "del hdel hget hgetall hset hvals",
    "q:taken": "del hdel hget hkeys hlen hscan hset",
    "q:tasks": "del hdel hlen hscan hset",
}

RIGHTS_BY_ROLE: Final[Mapping[Role, Sequence[CommandsByKind]]] = {
    Role.VIEWER: (VIEW_RIGHTS, VIEWER_RIGHTS),
    Role.CLIENT: (VIEW_RIGHTS, CLIENT_RIGHTS),
    Role.WORKER: (VIEW_RIGHTS, CLIENT_RIGHTS, WORKER_RIGHTS),
    Role.SCHEDULER: (VIEW_RIGHTS, SCHEDULER_RIGHTS),
    Role.SERVE: (VIEW_RIGHTS, VIEWER_RIGHTS),
}
"""The commands of each role, by kind of key; serve's without --submitters and --operators."""

SCRIPTS_BY_ROLE: Final[Mapping[Role, str]] = {
    Role.VIEWER: "read_tasks",
    Role.CLIENT: "cancel read_tasks submit",
    Role.WORKER: "cancel deal_node finish forget_node learn_times repair_partition offer quarantine read_tasks reclaim "
    "register_node release renew report_failures requeue ring set_node start submit",
    Role.SCHEDULER: "book cancel commit configure deal_node discard expire fix_shards forget_node look_at_nodes look_over "
    "note_choices repair_kind repair_offers repair_partition repair_queue repair_task restore set_reason "
    "record_loss offer purge quarantine read_partition read_tasks reclaim release renew_scheduler "
    "report_failures requeue revive rotate set_node confirm take give_back set_policy allot recount "
    "write_policy note_shares",
    Role.SERVE: "cancel read_tasks revive set_node submit",
}
"""The scripts that each role runs."""

KEYLESS_COMMANDS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "exec multi pubsub|shardnumsub script|exists time",
    Role.CLIENT: "time",
    Role.WORKER: "script|load time",
    Role.SCHEDULER: "script|load time",
    Role.SERVE: "exec multi pubsub|shardnumsub script|exists time",
}
SCRIPT_KEYS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "q:*",
    Role.CLIENT: "q:*",
    Role.WORKER: "q:* p:* :dealt :quarantine :streaks :times :gate",
    Role.SCHEDULER: "q:* p:* :*",
    Role.SERVE: "q:*",
}
WORDS_SENT: Final[Mapping[Role, str]] = {
    Role.VIEWER: "",
    Role.CLIENT: "wake",
    Role.WORKER: "freed wake",
    Role.SCHEDULER: "freed tick wake",
    Role.SERVE: "",
}
"""The messages that each role may send to schedulers; a scheduler also hears all of them."""

_READS: Final = (
    "bitcount exists get getbit hexists hget hgetall hkeys hlen hmget hscan hvals llen lrange mget pttl sismember "
    "smembers sscan ttl watch xrange xrevrange zcard zcount zmscore zrange zrangebyscore zrevrange zscan zscore"
)
READ_COMMANDS: Final = frozenset(_READS.split())

OPERATOR_RIGHTS: Final[CommandsByKind] = {
    "q:accounts": "hdel hset",
    "p:changed": "zadd",
    "p:events": "del xadd",
    "p:free": "setbit",
    "p:left": "hdel hset",
    "p:meta": "hdel hincrby hset",
    "p:nodes": "hexists hget hkeys hset",
    "p:notes": "hdel hget hset",
    "q:changed": "zadd",
    "q:dead": "zrem",
    "q:ended": "hset",
    "q:events": "del xadd",
    "q:expires": "zadd",
    "q:extra": "del expire hdel hset",
    "q:holders": "zrem",
    "q:kinds": "hdel hexists hset",
    "q:later": "zrem",
    "q:messages": "hdel hget",
    "q:meta": "hincrby hmget",
    "q:outbox": "lpush ltrim",
    "q:pending": "zadd zcard zcount zrem",
    "q:policy": "hmget",
    "q:running": "hdel",
    "q:taken": "hdel",
    "q:tasks": "hdel hset",
}
"""The rights that `parsync serve` needs for operators, besides VIEW_RIGHTS.

Serve drains nodes, and cancels and requeues tasks.
"""
