"""No message ends a worker: garbage in plain queues, odd headers of placed tasks, odd options of
calls. Promise 10 of docs/invariants.md.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from parsync_redis.errors import ParsyncError
from parsync_redis.model.ids import encode_id, new_id
from parsync_redis.model.task import FINAL, Submission
from parsync_redis.wire.message import make_message
from tests.kit.rig import APP, LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180
ADD = "tests.kit.apps.marks.add"

ODD: tuple[Any, ...] = (
    0,
    -1,
    1.5,
    10**400,
    float("nan"),
    float("inf"),
    1e308,
    True,
    "",
    "x",
    "\ud800",
    "2999-01-01T00:00:00",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    [],
    [5],
    [[5], None],
    [None, {"a": 1}],
    [1, 2],
    [1e300, 1e300],
    {},
    {"task": "x"},
    [{"task": ADD, "args": 5}],
    {"__type__": "datetime", "__value__": "x"},
)
"""Values that nobody expects, of every type that a message can carry."""

HEADERS = (
    "task",
    "id",
    "lang",
    "shadow",
    "eta",
    "expires",
    "retries",
    "timelimit",
    "ignore_result",
    "replaced_task_nesting",
    "stamped_headers",
    "stamps",
    "root_id",
    "parent_id",
    "group",
    "group_index",
    "origin",
    "argsrepr",
    "kwargsrepr",
    "meth",
    "parsync",
    "reply_to",
    "correlation_id",
    "delivery_info",
    "hostname",
    "args",
    "kwargs",
    "errbacks",
    "callbacks",
    "chain",
    "chord",
    "compression",
    "redelivered",
    "utc",
    "embed",
    "called_directly",
    "is_eager",
    "priority",
)
PROPERTIES = (
    "delivery_tag",
    "body_encoding",
    "delivery_info",
    "priority",
    "reply_to",
    "correlation_id",
    "delivery_mode",
)
OPTIONS = (
    "countdown",
    "eta",
    "expires",
    "time_limit",
    "soft_time_limit",
    "shadow",
    "ignore_result",
    "retries",
    "priority",
    "headers",
    "link",
    "link_error",
    "chain",
    "chord",
    "group_id",
    "group_index",
    "root_id",
    "parent_id",
    "reply_to",
    "correlation_id",
    "replaced_task_nesting",
    "stamped_headers",
    "argsrepr",
    "kwargsrepr",
    "serializer",
    "compression",
    "queue",
    "routing_key",
    "exchange",
    "task_id",
    "add_to_parent",
    "origin",
    "stamps",
    "parsync",
)


NODES = ("n1", "n2", "n3", "n4")
CELERYS = (
    "countdown",
    "eta",
    "expires",
    "stamped_headers",
    "queue",
    "task_id",
    "serializer",
    "compression",
)
"""Options that Celery itself reads, and for which Celery raises errors of its own."""


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with a scheduler and a node of each pool. The processes must live through all
    tests of this module.
    """
    rig = new_rig()
    rig.schedulers(1, lease_s=LONG_LEASE_S)
    for node, options in (
        ("n1", {"pool": "threads"}),
        ("n2", {}),
        ("n3", {"pool": "solo", "slots": 1}),
    ):
        rig.worker(node, up=False, **options)
    words = [
        "-m",
        "celery",
        "-A",
        APP,
        "worker",
        "-n",
        "n4@h",
        "--parsync-node",
        "n4",
        "-c",
        "1",
        "-l",
        "info",
    ]
    rig.stack.start("n4", [sys.executable, *words])  # with gossip
    rig.until_up(*NODES)
    return rig


@pytest.fixture(autouse=True)
def alive(rig: Rig) -> Iterator[None]:
    """Check after each test that the same processes are alive, and run a plain and a placed task on
    each node.
    """
    pids = {name: rig.pid(name) for name in rig.stack.processes}
    yield
    assert {name: rig.pid(name) for name in rig.stack.alive()} == pids
    assert rig.tasks.add.apply_async((1, 2), parsync=False).get(timeout=GET_S) == 3
    found: set[str] = set()
    for _ in range(50):
        found |= {
            result.get(timeout=GET_S)["node"]
            for result in [rig.tasks.where.delay() for _ in range(10)]
        }
        if found == {*NODES}:
            break
    assert found == {*NODES}, "each places and runs"
    rig.until_idle()


def payload(id: str) -> dict[str, Any]:
    """Return a sound message, as JSON has it."""
    fields: dict[str, Any] = json.loads(make_message(ADD, [1, 2], {}, id))
    return fields


def texts(value: Any) -> bytes:
    return json.dumps(value).encode(errors="surrogatepass")


def garbage() -> Iterator[bytes]:
    """Return messages that a thief puts into a plain queue."""
    yield from (
        b"x",
        b"",
        b"\xff\xfe",
        b"{",
        b"[" * 100_000,
        b"null",
        b"1",
        b'"a"',
        b"[]",
        b"{}",
        b"NaN",
        b"\0" * 1000,
    )
    yield from (
        b'{"__type__": "datetime", "__value__": "x"}',
        b'{"__type__": "uuid", "__value__": 1}',
    )
    sound = payload("plain")
    yield from (texts({**sound, part: value}) for part in sound for value in (*ODD, None))
    yield from (
        texts({key: value for key, value in sound.items() if key != part}) for part in sound
    )
    for part, names in (("headers", HEADERS), ("properties", PROPERTIES)):
        for name in names:
            yield from (texts({**sound, part: {**sound[part], name: value}}) for value in ODD)
            yield texts(
                {**sound, part: {key: value for key, value in sound[part].items() if key != name}}
            )
    for body in bodies():
        yield texts({**sound, "body": base64.b64encode(body).decode()})


