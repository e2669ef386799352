"""The rights that Celery and kombu need on a Redis broker and result backend.

They were found with Celery and kombu 5.7, by running under these rights and reading ACL LOG. None
of these keys has the cluster's prefix, so two apps on one server share the keys. Each row has
commands, keys (globs), and channels (globs, or literal names for PSUBSCRIBE). A row without keys
and channels has commands that name none.
"""

from collections.abc import Sequence

Row = tuple[str, Sequence[str], Sequence[str]]

TASK_RESULTS = "celery-task-meta-*"
GROUP_RESULTS = "celery-taskset-meta-*"
_BINDING = "_kombu.binding"
_PIDBOX = "celery.pidbox"
_EVENTS = "celeryev"


def lists(queues: Sequence[str]) -> list[str]:
    """Return the lists of plain queues: by name, and by name with the suffix of a priority.

    The suffix is two bytes and 3, 6 or 9.
    """
    return [name for queue in queues for name in (queue, f"{queue}??[369]")]


def bindings(exchanges: Sequence[str]) -> list[str]:
    """Return the sets in which kombu keeps the queues of an exchange."""
    return [f"{_BINDING}{kind}.{exchange}" for exchange in exchanges for kind in ("", "_permanent")]


def results() -> list[Row]:
    """Return the rights on results of a process that sends tasks and waits for results.

    A revoke writes a result too.
    """
    return [
        ("exec multi", (), ()),
        ("del expire get mget set setex", (TASK_RESULTS, GROUP_RESULTS), ()),
        ("publish subscribe unsubscribe", (), (TASK_RESULTS, GROUP_RESULTS)),
    ]


def publisher(queues: Sequence[str], control: bool, db: int) -> list[Row]:
    """Return the rights to publish to plain queues, and task-sent events.

    control: the broadcasts of revoke as well.
    """
    channels = [f"/{db}.{_EVENTS}/*", *([f"/{db}.{_PIDBOX}"] if control else [])]
    exchanges = [*queues, _EVENTS, *([_PIDBOX] if control else [])]
    rows: list[Row] = [
        ("exec multi", (), ()),
        ("sadd smembers", bindings(exchanges), ()),
        ("publish", (), channels),
    ]
    return rows + ([("exists llen lpush", lists(queues), ())] if queues else [])


def broker(queues: Sequence[str], db: int) -> list[Row]:
    """Return a worker's rights: consume, acknowledge, remote control, events, gossip and chords."""
    return [
        ("discard exec multi script|exists unwatch", (), ()),
        ("brpop exists llen", (*lists(queues), f"*.{_PIDBOX}*"), ()),
        ("lpush pexpire rpush", lists(queues), ()),
        ("hdel hget hset watch", ("unacked",), ()),
        ("zadd zrange zrem", ("unacked_index",), ()),
        ("del get set", ("unacked_mutex",), ()),
        ("del llen pexpire", (f"*.{_PIDBOX}*", f"{_EVENTS}.*"), ()),
        ("lpush", (f"*.reply.{_PIDBOX}*",), ()),
        ("evalsha", ("unacked_mutex", f"{_BINDING}.*", f"{_BINDING}_deadlines", GROUP_RESULTS), ()),
        ("del exists sadd smembers srem", (f"{_BINDING}.*", f"{_BINDING}_permanent.*"), ()),
        ("zadd zrangebyscore zrem", (f"{_BINDING}_deadlines",), ()),
        ("publish", (), (f"/{db}.{_PIDBOX}", f"/{db}.{_EVENTS}/*")),
        ("psubscribe punsubscribe", (), (f"/{db}.{_PIDBOX}", f"/{db}.{_EVENTS}/worker.*")),
        ("exists incrby llen lrange rpush sadd sismember zadd zcount zrange", (GROUP_RESULTS,), ()),
    ]
