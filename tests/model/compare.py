"""The whole state as plain values, of a server and of the reference, without times: equal states are equal values."""

import re
from typing import Any, Final

from parsync_redis.model import text
from parsync_redis.store import Store
from parsync_redis.store.reference import MemoryStore
from parsync_redis.store.reference.leases import NodeRecord, amounts_text
from parsync_redis.store.reference.partition import Partition
from parsync_redis.store.reference.queue import Queue, Task

State = dict[str, Any]
_SINCE: Final = re.compile(r"(since|until)=\d+")
_STEPS: Final = ("submitted", "ready", "taken", "placed", "started", "finished")


def state_of_server(store: Store) -> State:
    """Return what a server has of this cluster; its database must have nothing else."""
    client: Any = store.client
    keys = sorted(client.scan_iter(count=1000))
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            kind = key.partition(b"}:")[2].decode()
            if kind in ("changed", "later", "dead", "expires", "apps") or kind.startswith("pending:"):
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
    return {name: value for name, value in state.items() if value and not name.endswith(":feasible")}


def _value(kind: str, value: Any, ttl: int) -> Any:
    if kind == "dealt":
        return {name.decode(): v.decode().rstrip() for name, v in value.items() if name.startswith(b"node:")}
    if kind.startswith("task:"):
        return {**{name.decode(): _field(name.decode(), v) for name, v in value.items()}, "expires": ttl >= 0}
    if kind == "free":
        return value.rstrip(b"\0")
    if kind == "slots":
        return {seat.decode(): place.decode() for seat, place in value.items()}
    if isinstance(value, dict):
        return {name.decode(): _SINCE.sub(r"\1=T", v.decode()) for name, v in value.items()}
    if isinstance(value, set):
        return {name.decode() for name in value}
    return [v.decode() for v in value]


def _field(name: str, value: bytes) -> Any:
    if name.endswith("_ms"):
        return bool(value)
    if name == "history":
        return _SINCE.sub(r"\1=T", value.decode())
    return value if name.endswith("message") else value.decode()


def state_of_reference(reference: MemoryStore) -> State:
    """Return what a server would have, had it done what the reference did."""
    cluster = reference.cluster
    state: State = {
        **_queue(reference.queue),
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
        "}:dealt": {f"node:{name}": text.DEALT.write(**w._asdict()).rstrip() for name, w in cluster.dealt.items()},
        **{f"}}:stats:{name}": stats for name, stats in cluster.stats.items()},
    }
    return {key: value for key, value in state.items() if value}


def _queue(queue: Queue) -> State:
    taken, placed = {}, {}
    for id, task in queue.tasks.items():
        if task.state == "taken":
            taken[id] = task.scheduler
        if task.seat and task.state in ("placed", "running"):
            seat = task.seat
            placed[id] = f"p{task.partition} {seat.node}/{seat.slot} inc={seat.inc} attempt={task.attempt}"
    indexes = {
        "meta": _numbers({"submitted": queue.submitted, "version": queue.version, "waiters": " ".join(queue.waiters)}),
        "kinds": {kind: waiting.line() for kind, waiting in queue.kinds.items()},
        "changed": list(queue.changed),
        **{
            f"pending:{kind}": sorted(waiting.orders, key=lambda id: waiting.orders[id])
            for kind, waiting in queue.kinds.items()
        },
        "later": sorted(queue.later, key=lambda id: (queue.later[id], id)),
        "dead": sorted(queue.dead, key=lambda id: (queue.dead[id], id)),
        "expires": sorted(queue.expires, key=lambda id: (queue.expires[id], id)),
        "taken": taken,
        "placed": placed,
        "outbox": queue.outbox,
        "shapes": queue.shapes,
        "names": {digest: tasks.text for digest, tasks in queue.names.items()},
        "apps": sorted(queue.apps, key=lambda digest: queue.apps[digest]),
    }
    return {
        **{f":q0}}:{kind}": value for kind, value in indexes.items()},
        **{f":q0}}:task:{id}": _record(task) for id, task in queue.tasks.items()},
    }


def _numbers(values: dict[str, int | str]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value}


def _record(task: Task) -> State:
    record: State = {
        "state": task.state,
        "name": task.job.name,
        "needs": task.job.needs,
        "message": task.job.message,
        **{name: value or None for name, value in task.job.options.items()},
        "publication": task.job.publication or None,
        "order": str(task.order),
        "attempt": task.attempt,
        "starts": str(task.starts),
        "scheduler": task.scheduler,
        "why": task.why,
        "cancel": task.cancel,
        "expires": task.kept_s is not None,
        "history": _history(task),
        "expires_ms": task.expires_ms is not None or None,
        **{f"{step}_ms": True for step in _STEPS if step in task.times},
    }
    if task.seat:
        record |= {
            "partition": str(task.partition),
            **{name: str(value) for name, value in task.seat._asdict().items()},
        }
    if task.next:
        job, due, expiry = task.next
        fields = {"name": job.name, "needs": job.needs, "message": job.message, "publication": job.publication}
        record |= {f"next_{field}": value for field, value in {**fields, **job.options}.items()}
        record |= {"next_due_ms": due is not None, "next_expires_ms": expiry is not None}
    return {field: value for field, value in record.items() if value is not None}


def _history(task: Task) -> str | None:
    return _SINCE.sub(r"\1=T", "\n".join(task.history)) or None


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
        "left": {node.name: amounts_text(node.left) for node in nodes if node.left},
        "nodes": {node.name: _node(node) for node in nodes},
        "alive": {
            n.name: text.COUNTER.write(inc=n.inc, moved=n.moved, since="T" if n.state == "down" else None)
            for n in nodes
        },
        "lost": partition.lost,
        "notes": {name: note for name, note in partition.notes.items() if note},
        **{f"inbox:{node.name}": [place.text for place in node.inbox] for node in nodes},
    }


def _node(node: NodeRecord) -> str:
    values = {field: getattr(node, field) for field in ("state", "inc", "drain", "first", "span", "score")}
    return text.NODE.write(**values, offer=node.offer.text)
