"""Damaged and foreign messages and records: nobody dies of them, they are put away, and their tasks
end. Promise 10 of docs/invariants.md.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from parsync_redis.store.repair import quarantine
from parsync_redis.store.repair.repair import repair_keys
from parsync_redis.store.store import Store
from tests.kit.rig import LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with a scheduler and two nodes. The processes must live through all tests of
    this module.
    """
    rig = new_rig()
    rig.schedulers(1, lease_s=LONG_LEASE_S)
    rig.worker("n1", slots=2, pool="threads", labels={"at": "n1"})
    rig.worker("n2", slots=2)
    return rig


@pytest.fixture(autouse=True)
def alive(rig: Rig) -> Iterator[None]:
    """Check after each test that the same processes go on, and place and run tasks, whatever the
    test has damaged.
    """
    pids = {name: rig.pid(name) for name in rig.stack.processes}
    quarantine.clear(rig.store)
    yield
    assert set(rig.stack.alive()) == set(pids), rig.stack.alive()
    results = [
        rig.tasks.where.apply_async(parsync={"require": {"at": "n1"}}),
        *(rig.tasks.where.delay() for _ in range(4)),
    ]
    assert all(result.get(timeout=GET_S)["node"] for result in results)
    rig.until_idle()


def on_n1(**more: Any) -> dict[str, Any]:
    return {"parsync": {"require": {"at": "n1"}, **more}}


def inbox(rig: Rig, node: str = "n1") -> str:
    return rig.store.keys.inbox(rig.node(node).partition, node)


def whys(rig: Rig) -> list[str]:
    return [f"{entry.where} {entry.why}" for entry in quarantine.entries(rig.store)]


def celery_message(
    task: str, body: bytes | str, content_type: str = "application/json", **headers: Any
) -> bytes:
    packed = base64.b64encode(body if isinstance(body, bytes) else body.encode()).decode()
    properties = {
        "delivery_tag": "t",
        "body_encoding": "base64",
        "delivery_info": {"exchange": "", "routing_key": "x"},
    }
    headers = {
        "lang": "py",
        "task": task,
        "id": "x",
        "root_id": "x",
        "parent_id": None,
        "group": None,
        **headers,
    }
    return json.dumps(
        {
            "body": packed,
            "content-encoding": "utf-8",
            "content-type": content_type,
            "headers": headers,
            "properties": properties,
        }
    ).encode()


WHERE = "tests.kit.apps.marks.where"
ARGS = '[[], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
MESSAGES = {
    "not json": b"not json",
    "a number": b"42",
    "a list": b"[]",
    "an object": b"{}",
    "no properties": b'{"body": "", "headers": {}, "content-type": "application/json"}',
    "no delivery_tag": b'{"body": "", "headers": {}, "properties": {}, "content-type": "application/json"}',
    "bad base64": celery_message(WHERE, ARGS).replace(base64.b64encode(ARGS.encode())[:20], b"%%%"),
    "pickle": celery_message(WHERE, b"\x80\x04N.", "application/x-python-serialize"),
    "an unknown task": celery_message("no.such.task", ARGS),
    "bad args": celery_message(WHERE, '"args"'),
    "100,000 deep": b"[" * 100_000,
    "a 5,000-digit number": b'{"body": ' + b"9" * 5000 + b"}",
    "a foreign Celery message": celery_message(WHERE, ARGS),
    "not UTF-8": b"\xff\xfe\x00",
    "nothing": b"",
    "a garbled doorbell": b"a 1@1 x 1 1",
    "half a doorbell": b"a 1@1 0",
    "two doorbells": b"a 1@1 0 1 1\na 1@1 0 1 1",
}


def test_a_malformed_doorbell_goes_to_quarantine_and_the_worker_goes_on(rig: Rig) -> None:
    rig.state.lpush(inbox(rig), *MESSAGES.values())
    rig.until(lambda: len(whys(rig)) >= len(MESSAGES), "each is in quarantine")
    by_data = {entry.data: entry for entry in quarantine.entries(rig.store)}
    for name, message in MESSAGES.items():
        entry = by_data[message[: quarantine.MAX_VALUE_BYTES]]
        assert (entry.where, entry.size) == (inbox(rig), len(message)), name
    assert "not a doorbell: int 42" in by_data[b"42"].why
    assert (
        "a message of task 'no.such.task'"
        in by_data[MESSAGES["an unknown task"][: quarantine.MAX_VALUE_BYTES]].why
    )
    rig.until(
        lambda: rig.lines("n1").count("see `parsync doctor quarantine`") >= len(MESSAGES),
        "each is logged",
    )
    assert "Unrecoverable error" not in rig.lines("n1")
    assert "Connection to broker lost" not in rig.lines("n1")


