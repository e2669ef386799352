"""Task: how it is called, what its request says, retry, replace, hooks."""

import time
from typing import Any

from celery import chord

from ..case import MOMENT_S, POOLS, PREFORK, Context, area, raised

case = area("Task")

case(
    "delay",
    "positional and keyword arguments",
    lambda c: c.t.echo.delay(1, "two", k=[3]).get(timeout=c.s),
    short=True,
)
case(
    "apply_async",
    "the same, as lists",
    lambda c: c.t.echo.apply_async([1], {"k": None}).get(timeout=c.s),
)
case(
    "apply_async",
    "wrong arguments are refused at the call",
    lambda c: raised(lambda: c.t.add.apply_async((1,))),
)
case("apply", "here and now", lambda c: [(r := c.t.add.apply((1, 2))).get(timeout=c.s), r.state])
case("apply", "a failure", lambda c: [(r := c.t.boom.apply()).state, raised(r.get)])
case(
    "apply(throw=True)", "the error is raised", lambda c: raised(lambda: c.t.boom.apply(throw=True))
)
case("apply", "retries here and now", lambda c: c.t.flaky.apply((2,)).get(timeout=c.s))
case("__call__", "a plain function", lambda c: c.t.add(1, 2))
case("run", "the function", lambda c: c.t.add.run(1, 2))
case(
    "s, si, signature, subtask",
    "what they call",
    lambda c: [
        s.delay().get(timeout=c.s)
        for s in (
            c.t.add.s(1, 2),
            c.t.add.si(3, 4),
            c.t.add.signature((5, 6)),
            c.t.add.subtask((7, 8)),
        )
    ],
)
case(
    "app.send_task",
    "by name",
    lambda c: c.app.send_task("parity.add", (1, 2)).get(timeout=c.s),
    short=True,
)
case(
    "app.send_task(kwargs=, countdown=)",
    "with options",
    lambda c: c.app.send_task("parity.echo", kwargs={"k": 1}, countdown=0.1).get(timeout=c.s),
)
case(
    "app.send_task",
    "a name that no worker knows",
    lambda c: c.end(c.app.send_task("parity.nobody", ())),
)
case(
    "app.send_task",
    "a name that no worker knows, with `parsync=True` or a rule [place]",
    lambda c: (
        type(raised(lambda: c.end(c.app.send_task("parity.nobody", (), parsync=True)))).__name__
    ),
    differs="refused at the call with `UnknownTask`; plain Celery sends it, and a worker stores `NotRegistered`",
)
case(
    "app.tasks, app.task",
    "registered names",
    lambda c: sorted(name for name in c.app.tasks if name.startswith("parity."))[:3],
)
case(
    "AsyncResult, backend, name",
    "of a task",
    lambda c: [c.t.add.name, type(c.t.add.backend).__name__],
)
case(
    "request",
    "id, retries, is_eager, called_directly",
    lambda c: [c.t.fields.delay("retries", "is_eager", "called_directly").get(timeout=c.s)],
)
case(
    "request",
    "args and kwargs",
    lambda c: c.t.fields.delay("args", "kwargs", "argsrepr", "kwargsrepr").get(timeout=c.s),
)
case(
    "request",
    "task, lang, group, chord, chain, callbacks, errbacks",
    lambda c: c.t.fields.delay(
        "task",
        "lang",
        "group",
        "chord",
        "chain",
        "callbacks",
        "errbacks",
        "eta",
        "expires",
        "timelimit",
    ).get(timeout=c.s),
)
case(
    "request",
    "root_id and parent_id, of a first task",
    lambda c: [
        (v := (r := c.t.fields.delay("root_id", "parent_id", "id")).get(timeout=c.s))["root_id"]
        == r.id,
        v["parent_id"],
        v["id"] == r.id,
    ],
)
case(
    "request",
    "root_id and parent_id, in a chain",
    lambda c: [
        (
            v := (r := (c.t.add.s(1, 1) | c.t.fields.si("root_id", "parent_id")).delay()).get(
                timeout=c.s
            )
        )["root_id"]
        == r.parent.id,
        v["parent_id"] == r.parent.id,
    ],
)
case(
    "request",
    "hostname, origin, reply_to, correlation_id",
    lambda c: [
        (v := (r := c.t.fields.delay("hostname", "reply_to", "correlation_id")).get(timeout=c.s))[
            "hostname"
        ],
        bool(v["reply_to"]),
        v["correlation_id"] == r.id,
    ],
)
case(
    "request.delivery_info",
    "where it came from",
    lambda c: c.t.delivery.delay().get(timeout=c.s),
)
for how, pools in (("reject", POOLS), ("retry", POOLS), ("SIGKILL", (PREFORK,))):
    case(
        "request.delivery_info",
        f"redelivered, after {how}",
        lambda c, how=how: [c.end(c.t.redelivered.delay(c.key, how)), c.marks()],
        pools=pools,
        short=how == "reject",
    )
