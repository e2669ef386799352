"""app.control and app.control.inspect."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import group

from ..case import Context, area, raised

case = area("app.control and inspect")


def ask(c: Context, what: str, *args: Any, **kwargs: Any) -> Any:
    """Return this worker's answer to an inspect command."""
    found = getattr(c.app.control.inspect(destination=[c.worker], timeout=c.reply_s), what)(
        *args, **kwargs
    )
    return (found or {}).get(c.worker)


def entry(found: Any, id: str) -> Any:
    """Return a task's entry, without what differs from one run to the next."""
    entries = [
        each.get("request", each) for each in found or () if each.get("request", each)["id"] == id
    ]
    return [
        {
            key: bool(value) if key in ("time_start", "worker_pid") else value
            for key, value in one.items()
            if key != "delivery_info"
        }
        for one in entries
    ]


case(
    "ping",
    "who answers",
    lambda c: c.app.control.ping(destination=[c.worker], timeout=c.reply_s),
    short=True,
)
case("inspect.ping", "who answers", lambda c: ask(c, "ping"))
case(
    "inspect.registered",
    "names of tasks",
    lambda c: sorted(name for name in ask(c, "registered") if name.startswith("parity."))[:5],
)
case(
    "inspect.registered",
    "with attributes",
    lambda c: [t for t in ask(c, "registered", "rate_limit") if "limited" in t],
)
case(
    "inspect.registered_tasks", "the old name", lambda c: len(ask(c, "registered_tasks") or ()) > 5
)
case(
    "inspect.active_queues",
    "what it consumes",
    lambda c: [queue["name"] for queue in ask(c, "active_queues")],
)
case("inspect.conf", "its settings", lambda c: ask(c, "conf")["task_send_sent_event"])
case("inspect.report", "that it is there", lambda c: "celery" in str(ask(c, "report")))
case("inspect.stats", "its fields", lambda c: sorted(set(ask(c, "stats")) - {"rusage"}))
case(
    "inspect.stats",
    "counts tasks by name",
    lambda c: [c.end(c.t.add.delay(1, 2)), ask(c, "stats")["total"]["parity.add"] > 0][1],
)
case("inspect.clock", "a number", lambda c: type(ask(c, "clock")["clock"]).__name__)
case("inspect.memsample", "its answer", lambda c: type(ask(c, "memsample")).__name__)
case("inspect.hello", "its answer", lambda c: sorted(ask(c, "hello", "case@nowhere") or ()))
case("inspect.query_task", "a task that runs", lambda c: _query(c))
case(
    "inspect.revoked",
    "ids",
    lambda c: [
        (r := c.t.add.apply_async((1, 2), countdown=60)).revoke(),
        c.until(lambda: r.id in ask(c, "revoked")),
    ][1],
)


def _query(c: Context) -> Any:
    result = c.t.gated.delay(c.key)
    c.begun(result)
    answer = ask(c, "query_task", [result.id])
    c.open()
    return answer[result.id][0], entry([answer[result.id][1]], result.id)


@case("inspect.active", "a task that runs", short=True)
def _(c: Context) -> Any:
    result = c.t.gated.delay(c.key)
    c.begun(result)
    found = entry(ask(c, "active"), result.id)
    c.open()
    return found


@case(
    "inspect.scheduled",
    "a task that waits for its time (every node that knows its name lists it, and the 100 that "
    "are due first)",
    short=True,
)
def _(c: Context) -> Any:
    eta = datetime.now(UTC) + timedelta(seconds=60)
    result = c.t.add.apply_async((1, 2), eta=eta)
    found = c.until(
        lambda: [each for each in ask(c, "scheduled") or () if each["request"]["id"] == result.id]
    )
    return (
        entry(found, result.id),
        sorted(found[0]),
        found[0]["eta"] == eta.isoformat(),
        found[0]["priority"],
    )


@case(
    "inspect.reserved",
    "tasks that wait for a process",
    alone=True,
    differs=(
        "a node gets no more tasks than it has slots: tasks that wait are in parsync's queue, see "
        "`parsync tasks`"
    ),
)
def _(c: Context) -> Any:
    holders = [c.t.gated.delay(c.key) for _ in range(10)]
    c.marks(10)
    waiting = [c.t.echo.delay(i) for i in range(3)]
    ids = {result.id for result in waiting}
    seen = c.kind == "plain" and c.until(
        lambda: len([e for e in ask(c, "reserved") if e["id"] in ids]) == 3
    )
    found = [each for each in ask(c, "reserved") if each["id"] in ids]
    c.open()
    return len(found), bool(seen), len(c.states(holders))


@case("terminate", "a task that runs", pools=("prefork",), short=True)
def _(c: Context) -> Any:
    result = c.t.gated.delay(c.key)
    c.begun(result)
    c.app.control.terminate(result.id)
    # in Celery 5.6 the worker that terminates it and the others race for the reason
    return c.end(result)[0]


@case("terminate", "many ids, and None for the signal", pools=("prefork",))
def _(c: Context) -> Any:
    results = [c.t.gated.delay(c.key), c.t.gated.delay(c.key)]
    c.begun(*results)
    c.app.control.terminate([result.id for result in results], signal=None)
    return c.states(results)