def test_an_inbox_that_is_no_list_is_deleted_and_its_doorbells_ring_again(rig: Rig) -> None:
    rig.state.set(inbox(rig), "x")
    assert rig.tasks.where.apply_async(**on_n1()).get(timeout=GET_S)["node"] == "n1"
    assert any("cannot be read" in why or "another type" in why for why in whys(rig))


@pytest.mark.parametrize(
    "message", [b"", b"\xff{", b"[" * 100_000, MESSAGES["pickle"], MESSAGES["bad args"], b"7"]
)
def test_a_task_whose_message_cannot_be_run_fails_and_says_why(rig: Rig, message: bytes) -> None:
    with rig.paused("scheduler-1"):
        id = rig.client.submit(WHERE)
        rig.state.hset(rig.store.keys.in_shard_of("messages", id), id, message)
    status = rig.until_state(id, "failed")
    assert "its message cannot be run" in status.why
    assert rf"{rig.store.keys.in_shard_of('messages', id)}\x20{id} {status.why}" in whys(rig)
    rig.until_idle()


def line_of(rig: Rig, id: str) -> bytes:
    """Return the line of a task."""
    found = rig.state.hget(rig.store.keys.in_shard_of("tasks", id), id)
    assert isinstance(found, bytes)
    return found


@pytest.mark.parametrize(
    ("old", "new", "flaw"),
    [
        (b".+", b"x", "line"),
        (b".+", b"\xff", "line"),
        (b".+", b"", "line"),
        (b"^0@", b"x@", "line"),
        (b"slots=1", b"slots=x", "line"),
        (b"$", b" gpu=x", "needs"),
    ],
)
def test_a_task_whose_line_cannot_be_read_fails_and_says_why(
    rig: Rig, old: bytes, new: bytes, flaw: str
) -> None:
    with rig.paused("scheduler-1"):
        id = rig.client.submit(WHERE)
        rig.state.hset(
            rig.store.keys.in_shard_of("tasks", id), id, re.sub(old, new, line_of(rig, id), count=1)
        )
    assert rig.until_state(id, "failed").why == f"its record is damaged: {flaw}"
    rig.until(
        lambda: any(
            rf"{rig.store.keys.in_shard_of('tasks', id)}\x20{id}" in why for why in whys(rig)
        ),
        "in quarantine",
    )


@pytest.mark.parametrize(
    "options", ["x", "starts=x", "ran=soon", "max=many", "pub=?", "expires=never", ",,="]
)
def test_an_option_that_no_run_rests_on_may_be_damaged(rig: Rig, options: str) -> None:
    with rig.paused("scheduler-1"):
        id = rig.client.submit(WHERE)
        words = line_of(rig, id).split(b" ", 5)
        rig.state.hset(
            rig.store.keys.in_shard_of("tasks", id),
            id,
            b" ".join([*words[:4], options.encode(), words[5]]),
        )
    rig.until_state(id, "succeeded")


@pytest.mark.parametrize("kind", ["nodes", "alive", "left", "slots"])
def test_a_garbled_line_of_a_partition_is_repaired(rig: Rig, kind: str) -> None:
    result = rig.tasks.gated.apply_async((f"held {kind}".replace(" ", "-"),), **on_n1())
    rig.until(lambda: rig.marks("held", f"held-{kind}"), "a task holds a slot")
    key = rig.store.keys.partition(rig.node("n1").partition, kind)
    for text in (b"\xff\xfe", b"up inc=3", b"inc=1 moved=x"):
        fields = rig.state.hkeys(key) or [b"n1/0" if kind == "slots" else b"n1"]
        rig.state.hset(key, fields[0], text)
        if kind == "left":  # a ledger is looked at only when the partition is read
            rig.tasks.where.apply_async(**on_n1()).get(timeout=GET_S)
        rig.until(lambda text=text: text not in rig.state.hvals(key), f"{text!r} in {kind} is gone")  # type: ignore[misc]
    rig.open()
    assert result.get(timeout=GET_S)
    rig.until_state(result, "succeeded")


def make_of_another_type(rig: Rig, key: str, type: str) -> None:
    """Replace a key at once: between two commands a process might write it again."""
    write = {
        "string": ("SET", key, "x"),
        "list": ("LPUSH", key, "x"),
        "zset": ("ZADD", key, 1, "x"),
    }[type]
    with rig.state.pipeline(transaction=True) as pipe:
        pipe.delete(key)
        pipe.execute_command(*write)
        pipe.execute()


@pytest.mark.parametrize(
    "kind", ["meta", "free", "left", "alive", "lost", "slots", "nodes", "notes"]
)
def test_a_partition_with_a_key_of_another_type_is_made_anew(rig: Rig, kind: str) -> None:
    store = rig.store
    p = rig.node("n1").partition
    key = store.keys.partition(p, kind)
    make_of_another_type(rig, key, "list" if kind == "free" else "string")
    assert (
        rig.tasks.where.apply_async(**on_n1(wait_for_capacity=True)).get(timeout=GET_S)["node"]
        == "n1"
    )
    rig.until(lambda: any(key in why for why in whys(rig)), f"{key} is in quarantine")


