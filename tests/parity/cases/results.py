"""AsyncResult: every public way of it."""

import pickle
from typing import Any

from celery import chain
from celery.exceptions import IncompleteStream
from celery.result import AsyncResult, EagerResult, result_from_tuple

from ..case import Context, area, raised

case = area("AsyncResult")

case("get", "the value", lambda c: c.t.add.delay(1, 2).get(timeout=c.s), short=True)
case("get", "None as a value", lambda c: c.end(c.t.nothing.delay()))
case(
    "get",
    "the task's error, by type and text",
    lambda c: raised(lambda: c.t.boom.delay().get(timeout=c.s)),
    short=True,
)
case(
    "get(propagate=False)",
    "the error as a value",
    lambda c: c.t.boom.delay("x").get(timeout=c.s, propagate=False),
)
case("get", "an error of the app's own", lambda c: c.end(c.t.boom_with.delay("odd")))
case("get", "an error with a cause", lambda c: c.end(c.t.boom_with.delay("cause")))
case("get", "an error that cannot be pickled", lambda c: c.end(c.t.boom_with.delay("stubborn")))
case("get", "an error with a value: StopIteration", lambda c: c.end(c.t.boom_with.delay("stop")))
case("get", "a result that no serializer takes", lambda c: c.end(c.t.unpackable.delay())[0])
case("get", "wrong arguments in the worker", lambda c: c.end(c.t.untyped.apply_async((1, 2, 3)))[0])
case(
    "get",
    "the attribute `ignored`",
    lambda c: [c.t.silent.delay(c.key).ignored, c.t.nothing.delay().ignored],
)


@case("get(timeout=)", "TimeoutError while it waits")
def _(c: Context) -> Any:
    return raised(lambda: c.t.add.apply_async((1, 2), countdown=60).get(timeout=0.2))


@case("get(callback=)", "it is called with id and value")
def _(c: Context) -> Any:
    seen: list[Any] = []
    result = c.t.add.delay(1, 2)
    value = result.get(
        timeout=c.s, callback=lambda id, value: seen.append((id == result.id, value))
    )
    return value, seen


@case("get(on_message=, on_interval=)", "the state that the backend publishes while it waits")
def _(c: Context) -> Any:
    seen: list[Any] = []
    result = c.t.reports.delay(c.key)
    result.get(
        timeout=c.s,
        on_message=lambda body: seen.append(body["status"]),
        on_interval=lambda *_: c.open(),
    )
    return seen[-1:]


case("get", "inside a task: refused", lambda c: c.end(c.t.waits_for.delay("refused")), alone=True)
case(
    "get",
    "inside a task, in allow_join_result",
    lambda c: c.end(c.t.waits_for.delay("allowed")),
    alone=True,
)
case(
    "get(disable_sync_subtasks=False)",
    "inside a task",
    lambda c: c.end(c.t.waits_for.delay("told")),
    alone=True,
)
case("wait", "the same as get", lambda c: c.t.add.delay(2, 2).wait(timeout=c.s))
case(
    "state, status",
    "SUCCESS",
    lambda c: [c.end(r := c.t.add.delay(1, 1)), r.state, r.status],
    short=True,
)
case("state", "FAILURE", lambda c: [c.end(r := c.t.boom.delay()), r.state])
case(
    "state",
    "PENDING of an id that nobody knows",
    lambda c: AsyncResult("nobody-knows", app=c.app).state,
)
case(
    "ready, successful, failed",
    "after a success",
    lambda c: [c.end(r := c.t.nothing.delay()), r.ready(), r.successful(), r.failed()],
)
case(
    "ready, successful, failed",
    "after a failure",
    lambda c: [c.end(r := c.t.boom.delay()), r.ready(), r.successful(), r.failed()],
)


@case("ready, successful, failed", "while it waits")
def _(c: Context) -> Any:
    result = c.t.add.apply_async((1, 2), countdown=60)
    return result.ready(), result.successful(), result.failed(), result.result, result.state


@case("state", "STARTED of a task with track_started")
def _(c: Context) -> Any:
    result = c.t.tracked.delay(c.key)
    c.marks(1)
    state = result.state
    info = sorted(result.info)
    c.open()
    return state, info, c.end(result)


@case("info", "a state of the task's own (update_state)", short=True)
def _(c: Context) -> Any:
    result = c.t.reports.delay(c.key)
    c.until(lambda: result.state == "PROGRESS")
    info = result.info
    c.open()
    return info, c.end(result)


case(
    "traceback",
    "of a failure",
    lambda c: [c.end(r := c.t.boom.delay()), "ValueError: boom" in r.traceback],
)
case("traceback", "of a success", lambda c: [c.end(r := c.t.nothing.delay()), r.traceback])
case(
    "forget",
    "nothing is known of it any more",
    lambda c: [c.end(r := c.t.nothing.delay()), r.forget(), AsyncResult(r.id, app=c.app).state],
)


@case("revoke", "a task that waits for its time")
def _(c: Context) -> Any:
    result = c.t.marks.apply_async((c.key,), countdown=5)
    result.revoke()
    return c.end(result), c.marks()


@case("revoke", "a task that runs goes on to its end")
def _(c: Context) -> Any:
    result = c.t.gated.delay(c.key)
    c.begun(result)
    result.revoke()
    c.open()
    return c.end(result)


@case("revoke(terminate=True)", "a task that runs", pools=("prefork",), short=True)
def _(c: Context) -> Any:
    result = c.t.gated.delay(c.key)
    c.begun(result)
    result.revoke(terminate=True)
    return c.end(result)[0]


