"""Options of tasks and of apply_async."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, chord
from kombu import Exchange, Producer, Queue

from parsync_redis import Parsync

from ..app import PARSYNC
from ..case import MOMENT_S, Context, area, raised

case = area("Options of tasks and calls")


def now(seconds: float) -> datetime:
    """Return a moment from now on."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


case(
    "ignore_result",
    "of the task: nothing is stored",
    lambda c: [r := c.t.silent.delay(c.key), c.marks(1), r.state][1:],
    short=True,
)
case(
    "ignore_result",
    "of the call: nothing is stored",
    lambda c: [
        r := c.t.marks.apply_async((c.key,), ignore_result=True),
        c.marks(1),
        time.sleep(0.3),
        r.state,
    ][1:],
)
case(
    "ignore_result=False",
    "of the call, over the task's",
    lambda c: c.end(c.t.silent.apply_async((c.key,), ignore_result=False)),
)
case(
    "ignore_result",
    "a failure is not stored",
    lambda c: [r := c.t.silent.delay(c.key, True), c.marks(1), time.sleep(0.3), r.state][1:],
)
case(
    "store_errors_even_if_ignored",
    "a failure is stored",
    lambda c: [r := c.t.silent_but.delay(c.key), c.until(lambda: r.state == "FAILURE"), r.result][
        1:
    ],
)
case(
    "task_annotations",
    "of the app",
    lambda c: [r := c.t.annotated.delay(c.key), c.marks(1), time.sleep(0.3), r.state][1:],
)
case(
    "track_started",
    "STARTED",
    lambda c: [r := c.t.tracked.delay(c.key), c.marks(1), r.state, c.open(), c.end(r)][1:],
)
case("acks_late", "the value", lambda c: c.end(c.t.late.delay(c.key)))
case(
    "acks_late, acks_on_failure_or_timeout=False",
    "a failure is not put back",
    lambda c: [c.end(c.t.late_unacked.delay(c.key)), c.marks()],
)
case(
    "time_limit",
    "of the task",
    lambda c: [c.end(c.t.hard.delay(c.key)), c.marks()],
    pools=("prefork",),
    short=True,
)
case(
    "time_limit",
    "of the call",
    lambda c: c.end(c.t.sleeps.apply_async((c.key, 20), time_limit=0.6)),
    pools=("prefork",),
)
case("soft_time_limit", "caught", lambda c: c.end(c.t.soft.delay(c.key, True)), pools=("prefork",))
case(
    "soft_time_limit",
    "not caught",
    lambda c: c.end(c.t.soft.delay(c.key, False)),
    pools=("prefork",),
)
case(
    "soft_time_limit",
    "of the call",
    lambda c: c.end(c.t.soft.apply_async((c.key, True), soft_time_limit=0.2)),
    pools=("prefork",),
)
case(
    "time_limit, soft_time_limit",
    "request.timelimit",
    lambda c: c.t.fields.apply_async(("timelimit",), time_limit=9, soft_time_limit=8).get(
        timeout=c.s
    ),
)
case(
    "soft_time_limit above time_limit",
    "refused",
    lambda c: raised(lambda: c.t.add.apply_async((1, 2), soft_time_limit=9, time_limit=8)),
)
case(
    "rate_limit",
    "of the task: some wait",
    lambda c: [
        [c.t.limited.delay(c.key) for _ in range(3)] and 0,
        c.until(lambda: c.marks(1)),
        time.sleep(0.5),
        len(c.marks()),
    ],
    alone=True,
)
for how in ("json", "pickle", "yaml", "msgpack"):
    case(
        f"serializer={how}",
        "arguments arrive",
        lambda c, how=how: c.end(
            c.t.echo.apply_async(([1, "two", None],), {"k": 2.5}, serializer=how)
        ),
    )
