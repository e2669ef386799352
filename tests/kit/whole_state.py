"""The whole state as plain values, of a server and of the reference, without times: equal states
are equal values.
"""

import re
from dataclasses import replace
from typing import Any, Final

from parsync_redis.model import text
from parsync_redis.model.needs import amounts_text
from parsync_redis.model.record import Record, TaskLine
from parsync_redis.model.status import TaskStatus
from parsync_redis.store import Store
from parsync_redis.store.reference import MemoryStore
from parsync_redis.store.reference.accounts import KeptAccount
from parsync_redis.store.reference.leases import NodeRecord
from parsync_redis.store.reference.records import Task
from parsync_redis.store.reference.store import Partition, Queue

State = dict[str, Any]
_SINCE: Final = re.compile(r"(since|until)=\d+")
_STARTED: Final = re.compile(r"started=\d+")
_NOTED: Final = re.compile(r"used=[\d.]+ (.*) at=\d+")
_TIMES: Final = ("ran", "since", "expires")


def state_of_server(store: Store) -> State:
    """Return what a server has of this cluster; its database must have nothing else."""
    client: Any = store.client
    keys = sorted(client.scan_iter(count=1000))
    with client.pipeline(transaction=False) as pipe:
        # for people: the reference has none
        keys = [key for key in keys if not key.endswith(b"}:events")]
        for key in keys:
            kind = key.partition(b"}:")[2].decode()
            if kind in ("changed", "later", "dead", "expires", "apps") or kind.startswith(
                ("pending:", "holders:")
            ):
                pipe.zrange(key, 0, -1)
            elif kind == "outbox" or kind.startswith("inbox:"):
                pipe.lrange(key, 0, -1)
            elif kind == "lost":
                pipe.smembers(key)
            elif kind == "free":
                pipe.get(key)
            else:
                pipe.hgetall(key)
            pipe.ttl(key)
        replies = pipe.execute()
    state: State = {}
    for key, value, ttl in zip(keys, replies[::2], replies[1::2], strict=True):
        name = key.decode().partition("{" + store.keys.cluster)[2]
        state[name] = _value(name.partition("}:")[2], value, ttl)
    _check_marks(keys, replies[::2])
    return {
        name: value for name, value in state.items() if value and not name.endswith(":feasible")
    }


def _check_marks(keys: list[bytes], values: list[Any]) -> None:
    """Check that a task with rare fields has the mark in its line: otherwise nobody reads them."""
    lines = {
        id: text
        for key, value in zip(keys, values, strict=True)
        if key.rpartition(b":")[2] in (b"tasks", b"ended", b"ended_1", b"ended_2")
        for id, text in value.items()
    }
    for key in keys:
        if b":extra:" in key:
            line = lines[key.partition(b":extra:")[2]]
            assert b"\n+" in b"\n" + line, f"{key!r} of {line!r}"


def _value(kind: str, value: Any, ttl: int) -> Any:
    if kind == "dealt":
        return {
            name.decode(): v.decode().rstrip()
            for name, v in value.items()
            if name.startswith(b"node:")
        }
    if kind == "free":
        return value.rstrip(b"\0")
    if kind == "slots":
        return {seat.decode(): place.decode() for seat, place in value.items()}
    if kind == "messages":
        return {id.decode(): message for id, message in value.items()}
    if kind.startswith("extra:"):
        fields = {
            name.decode(): v if name.endswith(b"message") else _rare(name.decode(), v.decode())
            for name, v in value.items()
        }
        return fields | {"expires": ttl >= 0}
    if isinstance(value, dict):
        read = _READ.get(kind, lambda v: _SINCE.sub(r"\1=T", v))
        return {
            name.decode(): "T" if name in (b"rotated_ms", b"apps") else read(v.decode())
            for name, v in value.items()
        }
    if isinstance(value, set):
        return {name.decode() for name in value}
    return [v.decode() for v in value]


def _line(line: str) -> Any:
    """Return the line of a task without its times."""
    task = TaskLine.of(line)
    options = {name: "T" if name in _TIMES else value for name, value in task.options.items()}
    return task.takes, task.life, task.order, options, task.kind