@pytest.mark.parametrize("kind", ["names", "apps"])
def test_a_key_that_nodes_fill_is_restored_after_a_wrong_type(rig: Rig, kind: str) -> None:
    key = rig.store.keys.queue(kind)
    before = rig.state.type(rig.store.keys.queue(kind))
    make_of_another_type(rig, key, "list")
    rig.until(lambda: rig.state.type(key) == before, f"{kind} is what it was")
    rig.until(
        lambda: (
            rig.store.client.exists(rig.store.keys.queue("apps"), rig.store.keys.queue("names"))
            == 2
        ),
        "both",
    )
    assert rig.tasks.add.delay(1, 2).get(timeout=GET_S) == 3
    assert rig.client.wait([id := rig.client.submit(WHERE)], GET_S)[id].state == "succeeded"


@pytest.mark.parametrize("kind", ["feasible", "outbox"])
def test_a_key_of_the_queue_whose_content_comes_back_may_be_of_another_type(
    rig: Rig, kind: str
) -> None:
    store: Store = rig.store
    make_of_another_type(rig, store.keys.queue(kind), "zset")
    id = rig.client.submit(WHERE, countdown=600) if kind == "outbox" else ""
    key = store.keys.queue(kind)  # a scheduler or an agent may have met it before
    assert repair_keys(store, [key]) or rig.state.type(key) != b"zset"
    if id:
        assert rig.client.cancel(id) == "cancelled"


@pytest.mark.parametrize("kind", ["schedulers", "leader", "stats"])
def test_a_key_of_the_cluster_of_another_type_is_made_anew(rig: Rig, kind: str) -> None:
    keys = rig.store.keys
    name = rig.client.store.hash(keys.shared("schedulers")).popitem()[0]
    key = keys.stats(name) if kind == "stats" else keys.shared(kind)
    make_of_another_type(rig, key, "string")
    rig.until(lambda: rig.state.type(key) == b"hash", f"{kind} is a hash again")
    rig.until(lambda: any(key in why for why in whys(rig)), f"{key} is in quarantine")


LINES = [
    ("schedulers", "ghost", "x"),
    ("schedulers", b"\xff", "1"),
    ("leader", "holder", "x"),
    ("dealt", "node:n1", "x"),
]


@pytest.mark.parametrize(("kind", "field", "text"), LINES)
def test_a_garbled_line_of_the_cluster_is_lived_with(
    rig: Rig, kind: str, field: Any, text: str
) -> None:
    rig.state.hset(rig.store.keys.shared(kind), field, text)
    if kind != "dealt":
        rig.until(
            lambda: rig.state.hget(rig.store.keys.shared(kind), field) != text.encode(),
            "it is gone",
        )


@pytest.mark.parametrize("index", ["taken", "running"])
@pytest.mark.parametrize("text", [b"x", b"\xff"])
def test_a_garbled_line_of_an_index_strands_no_task(rig: Rig, index: str, text: bytes) -> None:
    key = rig.store.keys.queue(index)
    result = rig.tasks.gated.apply_async(("line",), **on_n1())
    rig.until(lambda: rig.marks("held", "line"), "it runs")
    if index == "running":
        rig.state.hset(key, str(result), text)
    rig.state.hset(key, "a-stranger", text)
    rig.until(lambda: rig.state.hget(key, "a-stranger") is None, "the stranger is gone")
    rig.open()
    rig.until_state(result, "succeeded")


@pytest.mark.parametrize("key", ["tasks", "messages", "running", "taken"])
def test_a_running_task_of_which_something_is_garbled_ends_and_its_slot_is_free(
    rig: Rig, key: str
) -> None:
    result = rig.tasks.gated.apply_async((f"run-{key}",), **on_n1())
    rig.until(lambda: rig.marks("held", f"run-{key}"), "it runs")
    rig.state.hset(rig.store.keys.in_shard_of(key, str(result)), str(result), b"\xff?")
    rig.open()
    rig.until_state(result, *(["succeeded", "failed"] if key == "messages" else ["succeeded"]))
    rig.until_idle()


def test_a_verdict_that_is_none_is_put_away(rig: Rig) -> None:
    rig.state.lpush(rig.store.keys.queue("outbox"), b"\xff", b"x", b"id lost why")
    outbox = rig.store.keys.queue("outbox")
    rig.until(lambda: sum(outbox in why for why in whys(rig)) == 3, "they are in quarantine")
    assert rig.state.llen(outbox) == 0