case(
    "serializer=pickle",
    "values that json does not know",
    lambda c: c.end(c.t.pickled.delay({1, 2})),
)
case(
    "serializer", "unknown", lambda c: raised(lambda: c.t.echo.apply_async((1,), serializer="nope"))
)
case(
    "serializer=json",
    "a value that json does not know",
    lambda c: type(raised(lambda: c.t.echo.delay(object()))).__name__,
)
case(
    "serializer=json",
    "datetime, UUID, Decimal",
    lambda c: c.end(c.t.echo.delay(datetime(2026, 1, 2, tzinfo=UTC))),
)
for how in ("gzip", "bzip2", "zlib"):
    case(
        f"compression={how}",
        "arguments arrive",
        lambda c, how=how: c.end(c.t.echo.apply_async(("x" * 3000,), compression=how))[0],
    )
case(
    "compression",
    "unknown",
    lambda c: type(raised(lambda: c.t.echo.apply_async((1,), compression="nope"))).__name__,
)
case(
    "expires",
    "seconds, over: revoked",
    lambda c: [c.end(c.t.marks.apply_async((c.key,), expires=0.2, countdown=0.8)), c.marks()],
    short=True,
)
case(
    "expires",
    "a moment, past: revoked",
    lambda c: [c.end(c.t.marks.apply_async((c.key,), expires=now(-1))), c.marks()],
)
case("expires", "not over", lambda c: c.end(c.t.marks.apply_async((c.key,), expires=60)))
case(
    "expires",
    "of the task",
    lambda c: [c.end(c.t.perishable.apply_async((c.key,), countdown=0.8)), c.marks()],
)
case(
    "expires",
    "text that is not a time",
    lambda c: type(raised(lambda: c.t.marks.apply_async((c.key,), expires="tomorrow"))).__name__,
)
case("countdown", "not before", lambda c: _waits(c, countdown=0.4), short=True)
case("eta", "not before", lambda c: _waits(c, eta=now(0.4)))
case("eta", "past: at once", lambda c: c.end(c.t.marks.apply_async((c.key,), eta=now(-60))))
case(
    "eta",
    "without a zone",
    lambda c: c.end(c.t.marks.apply_async((c.key,), eta=datetime.now(UTC).replace(tzinfo=None))),
)
case("countdown=0", "at once", lambda c: c.end(c.t.marks.apply_async((c.key,), countdown=0)))
case(
    "countdown", "below 0: at once", lambda c: c.end(c.t.marks.apply_async((c.key,), countdown=-5))
)
case(
    "countdown=1e10",
    "refused, or never",
    lambda c: _kind(raised(lambda: c.t.marks.apply_async((c.key,), countdown=1e10))),
)
case(
    "eta",
    "request.eta while it runs",
    lambda c: [
        c.t.fields.apply_async(("eta",), eta=(at := now(0.1))).get(timeout=c.s)["eta"]
        == at.isoformat(),
        c.t.fields.apply_async(("eta",), eta=(past := now(-60))).get(timeout=c.s)["eta"]
        == past.isoformat(),
        bool(c.t.fields.apply_async(("eta",), countdown=0.1).get(timeout=c.s)["eta"]),
    ],
    short=True,
)
case(
    "eta",
    "request.eta of a chord's header with a countdown",
    lambda c: [
        bool(eta)
        for (eta,) in c.end(chord([c.t.etas.s().set(countdown=0.1)] * 2)(c.t.echo.s()))[1][0][0]
    ],
)
case(
    "event task-received",
    "its eta",
    lambda c: bool(_received(c, c.t.add.apply_async((1, 2), countdown=0.1), "eta")[0][0]),
    differs="a worker receives a placed task when it is due, with no `eta` to wait for; the task reads `request.eta`",
)
case(
    "eta",
    "request.eta of a retry",
    lambda c: [[c.end(c.t.retries_with_eta.delay(c.key)) and 0], c.marks(2)],
)
case(
    "headers",
    "of one's own",
    lambda c: c.t.headers.apply_async(headers={"x-a": [1], "x-b": {"c": None}}).get(timeout=c.s),
)
case(
    "shadow",
    "another name in logs and events",
    lambda c: _received(c, c.t.add.apply_async((1, 2), shadow="other"), "name"),
)
case(
    "argsrepr, kwargsrepr",
    "of one's own",
    lambda c: _received(
        c,
        c.t.echo.apply_async((1,), {"k": 1}, argsrepr="secret", kwargsrepr="hidden"),
        "args",
        "kwargs",
    ),
)
case(
    "typing=False",
    "wrong arguments are not refused at the call",
    lambda c: _kind(raised(lambda: c.t.untyped.delay(1, 2))),
)
case(
    "args",
    "of 4 MB",
    lambda c: _kind(raised(lambda: c.t.silent.delay("x" * 4_000_000))),
    differs="refused at the call with `InvalidInput`: a message has at most 2 MiB; put large data where the worker can "
    "fetch it, and pass its address",
)
case(
    "task_protocol = 1",
    "a task is sent",
    lambda c: _kind(raised(lambda: _of_protocol_1(c).tasks["parity.add"].delay(1, 2))),
    differs="refused at the call with `InvalidInput`: placed tasks need Celery's default, task protocol 2",
)
case(
    "an option that Celery does not know",
    "`resources=` in a call",
    lambda c: _kind(raised(lambda: c.t.silent.apply_async((c.key,), resources={"mem": 1}))),
    differs="refused at the call with `InvalidInput`: an option of parsync belongs into `parsync={...}`; plain Celery "
    "makes a property of the message of it, which nobody reads",
)
case(
    "typing",
    "wrong arguments are refused at the call",
    lambda c: raised(lambda: c.t.boom.delay(1, 2, 3)),
)
case("pydantic", "models in and out", lambda c: c.end(c.t.typed.delay({"a": 1})), since=(5, 5))
case(
    "pydantic",
    "arguments that do not fit",
    lambda c: c.end(c.t.typed.delay({"a": "x"}))[0],
    since=(5, 5),
)
case("trail=False", "no children", lambda c: [c.end(r := c.t.trackless.delay()), r.children])
case(
    "resultrepr_maxsize",
    "the result in events",
    lambda c: _said(c, c.t.long_result.delay(), "task-succeeded", "result"),
)
case(
    "send_events=False",
    "no events of the task",
    lambda c: [
        c.end(r := c.t.quiet.delay(1)),
        time.sleep(0.3),
        sorted(e["type"] for e in c.said.of(r.id)),
    ],
)
case(
    "task_id",
    "of one's own",
    lambda c: [(r := c.t.add.apply_async((1, 2), task_id=f"own-{c.key}")).id, c.end(r)],
)
case(
    "task_id",
    "the same id twice, while the first waits",
    lambda c: [
        c.t.marks.apply_async((c.key,), task_id=f"twice-{c.key}", countdown=0.3)
        and c.end(c.t.marks.apply_async((c.key,), task_id=f"twice-{c.key}", countdown=0.3)),
        time.sleep(0.4) or len(c.marks(2 if c.kind == "plain" else 1)),
    ],
    differs="while a task waits for its first run, the same id again is the same task",
)
case(
    "task_id",
    "an id again, after its end",
    lambda c: [
        c.end(c.t.marks.apply_async((c.key, 1), task_id=f"again-{c.key}")),
        c.t.marks.apply_async((c.key, 2), task_id=f"again-{c.key}") and 0,
        c.marks(2),
    ],
)
for name, id in {
    "spaces": "an id",
    "a slash": "a/b",
    "a hash": "#a",
    "unicode": "aufgäbe-ü",
    "255 characters": "x" * 220,
}.items():
    case(
        "task_id",
        f"with {name}",
        lambda c, id=id: c.end(
            c.t.add.apply_async((1, 2), task_id=f"{id} {c.key}" if " " in id else f"{id}{c.key}")
        ),
    )
