"""A message made here is what Celery would have published, and kombu and a worker read it."""

import json
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from celery import Celery
from celery.worker.request import Request
from kombu import Connection
from kombu.serialization import prepare_accept_content
from kombu.transport.virtual import Message

from parsync_redis.errors import BrokenContract, InvalidInput
from parsync_redis.wire.envelope import envelope, open_envelope
from parsync_redis.wire.message import make_message
from tests.kit.waiting import child_ended, read_some

ARGUMENTS = [
    ((), {}),
    ((1, 2.5, True, None), {}),
    (("plain", "it's", 'say "x"', "back\\slash", "é\n\0"), {"k": "v"}),
    (([1, [2, [3, [4]]]], {"a": {"b": (1, 2)}}), {"deep": {"x": [{}]}}),
    ((datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.5"), b"\xff\0"), {}),
    (("x" * 3000,), {"long": list(range(2000))}),
    (["a", "list"], {}),
    (("\0id", "\0args", "\\u0000id"), {"\0kwargs": "\0body"}),
]


@pytest.fixture
def channel():
    with Connection("memory://") as connection:
        yield connection.channel()


@pytest.fixture(scope="module")
def app():
    app = Celery("test", broker="memory://", backend=None, set_as_current=False)
    # kombu keeps one memory for all tests of a process
    app.conf.task_default_queue = "test_message"

    @app.task(name="t.add", ignore_result=True)
    def add(*args, **kwargs):
        """Do nothing."""

    return app


def published(app, args, kwargs, **options):
    """Return the payload that Celery itself puts on the queue."""
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        queue = app.conf.task_default_queue
        app.amqp.queues[queue](channel).declare()
        app.send_task("t.add", args, kwargs, task_id="id-1", connection=connection, **options)
        return channel._get(queue)


def comparable(payload):
    properties = dict(payload["properties"])
    for varies in ("reply_to", "delivery_tag", "delivery_info", "expiration"):
        properties.pop(varies, None)
    return {**payload, "properties": properties}


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS)
@pytest.mark.parametrize(
    "options",
    [
        {"ignore_result": True},
        {"ignore_result": True, "time_limit": 30, "soft_time_limit": 2.5},
        {"ignore_result": True, "shadow": "s", "headers": {"mine": [1]}},
        {"ignore_result": True, "link": {"task": "t.next"}, "root_id": "root"},
    ],
)
def test_a_message_is_what_celery_publishes(app, args, kwargs, options):
    ours = open_envelope(make_message("t.add", args, kwargs, "id-1", **options))
    theirs = json.loads(json.dumps(published(app, args, kwargs, **options)))
    assert comparable(ours) == comparable(theirs)


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS)
def test_a_worker_reads_the_message_that_was_made(app, channel, args, kwargs):
    message = Message(open_envelope(make_message("t.add", args, kwargs, "id-1")), channel=channel)
    got_args, got_kwargs, embed = message.payload
    assert json.loads(json.dumps(list(args), default=str)) == json.loads(
        json.dumps(got_args, default=str)
    )
    assert got_kwargs.keys() == kwargs.keys()
    assert embed == {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    request = Request(message, app=app, task=app.tasks["t.add"])
    assert (request.id, request.name, request.correlation_id) == ("id-1", "t.add", "id-1")
    assert message.delivery_info == {"exchange": "", "routing_key": ""}


def test_rich_values_come_back_as_they_were(channel):
    values = (datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.5"), b"\xff\0")
    message = Message(open_envelope(make_message("t.add", values, None, "id-1")), channel=channel)
    assert tuple(message.payload[0]) == values


@pytest.mark.parametrize("serializer", ["pickle", "msgpack", "yaml"])
def test_another_serializer_may_be_chosen(channel, serializer):
    pytest.importorskip(serializer)
    raw = make_message("t.add", [1, "x"], {"k": 2}, "id-1", serializer=serializer)
    message = Message(
        open_envelope(raw), channel=channel, accept=prepare_accept_content([serializer])
    )
    args, kwargs, _ = message.decode()
    assert (list(args), kwargs) == ([1, "x"], {"k": 2})


@pytest.mark.parametrize("seconds", [60, 0.5])
def test_expires_in_seconds_is_a_moment_with_its_zone(seconds):
    before = datetime.now(UTC)
    headers = open_envelope(make_message("t.add", (), None, "id-1", expires=seconds))["headers"]
    at = datetime.fromisoformat(headers["expires"])
    assert before <= at - timedelta(seconds=seconds) <= datetime.now(UTC)
    assert headers["eta"] is None


def test_expires_may_be_a_datetime_and_one_without_zone_is_utc():
    for given in (datetime(2030, 1, 2, 3, tzinfo=UTC), datetime(2030, 1, 2, 3)):  # noqa: DTZ001
        headers = open_envelope(make_message("t.add", (), None, "id-1", expires=given))["headers"]
        assert headers["expires"] == "2030-01-02T03:00:00+00:00"


def test_messages_of_one_name_differ_in_what_was_given():
    first = open_envelope(make_message("t.add", (1,), {"a": 1}, "id-1"))
    second = open_envelope(make_message("t.add", (2,), None, "id-2"))
    assert (first["headers"]["id"], second["headers"]["id"]) == ("id-1", "id-2")
    assert second["headers"]["root_id"] == second["properties"]["correlation_id"] == "id-2"
    assert (first["headers"]["argsrepr"], second["headers"]["argsrepr"]) == ("(1,)", "(2,)")
    assert (first["headers"]["kwargsrepr"], second["headers"]["kwargsrepr"]) == ("{'a': 1}", "{}")


@pytest.mark.parametrize("args", [(), (1,)])
@pytest.mark.parametrize("mark", ["id", "args", "kwargs", "body", "expires"])
def test_a_name_or_an_id_may_look_like_a_placeholder_of_the_template(args, mark):
    looks = f'"\\u0000{mark}"'
    payload = open_envelope(make_message(looks, args, None, looks))
    assert (payload["headers"]["task"], payload["headers"]["id"]) == (looks, looks)
    assert payload["headers"]["argsrepr"] == repr(args)


@pytest.mark.parametrize("args", [(), (1,)])
def test_a_message_made_after_a_fork_names_the_child(args):
    def origin() -> str:
        return str(open_envelope(make_message("t.add", args, None, "id-1"))["headers"]["origin"])

    before = origin()
    (ours, theirs) = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(theirs, origin().encode())
        finally:
            os._exit(0)
    os.close(theirs)
    child_ended(child)
    said = read_some(ours, 1000, "the child's generation").decode()
    assert said == before.replace(f"gen{os.getpid()}@", f"gen{child}@")
    os.close(ours)


@pytest.mark.parametrize(
    ("args", "kwargs", "options", "says"),
    [
        ((1, {2}), None, {}, "argument args[1] of task t.add cannot be packed as json: set {2}"),
        (
            (1,),
            {"f": print},
            {},
            "argument f of task t.add cannot be packed as json: builtin_function_or_method",
        ),
        (
            (object(),),
            None,
            {"serializer": "msgpack"},
            "argument args[0] of task t.add cannot be packed as msgpack",
        ),
        ("text", None, {}, "args of task t.add must be a list or tuple, not str 'text'"),
        (5, None, {}, "args of task t.add must be a list or tuple, not int 5"),
        ((), [1], {}, "kwargs of task t.add must be a mapping from names to values, not [1]"),
        ((), {1: 2}, {}, "kwargs of task t.add must be a mapping from names to values"),
        (
            (),
            None,
            {"expires": -1},
            "expires=-1 is not valid: it must be a number of seconds above 0, or a datetime",
        ),
        ((), None, {"expires": "soon"}, "expires='soon' is not valid"),
        (
            (),
            None,
            {"time_limit": 0},
            "time_limit=0 is not valid: it must be a number of seconds above 0",
        ),
        ((), None, {"soft_time_limit": "x"}, "soft_time_limit='x' is not valid"),
        ((), None, {"serializer": "xml"}, "serializer='xml' is not known"),
        ((), None, {"headers": {"x": {1}}}, "the headers of task t.add cannot be packed as json"),
        ((), None, {"quue": "q"}, "unknown option 'quue': known are expires, time_limit"),
    ],
)
def test_a_call_that_cannot_be_sent_is_refused(args, kwargs, options, says):
    with pytest.raises(InvalidInput) as caught:
        make_message("t.add", args, kwargs, "id-1", **options)
    assert says in str(caught.value)


def test_an_argument_that_contains_itself_is_refused():
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(InvalidInput, match=r"argument args\[0\]"):
        make_message("t.add", (circle,), None, "id-1")


def test_an_envelope_carries_what_celery_had_packed(channel):
    raw = envelope(
        b"\x80body",
        "application/x-python-serialize",
        "binary",
        {"id": "i", "task": "t"},
        {"priority": 7},
    )
    message = Message(open_envelope(raw), channel=channel)
    assert (message.body, message.content_type, message.properties["priority"]) == (
        b"\x80body",
        "application/x-python-serialize",
        7,
    )
    assert (message.delivery_tag, message.headers["task"]) == ("i", "t")


@pytest.mark.parametrize("raw", [b"", b"nonsense", b"[]", b"{}", b'{"body": ""}'])
def test_a_malformed_message_raises_a_broken_contract(raw):
    with pytest.raises(BrokenContract, match="not a task message"):
        open_envelope(raw)


def test_whether_a_result_is_stored_is_for_the_task_to_say_where_it_runs_unless_the_caller_did() -> (
    None
):
    some: tuple[dict[str, Any], ...] = ({}, {"link": []})
    for options in some:
        assert (
            open_envelope(make_message("a", (), {}, "x", **options))["headers"]["ignore_result"]
            is None
        )
        message = make_message("a", (), {}, "x", ignore_result=True, **options)
        assert open_envelope(message)["headers"]["ignore_result"] is True