case(
    "revoke",
    "many ids that wait",
    lambda c: [
        rs := [c.t.add.apply_async((1, 2), countdown=5) for _ in range(2)],
        c.app.control.revoke([r.id for r in rs]),
        c.states(rs),
    ][1:],
)
case("revoke", "an id that nobody knows", lambda c: [c.app.control.revoke(f"nobody-{c.key}")])
case(
    "revoke(reply=True)",
    "what it replies",
    lambda c: c.app.control.revoke(
        f"nobody-{c.key}", reply=True, timeout=c.reply_s, destination=[c.worker]
    ),
)
case(
    "revoke(terminate=True, signal=)",
    "an unknown signal",
    lambda c: (
        type(
            raised(
                lambda: c.app.control.revoke(
                    c.t.add.apply_async((1, 2), countdown=1).id, terminate=True, signal="NOPE"
                )
            )
        ).__name__
    ),
    differs=(
        "refused at the call with `InvalidInput`; plain Celery sends it, and the worker logs an "
        "error"
    ),
)
case(
    "revoke",
    "a task that is over stays as it is",
    lambda c: [c.end(r := c.t.add.delay(1, 2)), r.revoke(), r.state],
)
case(
    "revoke",
    "a group that waits",
    lambda c: [
        (r := group(c.t.add.s(1, 2).set(countdown=5) for _ in range(2))()).revoke(),
        c.states(r),
    ],
)


@case("revoke_by_stamped_headers", "tasks that run", pools=("prefork",))
def _(c: Context) -> Any:
    signature = c.t.gated.s(c.key)
    signature.stamp(by=c.key)
    result = signature.apply_async()
    c.begun(result)
    c.app.control.revoke_by_stamped_headers({"by": c.key}, terminate=True)
    return c.end(result)


@case("revoke", "within the worker's memory of revoked ids, before the task is sent")
def _(c: Context) -> Any:
    id = f"early-{c.key}"
    c.app.control.revoke(id)
    c.until(lambda: id in ask(c, "revoked"))
    return c.end(c.t.marks.apply_async((c.key,), task_id=id)), c.marks()


case(
    "rate_limit",
    "set, and taken back",
    lambda c: [
        c.app.control.rate_limit(
            "parity.nothing", "5/m", destination=[c.worker], reply=True, timeout=c.reply_s
        ),
        ask(c, "registered", "rate_limit") and 0,
        c.app.control.rate_limit(
            "parity.nothing", "0", destination=[c.worker], reply=True, timeout=c.reply_s
        ),
    ],
)
case(
    "rate_limit",
    "an invalid limit",
    lambda c: c.app.control.rate_limit(
        "parity.nothing", "x", destination=[c.worker], reply=True, timeout=c.reply_s
    ),
)


@case("rate_limit", "tasks keep it", alone=True)
def _(c: Context) -> Any:
    c.app.control.rate_limit(
        "parity.sleeps", "30/m", destination=[c.worker], reply=True, timeout=c.reply_s
    )
    results = [c.t.sleeps.delay(c.key, 0) for _ in range(3)]
    c.marks(1)
    time.sleep(0.5)
    began = len(c.marks())
    c.app.control.rate_limit(
        "parity.sleeps", "0", destination=[c.worker], reply=True, timeout=c.reply_s
    )
    return began, len(results)


case(
    "time_limit",
    "set",
    lambda c: c.app.control.time_limit(
        "parity.quiet", soft=60, hard=120, destination=[c.worker], reply=True, timeout=c.s
    ),
)


@case(
    "time_limit",
    "tasks keep it",
    pools=("prefork",),
    alone=True,
    differs=(
        "a new limit applies to the placed tasks that start after it; plain Celery keeps its first "
        "limits"
    ),
)
def _(c: Context) -> Any:
    c.app.control.time_limit(
        "parity.sleeps", hard=0.5, destination=[c.worker], reply=True, timeout=c.reply_s
    )
    found = c.end(c.t.sleeps.delay(c.key, 1.5))
    c.app.control.time_limit(
        "parity.sleeps", hard=None, destination=[c.worker], reply=True, timeout=c.reply_s
    )
    return found


@case("add_consumer, cancel_consumer", "queues", alone=True)
def _(c: Context) -> Any:
    say = {"destination": [c.worker], "reply": True, "timeout": c.s}
    added = c.app.control.add_consumer("more", **say)
    c.until(lambda: len(ask(c, "active_queues")) == 2, "it consumes the queue")
    cancelled = c.app.control.cancel_consumer("more", **say)
    c.until(lambda: len(ask(c, "active_queues")) == 1, "it does not consume the queue")
    return added, cancelled, ask(c, "active_queues")[0]["name"]


@case("pool_grow, pool_shrink", "processes", pools=("prefork",), alone=True)
def _(c: Context) -> Any:
    say = {"destination": [c.worker], "reply": True, "timeout": c.s}
    grown = c.app.control.pool_grow(1, **say)
    size = ask(c, "stats")["pool"]["max-concurrency"]
    return (
        grown,
        size,
        c.app.control.pool_shrink(1, **say),
        ask(c, "stats")["pool"]["max-concurrency"],
    )


case(
    "autoscale",
    "not enabled",
    lambda c: c.app.control.autoscale(5, 1, destination=[c.worker], reply=True, timeout=c.reply_s),
)
case(
    "enable_events",
    "already on",
    lambda c: c.app.control.enable_events(destination=[c.worker], reply=True, timeout=c.reply_s),
)
case("heartbeat", "no reply", lambda c: c.app.control.heartbeat(destination=[c.worker]))
case("election", "no reply", lambda c: c.app.control.election(f"id-{c.key}", "topic"))
case(
    "broadcast",
    "an unknown command",
    lambda c: c.app.control.broadcast(
        "nope", reply=True, timeout=c.reply_s, destination=[c.worker]
    ),
)
case(
    "purge, discard_all",
    "are functions",
    lambda c: callable(c.app.control.purge) and callable(c.app.control.discard_all),
)