def _run(run: str) -> str:
    return _STARTED.sub("started=T", run)


def _ended(ended: str) -> Any:
    stamp, line, run, why = ended.split("\n", 3)
    return stamp.partition(" ")[0], _line(line), _run(run), why


def _rare(name: str, value: str) -> str:
    """Return a rare field without its times."""
    if name == "next":
        priority, due, options, kind = value.split(" ", 3)
        options = ",".join(
            sorted(
                "expires=T" if word.startswith("expires=") else word for word in options.split(",")
            )
        )
        return f"{priority} {'-' if due == '-' else 'T'} {options} {kind}"
    return {"ended_ms": "T", "run": _run(value), "history": _SINCE.sub(r"\1=T", value)}.get(
        name, value
    )


_READ: Final = {
    "tasks": _line,
    "running": _run,
    "ended": _ended,
    "ended_1": _ended,
    "ended_2": _ended,
    "shares": lambda line: _NOTED.sub(r"\1", line),
    "nodes": lambda line: line,  # `until` is a time that a test has given
}


def told(records: list[Record]) -> list[Any]:
    """Return what records and their statuses say, without their times."""
    return [
        (
            record.text.lstrip("+") and _line(record.text),
            record.state,
            record.attempt,
            record.place,
            record.scheduler,
            record.started_ms is not None,
            record.why,
            {name: _rare(name, value) for name, value in record.extra.items()},
            replace(
                status,
                times={step: ms is not None for step, ms in status.times.items()},
                expires_ms=status.expires_ms is not None,
                history=tuple(
                    replace(setback, since_ms=0, until_ms=0) for setback in status.history
                ),
            ),
        )
        for record in records
        for status in [TaskStatus.of(record)]
    ]


def state_of_reference(reference: MemoryStore) -> State:
    """Return what a server would have, had it done what the reference did."""
    cluster = reference.cluster
    state: State = {
        **{
            name: value
            for shard, queue in enumerate(reference.queues)
            for name, value in _queue(shard, queue).items()
        },
        **{
            f":p{number}}}:{kind}": value
            for number, partition in reference.partitions.items()
            for kind, value in _partition(partition).items()
        },
        "}:config": cluster.config,
        "}:schedulers": {name: str(counter) for name, counter in cluster.members.items()},
        "}:leader": {
            **({"holder": cluster.leader.text()} if cluster.leader else {}),
            **({"epoch": str(cluster.epoch)} if cluster.epoch else {}),
        },
        "}:bookings": cluster.bookings,
        "}:shares": {
            tenant: _NOTED.sub(r"\1", noted.text) for tenant, noted in cluster.shares.items()
        },
        "}:dealt": {
            f"node:{name}": text.DEALT.write(**w._asdict()).rstrip()
            for name, w in cluster.dealt.items()
        },
        **{f"}}:stats:{name}": stats for name, stats in cluster.stats.items()},
    }
    return {key: value for key, value in state.items() if value}


