"""Who may do what: the commands, keys and channels of each role, and the lines that tell them to Redis.

A script runs with its caller's rights, so a role has the commands inside the scripts that it runs, each on just the
kinds of key that those scripts touch with it: one selector of an ACL for each group of kinds (Redis 7.0, Valkey 7.2).
So a worker, which must free slots (HDEL), cannot take one (HSET); a client cannot touch slots at all. Tests hold the
tables to the scripts' text. docs/security.md says what each login is worth to a thief.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..errors import InvalidInput
from ..model.ids import check_name, shown
from ..wire.keys import Keys
from .acl_celery import broker, publisher, results


class Role(StrEnum):
    """The parts that a login can have."""

    CLIENT = "client"
    SCHEDULER = "scheduler"
    WORKER = "worker"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Options:
    """What a role's rights depend on.

    queues: plain Celery queues of the app. results: its result backend is this server. control: a client may broadcast
    remote control (revoke). scan: the viewer may SCAN, which shows the names of all keys of the server. db: its
    database.
    """

    queues: Sequence[str] = ("celery",)
    results: bool = True
    control: bool = False
    scan: bool = False
    db: int = 0


Kinds = Mapping[str, str]
"""Kind of key -> commands on it."""

CONNECT: Final = "ping select info"
"""What every connection does: redis-py and kombu ping and select, the check of the server reads INFO."""

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
    "q0:task": "hget hmget",
}
"""Reads of schedulers, nodes, partitions, and tasks whose ids are known: part of every role."""

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
    "q0:meta": "hget",
    "q0:later": "zscan",
    "q0:pending": "zscan",
}

CLIENT: Final[Kinds] = {
    "q0:expires": "zadd",
    "q0:feasible": "del hexists hlen hset",
    "q0:later": "zadd zrem",
    "q0:meta": "hdel hincrby hmget hset",
    "q0:names": "hget hmget",
    "q0:pending": "zadd zcard zrem",
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
    "p:free": "del setbit",
    "p:inbox": "blmpop del llen lpush",
    "p:left": "del hdel hget hset",
    "p:lost": "del sadd srem",
    "p:meta": "del hdel hget hincrby hset",
    "p:nodes": "del hdel hexists hget hkeys hset",
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
    "p:free": "del getbit setbit",
    "p:inbox": "del llen lpush",
    "p:left": "del hdel hget hset",
    "p:lost": "del sadd smembers srem",
    "p:meta": "del hdel hget hincrby hset",
    "p:nodes": "del hdel hexists hget hset",
    "p:notes": "del hdel hget hset",
    "p:slots": "del hdel hget hgetall hset",
    "q0:dead": "del zadd zrange zrem",
    "q0:expires": "del zadd zrangebyscore zrem",
    "q0:feasible": "del",
    "q0:later": "zadd zrange zrangebyscore zrem zscore",
    "q0:meta": "hdel hget hmget hset",
    "q0:apps": "del zadd zrem zrevrange zscore",
    "q0:names": "del hdel hmget hsetnx",
    "q0:pending": "zadd zcard zpopmin zrange zrem zscore",
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
"""What each role does to which kinds of key."""

SCRIPTS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "",
    Role.CLIENT: "cancel submit",
    Role.WORKER: "cancel deal_node finish repair_partition offer quarantine reclaim register_node release renew "
    "requeue ring set_node start submit",
    Role.SCHEDULER: "cancel commit configure deal_node discard expire forget_node repair_partition repair_task note "
    "note_loss offer purge quarantine read_partition reclaim release renew_scheduler requeue revive set_node confirm "
    "take give_back",
}
"""The scripts that each role runs."""

_KEYLESS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "pubsub|numsub script|exists",
    Role.CLIENT: "time",
    Role.WORKER: "script|load time",
    Role.SCHEDULER: "script|load time",
}
_SCRIPT_KEYS: Final[Mapping[Role, str]] = {
    Role.CLIENT: "q0:*",
    Role.WORKER: "q0:* p:* :dealt :quarantine",
    Role.SCHEDULER: "q0:* p:* :*",
}
_READS: Final = frozenset(
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


_QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9_.:@/{}-]{1,128}")  # no glob of an ACL, no space


@dataclass(frozen=True, slots=True)
class Grant:
    """Commands, and the keys (globs) and channels on which they may be used: a selector of an ACL."""

    commands: tuple[str, ...]
    keys: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def __str__(self) -> str:
        sign = "%R~" if set(self.commands) <= _READS else "~"
        words = [*(sign + key for key in self.keys), *("&" + name for name in self.channels)]
        return " ".join([*words, *("+" + command for command in self.commands)])


def grants(role: Role, cluster: str, options: Options | None = None) -> list[Grant]:
    """What a role may do: the first grant is of commands that name no key."""
    options = options or Options()
    keys = Keys(cluster, options.db)
    _check_options(options)
    scan = role is Role.VIEWER and options.scan
    keyless = [*CONNECT.split(), *_KEYLESS[role].split(), *(["scan"] if scan else [])]
    tables = [*KINDS[role], *([AUDIT] if scan else [])]
    found = list(_by_commands({keys.pattern(kind): words for kind, words in _merge(tables).items()}))
    if role in _SCRIPT_KEYS:
        found.append(Grant(("evalsha", "type"), tuple(keys.pattern(kind) for kind in _SCRIPT_KEYS[role].split())))
    own = f"{keys.tick}:*"
    if role in (Role.CLIENT, Role.WORKER):
        found.append(Grant(("publish",), (), (own,)))
    elif role is Role.SCHEDULER:
        found.append(Grant(("publish", "subscribe", "unsubscribe"), (), (keys.tick, own)))
    if role in (Role.CLIENT, Role.WORKER):
        theirs = list(publisher(options.queues, options.control, options.db))
        theirs += results() if options.results else []
        if role is Role.WORKER:
            theirs += broker(options.queues, options.db)
        keyless += sorted({word for words, on, to in theirs if not (on or to) for word in words.split()} - set(keyless))
        found += [Grant(tuple(words.split()), tuple(on), tuple(to)) for words, on, to in theirs if on or to]
    return [Grant(tuple(keyless)), *found]


def user_line(role: Role, cluster: str, sha256: str, options: Options | None = None) -> str:
    """The login of a role as Redis takes it: name, state, password as its hash, rights. Without a hash it is off."""
    check_name("cluster name", cluster)
    first, *others = grants(role, cluster, options)
    rights = " ".join([str(first), *(f"({grant})" for grant in others)])
    state = f"on #{sha256}" if sha256 else "off"
    return f"{cluster}-{role} {state} resetkeys resetchannels -@all {rights}"


def _check_options(options: Options) -> None:
    for queue in options.queues:
        if not _QUEUE_NAME.fullmatch(queue):
            raise InvalidInput(
                f"queue name {shown(queue)} is not valid here: it must be 1 to 128 letters, digits or _.:@/-"
            )


def _merge(tables: Sequence[Kinds]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for table in tables:
        for kind, words in table.items():
            found.setdefault(kind, set()).update(words.split())
    return {kind: " ".join(sorted(words)) for kind, words in sorted(found.items())}


def _by_commands(kinds: Mapping[str, str]) -> Iterator[Grant]:
    """A grant for each set of commands: kinds with the same ones share it."""
    for words in dict.fromkeys(kinds.values()):
        yield Grant(tuple(words.split()), tuple(kind for kind, same in kinds.items() if same == words))
