"""The table of rights that `parsync serve` needs for operators.

A test holds it to the text of the scripts.
"""

from typing import Final

from .acl_tables import Kinds

OPERATOR_RIGHTS: Final[Kinds] = {
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
    "q:kinds": "hdel hexists hset",
    "q:later": "zrem",
    "q:messages": "hdel hget",
    "q:meta": "hincrby hmget",
    "q:outbox": "lpush ltrim",
    "q:pending": "zadd zcard zcount zrem",
    "q:running": "hdel",
    "q:taken": "hdel",
    "q:tasks": "hdel hset",
}
"""The rights that `parsync serve` needs for operators, besides VIEW_RIGHTS.

Serve drains nodes, and cancels and requeues tasks.
"""