def _queue(shard: int, queue: Queue) -> State:
    tasks = queue.tasks
    times = {"rotated_ms": queue.rotated_ms is not None, "apps": queue.apps_ms > 0}
    indexes = {
        "meta": {name: "T" for name, known in times.items() if known}
        | _numbers(
            {
                "submitted": queue.submitted,
                "lost": queue.lost,
                "died": queue.died,
                "undone": queue.undone,
                "version": queue.version,
                "waiters": " ".join(queue.waiters),
                "shards": queue.shards,
            }
        ),
        "kinds": {kind: waiting.line() for kind, waiting in queue.kinds.items()},
        "changed": list(queue.changed),
        **{
            f"pending:{kind}": sorted(waiting.orders, key=lambda id: waiting.orders[id])
            for kind, waiting in queue.kinds.items()
        },
        "accounts": {
            account: line.text + (" full" if line.full else "")
            for account, line in queue.accounts.lines.items()
        },
        **{f"holders:{account}": _holders(line) for account, line in queue.accounts.lines.items()},
        "policy": {
            **queue.accounts.ceilings,
            **{f"={name}": text for name, text in queue.accounts.allotments.items()},
            **({"#seal": queue.accounts.seal} if queue.accounts.seal else {}),
        },
        "later": sorted(queue.later, key=lambda id: (queue.later[id], id)),
        "dead": sorted(queue.dead, key=lambda id: (queue.dead[id], id)),
        "expires": sorted(queue.expires, key=lambda id: (queue.expires[id], id)),
        "tasks": {id: _line(task.line) for id, task in tasks.items()},
        "messages": {id: task.job.message for id, task in tasks.items()},
        "taken": {id: task.attempt for id, task in tasks.items() if task.state == "taken"},
        "running": {
            id: _run(task.run) for id, task in tasks.items() if task.state in ("placed", "running")
        },
        **{
            kind: {
                id: (task.state, _line(task.line), _run(task.run), task.ended_why)
                for id, task in ended_tasks.items()
            }
            for kind, ended_tasks in zip(("ended", "ended_1", "ended_2"), queue.ended, strict=True)
        },
        **dict(zip(("choices", "choices_1"), queue.choices, strict=True)),
        "outbox": queue.outbox,
        "shapes": queue.shapes,
        "names": {digest: tasks.text for digest, tasks in queue.names.items()},
        "apps": sorted(queue.apps, key=lambda digest: queue.apps[digest]),
    }
    known = [
        (id, task, task is not tasks.get(id))
        for generation in (tasks, *queue.ended)
        for id, task in generation.items()
    ]
    return {
        **{f":q{shard}}}:{kind}": value for kind, value in indexes.items()},
        **{
            f":q{shard}}}:extra:{id}": _extra(task) | {"expires": has_ended}
            for id, task, has_ended in known
            if _extra(task)
        },
    }


def _holders(line: KeptAccount) -> list[str]:
    return sorted(line.holders, key=lambda id: (line.holders[id], id))


def _numbers(values: dict[str, int | str]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value}


def _extra(task: Task) -> State:
    """Return the rare fields of a task."""
    messages = {"next_message": task.next.job.message} if task.next else {}
    messages |= {"message": task.job.message} if task.end_unseen else {}
    return {name: _rare(name, value) for name, value in task.rare.items()} | messages


def _partition(partition: Partition) -> State:
    nodes = partition.nodes.values()
    counts = {
        "inc": partition.inc,
        "version": partition.version,
        "epoch": partition.epoch,
        "slots": sum(node.offer.slots for node in nodes),
        "free": sum(byte.bit_count() for byte in partition.bits),
    }
    meta = {name: str(count) for name, count in counts.items()} if partition.version else {}
    return {
        "meta": meta | ({"waiters": " ".join(partition.waiters)} if partition.waiters else {}),
        "slots": {f"{node}/{slot}": place.text for (node, slot), place in partition.leases.items()},
        "free": bytes(partition.bits).rstrip(b"\0"),
        "changed": sorted(partition.changed, key=lambda name: (partition.changed[name], name)),
        "left": {
            node.name: amounts_text(sorted(node.amounts_left.items()))
            for node in nodes
            if node.amounts_left
        },
        "nodes": {node.name: _node(node) for node in nodes},
        "alive": {
            n.name: text.COUNTER.write(
                inc=n.inc, moved=n.moved, since="T" if n.state == "down" else None
            )
            for n in nodes
        },
        "lost": partition.lost,
        "notes": {name: note for name, note in partition.notes.items() if note},
        **{f"inbox:{node.name}": [place.text for place in node.inbox] for node in nodes},
    }


def _node(node: NodeRecord) -> str:
    values = {
        field: getattr(node, field)
        for field in ("state", "inc", "drain", "first", "span", "ahead", "score")
    }
    optional = {
        "capacity": node.capacity or None,
        "until": node.notice and node.notice.text,
    }
    return text.NODE_LINE.write(**values, **optional, offer=node.offer.text)
