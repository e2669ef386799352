"""Signals where a task is sent, and events of the worker."""

from typing import Any

from celery import signals

from ..case import Context, area

case = area("Signals and events")


def events(c: Context, result: Any, *kinds: str) -> Any:
    """Return the types of the events of a task, once all of these are there."""
    c.end(result, 3.0)
    c.until(lambda: set(kinds) <= {event["type"] for event in c.said.of(result.id)}, f"{kinds}")
    return sorted({event["type"] for event in c.said.of(result.id)})


case(
    "events",
    "of a success",
    lambda c: events(
        c, c.t.add.delay(1, 2), "task-sent", "task-received", "task-started", "task-succeeded"
    ),
    short=True,
)
case(
    "events",
    "of a failure",
    lambda c: events(c, c.t.boom.delay(), "task-sent", "task-started", "task-failed"),
)
case(
    "events",
    "of a retry",
    lambda c: events(c, c.t.flaky.delay(1), "task-retried", "task-succeeded"),
)
case(
    "events",
    "of a revoked task",
    lambda c: [
        (r := c.t.add.apply_async((1, 2), countdown=5)).revoke(),
        "task-revoked" in events(c, r, "task-revoked"),
    ],
)
case(
    "events",
    "of a rejected task",
    lambda c: "task-rejected" in events(c, c.t.rejects.delay(c.key, False), "task-rejected"),
)
for kind in ("task-sent", "task-received", "task-started", "task-succeeded"):
    case(
        f"event {kind}",
        "its fields",
        lambda c, kind=kind: [
            events(c, r := c.t.add.delay(1, 2), kind) and 0,
            c.until(lambda: [sorted(e) for e in c.said.of(r.id) if e["type"] == kind]),
        ],
    )
case(
    "event task-failed",
    "its fields",
    lambda c: [
        events(c, r := c.t.boom.delay(), "task-failed") and 0,
        [[e["exception"], sorted(e)] for e in c.said.of(r.id) if e["type"] == "task-failed"],
    ],
)
case(
    "event task-succeeded",
    "the result",
    lambda c: [
        events(c, r := c.t.add.delay(1, 2), "task-succeeded") and 0,
        [e["result"] for e in c.said.of(r.id) if e["type"] == "task-succeeded"],
    ],
)
case(
    "event task-sent",
    "the queue",
    lambda c: [
        events(c, r := c.t.add.delay(1, 2), "task-sent") and 0,
        [
            [e["queue"], e["routing_key"], e["exchange"]]
            for e in c.said.of(r.id)
            if e["type"] == "task-sent"
        ],
    ],
)


def heard(signal: Any, c: Context, send: Any, *names: str) -> Any:
    """Return the part of a call that a receiver of a signal gets."""
    seen: list[Any] = []

    def receive(sender: Any = None, **more: Any) -> None:
        if more.get("headers", {}).get("id") == f"heard-{c.key}":
            seen.append([sender, {name: more.get(name) for name in names}, sorted(more)])

    signal.connect(receive, weak=False)
    try:
        send()
    finally:
        signal.disconnect(receive)
    return seen


case(
    "before_task_publish",
    "what its receiver gets",
    lambda c: heard(
        signals.before_task_publish,
        c,
        lambda: c.t.add.apply_async((1, 2), task_id=f"heard-{c.key}"),
        "body",
        "exchange",
        "routing_key",
    ),
)
case(
    "after_task_publish",
    "what its receiver gets",
    lambda c: heard(
        signals.after_task_publish,
        c,
        lambda: c.t.add.apply_async((1, 2), task_id=f"heard-{c.key}"),
        "body",
        "exchange",
        "routing_key",
    ),
)


@case("before_task_publish", "headers that its receiver adds")
def _(c: Context) -> Any:
    def receive(headers: Any = None, **more: Any) -> None:
        if headers["id"] == f"added-{c.key}":
            headers["x-added"] = "yes"

    signals.before_task_publish.connect(receive, weak=False)
    try:
        return c.t.headers.apply_async(task_id=f"added-{c.key}").get(timeout=c.s)
    finally:
        signals.before_task_publish.disconnect(receive)