case(
    "root_id, parent_id",
    "of one's own",
    lambda c: c.t.fields.apply_async(("root_id", "parent_id"), root_id="r", parent_id="p").get(
        timeout=c.s
    ),
)
case(
    "add_to_parent=False",
    "inside a task",
    lambda c: c.end(c.t.add.apply_async((1, 2), add_to_parent=False)),
)
case("producer", "one's own", lambda c: _with_producer(c))
case("connection", "one's own", lambda c: _with_connection(c))
case(
    "router, queue, exchange, routing_key",
    "the default queue by name",
    lambda c: c.end(c.t.add.apply_async((1, 2), queue="celery")),
)
case(
    "queue",
    "one that no worker consumes: it waits",
    lambda c: c.end(c.t.add.apply_async((1, 2), queue=f"q-{c.key}"), MOMENT_S),
)
case(
    "queue",
    "of the task, not consumed: it waits",
    lambda c: c.end(c.t.queued.delay(1), MOMENT_S),
)
case(
    "task_routes",
    "by an argument",
    lambda c: c.end(c.t.by_argument.apply_async((), {"queue": "celery"})),
    short=True,
)
case(
    "task_routes",
    "by an argument, to a queue not consumed: it waits",
    lambda c: c.end(c.t.by_argument.apply_async((), {"queue": "elsewhere"}), MOMENT_S),
)
case(
    "task_routes",
    "to a queue not consumed: it waits",
    lambda c: c.end(c.t.routed.delay(1), MOMENT_S),
)
case(
    "routing_key",
    "not consumed: it waits",
    lambda c: c.end(
        c.t.add.apply_async((1, 2), exchange=f"e-{c.key}", routing_key=f"k-{c.key}"), MOMENT_S
    ),
)
case(
    "queue",
    "a Queue of one's own",
    lambda c: c.end(
        c.t.add.apply_async((1, 2), queue=Queue(f"q-{c.key}", Exchange("x"), "k")), MOMENT_S
    ),
)
case("priority", "of a call", lambda c: c.end(c.t.add.apply_async((1, 2), priority=3)))
case("priority", "of a task", lambda c: c.end(c.t.important.delay(1)))
case(
    "retry=False, retry_policy",
    "with the broker there",
    lambda c: [
        c.end(c.t.add.apply_async((1, 2), retry=False)),
        c.end(c.t.add.apply_async((1, 2), retry_policy={"max_retries": 1})),
    ],
)
case(
    "delivery_mode, mandatory, immediate",
    "options of the transport",
    lambda c: c.end(c.t.add.apply_async((1, 2), delivery_mode=1)),
)
case(
    "reply_to, correlation_id",
    "of one's own",
    lambda c: c.t.fields.apply_async(("reply_to",), reply_to="me").get(timeout=c.s),
)
case("task_always_eager", "runs here", lambda c: _eager(c), alone=True)