case(
    "request.headers",
    "keys of a task without headers of its own",
    lambda c: sorted(c.t.header_names.delay().get(timeout=c.s)),
    differs="one key more, `parsync`: the options of the call, which a retry keeps, and the task's place; the task "
    "reads it as `request.parsync`",
)
case(
    "request.headers",
    "headers of one's own",
    lambda c: c.t.headers.apply_async(headers={"x-one": "1"}).get(timeout=c.s),
    short=True,
)
case("request", "ignore_result", lambda c: c.t.fields.delay("ignore_result").get(timeout=c.s))
case(
    "request",
    "group and group_index in a group",
    lambda c: [(v := c.t.fields.s("group_index").apply_async().get(timeout=c.s)), v],
)
case(
    "request",
    "utc, shadow, replaced_task_nesting",
    lambda c: c.t.fields.apply_async(
        ("utc", "shadow", "replaced_task_nesting"), shadow="other"
    ).get(timeout=c.s),
)
case("retry", "until it succeeds", lambda c: c.end(c.t.flaky.delay(2)), short=True)
case("retry(exc=)", "its error when they are used up", lambda c: c.end(c.t.flaky.delay(9)))
case(
    "retry",
    "without error: MaxRetriesExceededError",
    lambda c: [c.end(c.t.retries_as.delay(c.key, "bare")), c.marks()],
)
for how in ("args", "kwargs", "eta", "more", "implied", "headers", "limits"):
    case(
        f"retry: {how}",
        "what the next run gets",
        lambda c, how=how: [
            c.end(c.t.retries_as.delay(c.key, how)),
            c.until(lambda: c.marks(2)) if how != "implied" else c.marks(2),
        ],
    )
case(
    "retry: nothrow",
    "both runs end, and each stores its own result: either may be seen",
    lambda c: [
        (said := c.end(c.t.retries_as.delay(c.key, "nothrow")))[0],
        said[1] in ("this run's", [2, 1, [None, None], None]),
        c.marks(2),
    ],
)
case(
    "retry",
    "the state RETRY with its error",
    lambda c: [
        c.until(
            lambda: (
                (r := c.t.flaky.delay(1, 30.0))
                and c.until(lambda: r.state == "RETRY")
                and type(r.result).__name__
            )
        )
    ],
)
case(
    "autoretry_for",
    "as many times as configured",
    lambda c: [c.end(c.t.auto.delay(c.key)), c.marks()],
)
case(
    "dont_autoretry_for",
    "not for these",
    lambda c: [c.end(c.t.auto_but.delay(c.key, "key")), c.marks()],
)
case(
    "autoretry_for",
    "for all others",
    lambda c: [c.end(c.t.auto_but.delay(c.key, "value")), c.marks()],
)
case(
    "retry_backoff, retry_jitter",
    "in the end",
    lambda c: [c.end(c.t.backoff.delay(c.key)), c.marks()],
)
case(
    "retry",
    "a root_id and parent_id that stay",
    lambda c: [c.end(r := c.t.flaky.apply_async((1,), root_id="root")), r.retries],
)
case("replace", "by a task", lambda c: c.end(c.t.replaced.delay("task")), short=True)
for how in ("chain", "group", "chord", "chain of chord"):
    case(
        "replace",
        f"by a {how}",
        lambda c, how=how: c.end(c.t.replaced.delay(how)),
    )
