"""GroupResult and ResultSet: every public way of them."""

from typing import Any

from celery import chain, group
from celery.result import GroupResult, ResultSet, result_from_tuple

from ..case import Context, area, raised

case = area("GroupResult and ResultSet")


def three(c: Context) -> Any:
    """Return a group of three results that have ended."""
    result = group(c.t.add.s(i, i) for i in range(3)).apply_async()
    result.get(timeout=c.s)
    return result


def mixed(c: Context) -> Any:
    """Return a group of a success, a failure and a task that waits."""
    result = group(
        c.t.add.s(1, 1), c.t.boom.s("one"), c.t.add.s(1, 2).set(countdown=60)
    ).apply_async()
    c.states(result.results[:2])
    return result


case(
    "get",
    "values in order",
    lambda c: group(c.t.add.s(i, i) for i in range(5)).apply_async().get(timeout=c.s),
    short=True,
)
case(
    "join",
    "values in order",
    lambda c: group(c.t.add.s(i, 1) for i in range(5)).apply_async().join(timeout=c.s),
)
case(
    "join_native",
    "values in order",
    lambda c: group(c.t.add.s(i, 2) for i in range(5)).apply_async().join_native(timeout=c.s),
)
case(
    "join",
    "the first failure",
    lambda c: raised(lambda: group(c.t.add.s(1, 1), c.t.boom.s()).apply_async().join(timeout=c.s)),
)
case(
    "join(propagate=False)",
    "errors among the values",
    lambda c: group(c.t.add.s(1, 1), c.t.boom.s()).apply_async().join(timeout=c.s, propagate=False),
)
case(
    "join(timeout=)",
    "TimeoutError",
    lambda c: raised(lambda: mixed(c).join(timeout=0.2, propagate=False)),
)
case(
    "get(timeout=)",
    "TimeoutError",
    lambda c: raised(lambda: mixed(c).get(timeout=0.2, propagate=False)),
)
case(
    "join(callback=)",
    "each value with its id",
    lambda c: [
        seen := [],
        three(c).join(callback=lambda id, value: seen.append(value)),
        sorted(seen),
    ][1:],
)
case(
    "iter_native",
    "each value once",
    lambda c: sorted(
        meta["result"]
        for _, meta in group(c.t.add.s(i, 3) for i in range(4))
        .apply_async()
        .iter_native(timeout=c.s)
    ),
)
case(
    "completed_count",
    "the number of results that have ended, of three",
    lambda c: [three(c).completed_count(), mixed(c).completed_count()],
)
case(
    "ready, successful, failed, waiting",
    "all have succeeded",
    lambda c: [(r := three(c)).ready(), r.successful(), r.failed(), r.waiting()],
)
case(
    "ready, successful, failed, waiting",
    "one waits and one has failed",
    lambda c: [(r := mixed(c)).ready(), r.successful(), r.failed(), r.waiting()],
)
case("maybe_throw", "the first error", lambda c: raised(mixed(c).maybe_throw))
case(
    "forget",
    "all results are forgotten",
    lambda c: [(r := three(c)).forget(), [c.app.AsyncResult(each.id).state for each in r.results]],
)
case(
    "revoke",
    "tasks that wait are revoked",
    lambda c: [
        (r := group(c.t.marks.s(c.key).set(countdown=5) for _ in range(3)).apply_async()).revoke(),
        c.states(r),
        c.marks(),
    ],
)


@case("revoke(terminate=True)", "tasks that run are revoked", pools=("prefork",))
def _(c: Context) -> Any:
    result = group(c.t.gated.s(c.key) for _ in range(2)).apply_async()
    c.begun(*result.results)
    result.revoke(terminate=True)
    return c.states(result)


@case(
    "ResultSet.revoke(terminate=True)",
    "tasks that run and tasks that wait are revoked",
    pools=("prefork",),
)
def _(c: Context) -> Any:
    result = ResultSet(
        [c.t.gated.delay(c.key), c.t.gated.apply_async((c.key,), countdown=10)], app=c.app
    )
    c.begun(result.results[0])
    c.marks(1)
    result.revoke(terminate=True)
    return c.states(result.results), c.marks()


case(
    "save, restore, delete",
    "a group is stored and found by its id",
    lambda c: [
        (r := three(c)).save(),
        GroupResult.restore(r.id, app=c.app).get(timeout=c.s),
        r.delete(),
        GroupResult.restore(r.id, app=c.app),
    ],
)
case(
    "as_tuple, result_from_tuple",
    "the same group again",
    lambda c: [
        (r := three(c)).id == result_from_tuple(r.as_tuple(), app=c.app).id,
        len(r),
        r.children == r.results,
    ],
)
case(
    "parent",
    "the parent of a group in a chain",
    lambda c: [
        (r := chain(c.t.add.s(1, 1), group(c.t.add.s(1), c.t.add.s(2))).apply_async()).get(
            timeout=c.s
        ),
        r.parent.get(timeout=c.s),
    ],
)
case(
    "[], len, iteration",
    "the results of the group",
    lambda c: [(r := three(c))[1].get(timeout=c.s), len(r), [each.get(timeout=c.s) for each in r]],
)
case(
    "supports_native_join, ==",
    "support of the backend; equality by id",
    lambda c: [(r := three(c)).supports_native_join, r == three(c)],
)


@case("ResultSet.add, remove, update, discard, clear", "the results in the set")
def _(c: Context) -> Any:
    a, b, d = (c.t.add.delay(i, i) for i in range(3))
    results = ResultSet([a], app=c.app)
    results.add(b)
    results.update([b, d])
    results.remove(a)
    results.discard(a)
    values = results.get(timeout=c.s)
    results.clear()
    return values, len(results)


@case("ResultSet.then", "the callback is called when all results are there")
def _(c: Context) -> Any:
    seen: list[Any] = []
    results = ResultSet([c.t.add.delay(1, 1), c.t.add.delay(2, 2)], app=c.app)
    results.then(lambda done: seen.append(len(done)))
    return results.get(timeout=c.s), seen


case(
    "nested groups",
    "values in order",
    lambda c: (
        group(group(c.t.add.s(1, 1), c.t.add.s(2, 2)), c.t.add.s(3, 3))
        .apply_async()
        .get(timeout=c.s)
    ),
)
case("an empty group", "no values", lambda c: group([]).apply_async().get(timeout=c.s))
case(
    "get(propagate=False)",
    "values and errors of mixed ends",
    lambda c: (
        group(c.t.add.s(1, 1), c.t.boom.s("two")).apply_async().get(timeout=c.s, propagate=False)
    ),
)