def _of_protocol_1(c: Context) -> Any:
    app = Celery(
        "first",
        broker=c.app.conf.broker_url,
        backend=c.app.conf.result_backend,
        set_as_current=False,
    )
    app.conf.task_protocol = 1
    if c.kind == PARSYNC:
        Parsync(app)

    @app.task(name="parity.add", shared=False, **({"parsync": True} if c.kind == PARSYNC else {}))
    def add(a: int, b: int) -> None: ...

    return app


def _kind(value: Any) -> str:
    return "sent" if isinstance(value, list) else type(value).__name__


def _waits(c: Context, **when: Any) -> Any:
    sent_s = time.monotonic()
    c.t.marks.apply_async((c.key,), **when).get(timeout=c.s)
    return time.monotonic() - sent_s >= 0.35


def _said(c: Context, result: Any, kind: str, *names: str) -> Any:
    c.end(result)
    return c.until(
        lambda: [
            [event[name] for name in names]
            for event in c.said.of(result.id)
            if event["type"] == kind
        ]
    )


def _received(c: Context, result: Any, *names: str) -> Any:
    return _said(c, result, "task-received", *names)


def _with_producer(c: Context) -> Any:
    with c.app.connection_for_write() as connection:
        return c.end(c.t.add.apply_async((1, 2), producer=c.app.amqp.Producer(connection)))


def _with_connection(c: Context) -> Any:
    with c.app.connection_for_write() as connection:
        assert Producer(connection)
        return c.end(c.t.add.apply_async((1, 2), connection=connection))


def _eager(c: Context) -> Any:
    c.app.conf.task_always_eager = True
    try:
        return [
            (r := c.t.add.delay(1, 2)).get(timeout=c.s),
            type(r).__name__,
            c.t.flaky.delay(1).get(timeout=c.s),
        ]
    finally:
        c.app.conf.task_always_eager = False