@case("revoke(terminate=True, signal=)", "a task that runs, by its signal", pools=("prefork",))
def _(c: Context) -> Any:
    result = c.t.gated.delay(c.key)
    c.begun(result)
    result.revoke(terminate=True, signal="SIGKILL")
    return c.end(result)


@case("revoke(wait=True)", "what workers reply")
def _(c: Context) -> Any:
    result = c.t.add.apply_async((1, 2), countdown=60)
    return result.revoke(wait=True, timeout=5)


@case("revoke_by_stamped_headers(terminate=True)", "a task that runs", pools=("prefork",))
def _(c: Context) -> Any:
    signature = c.t.gated.s(c.key)
    signature.stamp(case=c.key)
    result = signature.apply_async()
    c.begun(result)
    result.revoke_by_stamped_headers({"case": [c.key]}, terminate=True)
    return c.end(result)


@case("revoke_by_stamped_headers", "tasks that begin later")
def _(c: Context) -> Any:
    signature = c.t.marks.s(c.key)
    signature.stamp(case=c.key)
    signature.freeze().revoke_by_stamped_headers({"case": [c.key]})
    c.until(lambda: c.app.control.ping(destination=[c.worker], timeout=c.reply_s))
    return c.end(signature.apply_async()), c.marks()


case(
    "as_tuple, as_list, result_from_tuple",
    "the same result again",
    lambda c: [
        c.end(r := c.t.nothing.delay()),
        result_from_tuple(r.as_tuple(), app=c.app) == r,
        len(r.as_list()),
    ],
)
case(
    "pickle",
    "a result travels",
    lambda c: [c.end(r := c.t.add.delay(1, 4)), pickle.loads(pickle.dumps(r)).id == r.id],
)
case(
    "==, hash, str",
    "by id",
    lambda c: [c.end(r := c.t.nothing.delay()), r == r.id, hash(r) == hash(r.id), str(r) == r.id],
)


@case("parent, graph", "of a chain")
def _(c: Context) -> Any:
    result = chain(c.t.add.s(1, 2), c.t.add.s(3), c.t.add.s(4)).apply_async()
    values = (
        result.get(timeout=c.s),
        result.parent.get(timeout=c.s),
        result.parent.parent.get(timeout=c.s),
    )
    return values, len(result.graph), result.parent.parent.parent


@case("children", "tasks that the task has called")
def _(c: Context) -> Any:
    result = c.t.spawns.delay(3)
    c.end(result)
    return sorted(c.end(child)[1] for child in result.children)


@case("collect", "the values of a task and all that it called")
def _(c: Context) -> Any:
    result = c.t.spawns.delay(2)
    c.states([result, *c.until(lambda: result.children)])
    return sorted(value for _, value in result.collect())


case(
    "get_leaf",
    "the last value below it",
    lambda c: [c.end(r := c.t.spawns.delay(1)), c.end(r.children[0]), r.get_leaf()],
)
case(
    "iterdeps",
    "IncompleteStream while it waits",
    lambda c: (
        type(raised(lambda: list(c.t.add.apply_async((1, 2), countdown=60).iterdeps())))
        is IncompleteStream
    ),
)
case(
    "iterdeps(intermediate=True)",
    "the results so far",
    lambda c: len(list(c.t.add.apply_async((1, 2), countdown=60).iterdeps(intermediate=True))),
)
case(
    "build_graph",
    "its size",
    lambda c: [c.end(r := c.t.spawns.delay(2)), c.states(r.children), len(r.build_graph())],
)


@case("then", "the callback is called")
def _(c: Context) -> Any:
    seen: list[Any] = []
    result = c.t.add.delay(1, 2)
    result.then(lambda done: seen.append(done.result))
    result.get(timeout=c.s)
    return seen


case(
    "name, args, kwargs, retries",
    "of a result that is extended",
    lambda c: [c.end(r := c.t.echo.delay(1, k=2)), r.name, r.args, r.kwargs, r.retries],
)
case(
    "worker, date_done",
    "which worker ran it, and when",
    lambda c: [c.end(r := c.t.nothing.delay()), r.worker, type(r.date_done).__name__],
)
case(
    "queue",
    "the queue that it came from",
    lambda c: [c.end(r := c.t.nothing.delay()), r.queue],
)
case(
    "maybe_throw",
    "raises the error",
    lambda c: [c.end(r := c.t.boom.delay()), raised(r.maybe_throw)],
)
case(
    "maybe_throw(callback=)",
    "the callback gets the error instead",
    lambda c: [
        c.end(r := c.t.add.delay(1, 2)),
        seen := [],
        r.maybe_throw(callback=lambda i, v: seen.append(v)),
        seen,
    ],
)
case("supports_native_join", "of the backend", lambda c: c.t.nothing.delay().supports_native_join)
case(
    "app.AsyncResult",
    "by id",
    lambda c: [c.end(r := c.t.add.delay(3, 4)), c.app.AsyncResult(r.id).get(timeout=c.s)],
)
case(
    "Task.AsyncResult",
    "by id",
    lambda c: [c.end(r := c.t.add.delay(3, 4)), c.t.add.AsyncResult(r.id).result],
)
case(
    "EagerResult",
    "what apply returns",
    lambda c: [
        type(r := c.t.add.apply((1, 2))) is EagerResult,
        r.get(timeout=c.s),
        r.state,
        r.ready(),
        r.successful(),
        r.revoke(),
        r.state,
    ],
)