def bodies() -> Iterator[bytes]:
    """Yield bodies of messages that are none."""
    yield from (
        b"",
        b"x",
        b"\xff",
        b"null",
        b"1",
        b"[]",
        b"[1]",
        b"[[], {}]",
        b"[[], {}, {}, {}]",
        b'{"args": 1, "kwargs": 2}',
    )
    wrong: tuple[Any, ...] = (1, "ab", None, {}, [])
    yield from (texts([args, kwargs, {}]) for args in wrong for kwargs in wrong)
    embed = ("callbacks", "errbacks", "chain", "chord")
    yield from (texts([[1, 2], {}, {name: value}]) for name in embed for value in ODD)
    yield from (texts([[1, 2], {}, value]) for value in ODD)
    yield texts({"task": ADD, "args": [1], "kwargs": {}, "id": 5, "eta": [], "retries": "x"})


@pytest.mark.one_server(0)
def test_garbage_on_the_channels_of_celery_is_dropped(rig: Rig):
    """Clients may publish events, to which workers with gossip listen; with `parsync acl --control`
    they broadcast.
    """
    db = rig.redis.connection_pool.connection_kwargs.get("db") or 0
    names = [f"/{db}.celeryev/worker.heartbeat", f"/{db}.celery.pidbox"]
    rig.until(lambda: rig.redis.publish(names[0], "x"), "n4 listens")
    for name in names:
        for text in garbage():
            rig.redis.publish(name, text)
    for process in NODES:
        rig.until(
            lambda name=process: "it is no task" in rig.lines(name),  # type: ignore[misc]
            f"{process} has dropped some",
        )


@pytest.mark.one_server(0)
def test_garbage_in_a_plain_queue_is_dropped(rig: Rig):
    found = [*garbage()]
    for at in range(0, len(found), 100):
        rig.redis.lpush("celery", *found[at : at + 100])
        rig.until(
            lambda: not rig.redis.llen("celery"), f"the queue is empty after {at} of {len(found)}"
        )
    rig.until(
        lambda: "because it is no task" in "".join(map(rig.lines, ("n1", "n2", "n3"))), "it is said"
    )
    rig.until(lambda: not rig.redis.hlen("unacked"), "nothing is left to be delivered again")


def until_final(rig: Rig, ids: list[str]) -> dict[str, str]:
    """Wait until tasks have ended; return the state of each."""

    def states() -> dict[str, str]:
        return dict(
            zip(ids, [str(status.state) for status in rig.client.statuses(ids)], strict=True)
        )

    rig.until(
        lambda: all(state in FINAL for state in states().values()), f"{len(ids)} tasks have ended"
    )
    return states()


def test_a_placed_task_with_an_odd_message_ends(rig: Rig):
    made = []
    for part, names in (("headers", HEADERS), ("properties", PROPERTIES)):
        for name in names:
            for value in ODD:
                found = payload(id := new_id())
                found[part][name] = value
                if name != "eta" or not (isinstance(value, str) and value > "2900"):
                    made.append((id, texts(found)))
    packed = [base64.b64encode(body).decode() for body in bodies()]
    made += [(id := new_id(), texts({**payload(id), "body": body})) for body in packed]
    for at in range(0, len(made), 100):
        tasks = [Submission(encode_id(id), ADD, message) for id, message in made[at : at + 100]]
        rig.store.run(rig.store.commands.submit(tasks))
        until_final(rig, [id for id, _ in made[at : at + 100]])
    rig.until_idle()


def test_a_message_with_an_eta_far_ahead_holds_no_slot(rig: Rig):
    message = payload(id := new_id())
    message["headers"]["eta"] = "2999-01-01T00:00:00+00:00"
    rig.store.run(rig.store.commands.submit([Submission(id, ADD, texts(message))]))
    rig.until(
        lambda: rig.state.zscore(rig.store.keys.in_shard_of("later", id), id), "it is delayed"
    )
    rig.until_idle()
    assert "must not start before 2999" in rig.status(id).why
    assert rig.client.cancel(id)
    assert rig.status(id).state == "cancelled"


def test_a_message_with_an_eta_that_is_near_runs_then(rig: Rig):
    message = payload(id := new_id())
    message["headers"]["eta"] = "2001-01-01T00:00:00"
    rig.store.run(rig.store.commands.submit([Submission(id, ADD, texts(message))]))
    assert rig.until_state(id, "succeeded", "failed").state == "succeeded"


def test_odd_options_of_a_call_are_one_error_or_a_task_that_ends(rig: Rig):
    submitted = []
    refused = 0
    strange = []
    for option in OPTIONS:
        for value in ODD:
            try:
                result = rig.tasks.add.apply_async((1, 2), **{option: value})
            except ParsyncError as error:
                refused += 1
                if not str(error) or "\n" in str(error):
                    strange.append(f"{option}={value!r:.60}: {error!r:.200}")
            except Exception as error:
                if option in CELERYS and str(error):
                    continue
                strange.append(f"{option}={value!r:.60}: {type(error).__name__} {error!s:.200}")
            else:
                submitted.append((option, value, str(result.id)))
    assert not strange, "\n".join(strange)
    ids = [id for _, _, id in submitted]
    waiting = {
        id
        for option, _, id in submitted
        if option in ("countdown", "eta", "queue", "routing_key", "exchange")
    }
    rig.client.cancel_many([*waiting])
    until_final(rig, ids)
    assert refused > 100
    assert len(submitted) > 100