case("replace", "by a task that fails", lambda c: c.end(c.t.replaced.delay("failure")))
case("replace", "by a task that is replaced", lambda c: c.end(c.t.replaced.delay("itself")))
case("replace", "in a chain", lambda c: c.end((c.t.replaced.si("task") | c.t.add.s(10)).delay()))
case(
    "replace",
    "by a chain, in a chain",
    lambda c: c.end((c.t.replaced.si("chain") | c.t.add.s(10)).delay()),
)
case(
    "replace",
    "by a chain, in a chord",
    lambda c: c.end(chord([c.t.replaced.s("chain"), c.t.add.s(1, 1)])(c.t.total.s())),
)


@case("replace", "by a chain, and its id revoked before the last step")
def _(c: Context) -> Any:
    result = c.t.becomes_gated.delay(c.key)
    c.marks(1)
    result.revoke()
    c.until(lambda: c.app.control.ping(destination=[c.worker], timeout=c.reply_s))
    c.open()
    return c.end(result), c.marks(2)


@case(
    "retry",
    "of a task that has published its own id again",
    differs="an id is one task: a publish under its own id while it runs, and its retry, give one next run",
)
def _(c: Context) -> Any:
    result = c.t.publishes_itself.delay(c.key)
    return c.end(result), time.sleep(1), len(c.marks(3 if c.kind == "plain" else 2))


case("add_to_chord", "more tasks for the header", lambda c: _header_of(c))
case("update_state", "a state and its meta", lambda c: _reports(c))
case(
    "on_success, after_return, before_start",
    "of a success",
    lambda c: [c.end(c.t.hooked.delay(c.key, "works")), c.marks(3)],
    short=True,
)
case(
    "on_failure, after_return",
    "of a failure",
    lambda c: [c.end(c.t.hooked.delay(c.key, "fails")), c.marks(3)],
)
case(
    "on_retry",
    "of a retry",
    lambda c: [c.end(c.t.hooked.delay(c.key, "retries")), sorted(c.marks(5))],
)
case(
    "hooks",
    "of one that is ignored",
    lambda c: [c.t.hooked.delay(c.key, "ignores") and 0, c.marks(1)],
)
case(
    "shadow_name",
    "the name that is shown",
    lambda c: _sent_name(c, c.t.hooked.delay(c.key, "works")),
)
case(
    "send_event",
    "an event of the task's own",
    lambda c: [
        c.end(r := c.t.sends_event.delay("hello")),
        c.until(lambda: [e["what"] for e in c.said.of(r.id) if e["type"] == "task-parity"]),
    ],
)
case(
    "Ignore",
    "no result, no second run",
    lambda c: [c.end(c.t.ignores.delay(c.key), MOMENT_S), c.marks()],
)
case(
    "Ignore",
    "a state that the task has set",
    lambda c: [
        r := c.t.ignores_with_state.delay(c.key),
        c.until(lambda: r.state == "HALF"),
        r.info,
    ][1:],
)
case("Reject", "not put back", lambda c: [c.end(c.t.rejects.delay(c.key, False)), c.marks()])
case(
    "Reject(requeue=True)",
    "it runs again",
    lambda c: [c.end(c.t.rejects.delay(c.key, True)), c.marks()],
    short=True,
)
case("throws", "an expected error", lambda c: c.end(c.t.throws.delay(1)))


def _header_of(c: Context) -> Any:
    return c.end(chord([c.t.extends.s(2), c.t.extends.s(0)])(c.t.total.s()))


def _reports(c: Context) -> Any:
    result = c.t.reports.delay(c.key)
    c.marks(1)
    seen = result.state, result.info
    c.open()
    return seen, c.end(result), result.info


def _sent_name(c: Context, result: Any) -> Any:
    c.end(result)
    return c.until(
        lambda: [
            event["name"] for event in c.said.of(result.id) if event["type"] == "task-received"
        ]
    )
