"""The canvas: chains, groups, chords and what they nest, links and errbacks, stamps."""

from typing import Any

from celery import chain, chord, group, signature
from celery.canvas import StampingVisitor, chunks, xmap, xstarmap

from ..case import Context, area, raised

case = area("Canvas")


def adds(c: Context, n: int, *more: int) -> list[Any]:
    """n signatures of add."""
    return [c.t.add.s(i, *more) for i in range(n)]


case(
    "chain",
    "the last value",
    lambda c: chain(c.t.add.s(1, 2), c.t.add.s(3), c.t.add.s(4))().get(timeout=c.s),
    short=True,
)
case(
    "|", "of signatures", lambda c: (c.t.add.s(1, 2) | c.t.add.s(3)).apply_async().get(timeout=c.s)
)
case(
    "|",
    "a chain and a group",
    lambda c: (c.t.add.s(1, 2) | group(c.t.add.s(1), c.t.add.s(2))).apply_async().get(timeout=c.s),
)
case(
    "|",
    "a group and a task become a chord",
    lambda c: (group(adds(c, 3, 1)) | c.t.total.s()).apply_async().get(timeout=c.s),
    short=True,
)
case(
    "|",
    "a group and a group",
    lambda c: (
        (group(adds(c, 2, 1)) | group(c.t.total.s(), c.t.echo.s())).apply_async().get(timeout=c.s)
    ),
)
case(
    "|",
    "a chord and a task",
    lambda c: (chord(adds(c, 2, 1), c.t.total.s()) | c.t.add.s(5)).apply_async().get(timeout=c.s),
)
case(
    "|",
    "a chord and a chord",
    lambda c: (
        (chord(adds(c, 2, 1), c.t.total.s()) | group(c.t.add.s(1), c.t.add.s(2)) | c.t.total.s())
        .apply_async()
        .get(timeout=c.s)
    ),
)
case(
    "chain",
    "a failure in its middle",
    lambda c: [c.end(r := chain(c.t.add.s(1, 2), c.t.boom.s(), c.t.add.s(1))()), c.end(r.parent)],
)
case(
    "chain",
    "of immutable signatures",
    lambda c: chain(c.t.add.si(1, 2), c.t.add.si(3, 4))().get(timeout=c.s),
)
case(
    "chain",
    "in a chain",
    lambda c: chain(chain(c.t.add.s(1, 2), c.t.add.s(3)), c.t.add.s(4))().get(timeout=c.s),
)
case(
    "chain(task_id=)",
    "the last one's id",
    lambda c: chain(c.t.add.s(1, 2), c.t.add.s(3)).apply_async(task_id=f"chain-{c.key}").id,
)
case(
    "chain.run, unchain_tasks",
    "its parts",
    lambda c: len(chain(c.t.add.s(1, 2), c.t.add.s(3)).unchain_tasks()),
)
case("group", "values in order", lambda c: group(adds(c, 8, 1))().get(timeout=c.s), short=True)
case(
    "group(kwargs=)",
    "arguments for each",
    lambda c: group(c.t.echo.s(), c.t.echo.s()).apply_async((1,), {"k": 2}).get(timeout=c.s),
)
case(
    "group.skew",
    "later and later",
    lambda c: group(adds(c, 3, 1)).skew(start=0.1, stop=0.4, step=0.1)().get(timeout=c.s),
)
case(
    "group(countdown=)",
    "an option for each",
    lambda c: group(adds(c, 2, 1)).apply_async(countdown=0.2).get(timeout=c.s),
)
case(
    "group of chains",
    "values in order",
    lambda c: group(chain(c.t.add.s(i, 1), c.t.add.s(1)) for i in range(3))().get(timeout=c.s),
)
case(
    "group of chords",
    "values in order",
    lambda c: group(chord(adds(c, 2, i), c.t.total.s()) for i in range(2))().get(timeout=c.s),
)
case(
    "chord",
    "the body's value",
    lambda c: chord(adds(c, 5, 1))(c.t.total.s()).get(timeout=c.s),
    short=True,
)
case("chord", "of one task", lambda c: chord([c.t.add.s(1, 1)], c.t.total.s())().get(timeout=c.s))
case("chord", "of none", lambda c: chord([], c.t.total.s())().get(timeout=c.s))
case("chord", "order of its values", lambda c: chord(adds(c, 9, 1))(c.t.echo.s()).get(timeout=c.s))
case(
    "chord",
    "a failure in its header",
    lambda c: c.end(chord([c.t.add.s(1, 1), c.t.boom.s("part")])(c.t.total.s())),
    short=True,
)
case(
    "chord",
    "a failure in its body",
    lambda c: c.end(chord([c.t.add.s(1, 1)] * 2)(c.t.boom.si("body"))),
)
case(
    "chord", "an immutable body", lambda c: chord(adds(c, 3, 1))(c.t.add.si(4, 4)).get(timeout=c.s)
)
case(
    "chord",
    "a chain in its header",
    lambda c: chord([c.t.add.s(1, 1) | c.t.add.s(2), c.t.add.s(0, 0)])(c.t.total.s()).get(
        timeout=c.s
    ),
)
case(
    "chord",
    "a group in its header",
    lambda c: chord([group(adds(c, 2, 1)), c.t.add.s(1, 1)])(c.t.echo.s()).get(timeout=c.s),
)
case(
    "chord",
    "a chord in its header",
    lambda c: chord([chord(adds(c, 2, 1), c.t.total.s()), c.t.add.s(1, 1)])(c.t.total.s()).get(
        timeout=c.s
    ),
    short=True,
)
case(
    "chord",
    "a chord in its body",
    lambda c: chord(
        adds(c, 2, 1), c.t.total.s() | group(c.t.add.s(1), c.t.add.s(2)) | c.t.total.s()
    )().get(timeout=c.s),
)
case(
    "chord",
    "a task that retries in its header",
    lambda c: chord([c.t.flaky.s(2), c.t.add.s(1, 1)])(c.t.total.s()).get(timeout=c.s),
)
case(
    "chord",
    "an ignored result in its header",
    lambda c: c.end(chord([c.t.silent.s(c.key), c.t.add.s(1, 1)])(c.t.count.s(key=c.key + "n"))),
)
case(
    "chord",
    "a task that takes itself out (Ignore)",
    lambda c: c.end(chord([c.t.ignores.s(c.key), c.t.add.s(1, 1)])(c.t.total.s()), 2.0),
)
case(
    "chord",
    "a body with a countdown",
    lambda c: chord(adds(c, 2, 1))(c.t.total.s().set(countdown=0.3)).get(timeout=c.s),
)
case(
    "chord",
    "keyword arguments of its body",
    lambda c: chord(adds(c, 2, 1))(c.t.echo.s(k=1)).get(timeout=c.s),
)
case(
    "chord.parent",
    "the header's results",
    lambda c: [
        (r := chord(adds(c, 3, 1))(c.t.total.s())).get(timeout=c.s),
        r.parent.get(timeout=c.s),
    ],
)
case(
    "chord of 60",
    "one body",
    lambda c: [chord(adds(c, 60, 1))(c.t.count.s(key=c.key)).get(timeout=c.s), c.marks()],
)
case(
    "chord in a chain",
    "before and after",
    lambda c: chain(
        c.t.add.s(1, 1), chord([c.t.add.s(1), c.t.add.s(2)], c.t.total.s()), c.t.add.s(10)
    )().get(timeout=c.s),
)
case(
    "chord | errback",
    "on_error of a chord",
    lambda c: [
        c.end(
            chord([c.t.boom.s("part"), c.t.add.s(1, 1)])(
                c.t.total.s().on_error(c.t.errback.s(key=c.key))
            )
        ),
        c.marks(1)[0],
    ],
)
case(
    "chunks",
    "values by parts",
    lambda c: c.t.add.chunks([(i, i) for i in range(5)], 2).apply_async().get(timeout=c.s),
    short=True,
)
case(
    "chunks.group",
    "as a group",
    lambda c: c.t.add.chunks([(i, i) for i in range(4)], 2).group()().get(timeout=c.s),
)
case(
    "chunks.group.skew",
    "with delays",
    lambda c: (
        c.t.add.chunks([(1, 1), (2, 2)], 1)
        .group()
        .skew(start=0.1, stop=0.2, step=0.1)()
        .get(timeout=c.s)
    ),
)
case(
    "map",
    "a task over values",
    lambda c: c.t.total.map([[1, 2], [3]]).apply_async().get(timeout=c.s),
    short=True,
)
case(
    "starmap",
    "a task over arguments",
    lambda c: c.t.add.starmap([(1, 2), (3, 4)]).apply_async().get(timeout=c.s),
)
case(
    "xmap, xstarmap, chunks",
    "made by hand",
    lambda c: [
        xmap(c.t.total.s(), [[1], [2]], app=c.app).apply_async().get(timeout=c.s),
        xstarmap(c.t.add.s(), [(1, 1)], app=c.app).apply_async().get(timeout=c.s),
        chunks(c.t.add.s(), [(1, 1)], 1, app=c.app).apply_async().get(timeout=c.s),
    ],
)
case(
    "map",
    "in a chain",
    lambda c: chain(c.t.total.map([[1, 2], [3]]), c.t.total.s())().get(timeout=c.s),
)
case(
    "signature",
    "by name",
    lambda c: signature("parity.add", args=(1, 2), app=c.app).apply_async().get(timeout=c.s),
)
case(
    "signature",
    "from a mapping",
    lambda c: signature(dict(c.t.add.s(1, 2)), app=c.app).delay().get(timeout=c.s),
)
case(
    "signature.clone, set, replace",
    "what they change",
    lambda c: c.t.add.s(1).clone(args=(2,), kwargs={}).set(countdown=0.1).delay().get(timeout=c.s),
)
case(
    "signature.freeze",
    "the id that it will have",
    lambda c: [(s := c.t.add.s(1, 2)).freeze(f"frozen-{c.key}").id, s.delay().get(timeout=c.s)][1],
)
case("signature()", "called here and now", lambda c: c.t.add.s(1, 2)())
case("signature.reverse, ~", "called and waited for", lambda c: ~c.t.add.s(4, 4))
case(
    "partial",
    "arguments before and after",
    lambda c: c.t.echo.s(2, k=1).delay(1, k=3).get(timeout=c.s),
)
case(
    "apply",
    "a chain here and now",
    lambda c: chain(c.t.add.s(1, 2), c.t.add.s(3)).apply().get(timeout=c.s),
)
case(
    "apply",
    "a chord here and now",
    lambda c: chord(adds(c, 3, 1), c.t.total.s()).apply().get(timeout=c.s),
)
case(
    "link",
    "its callback gets the value",
    lambda c: [c.end(c.t.add.apply_async((1, 2), link=c.t.called.s(key=c.key))), c.marks(1)],
    short=True,
)
case(
    "link",
    "many callbacks",
    lambda c: [
        c.end(c.t.add.apply_async((1, 2), link=[c.t.called.s(key=c.key), c.t.called.s(key=c.key)])),
        c.marks(2),
    ],
)
case(
    "link",
    "a chain as callback",
    lambda c: [
        c.end(c.t.add.apply_async((1, 2), link=c.t.add.s(1) | c.t.called.s(key=c.key))),
        c.marks(1),
    ],
)
case(
    "link",
    "of a group",
    lambda c: raised(lambda: group(adds(c, 2, 1)).link(c.t.called.s(key=c.key))) and c.marks(),
)
case(
    "link",
    "of a chain",
    lambda c: [
        c.end(chain(c.t.add.s(1, 1), c.t.add.s(1), link=[c.t.called.s(key=c.key)])()),
        c.marks(1),
    ][0],
)
case(
    "link_error",
    "an errback of the new form",
    lambda c: [
        c.end(c.t.boom.apply_async(("x",), link_error=c.t.errback.s(key=c.key))),
        c.marks(1),
    ],
    short=True,
)
case(
    "link_error",
    "an errback of the old form",
    lambda c: [c.end(r := c.t.boom.apply_async(link_error=c.t.old_errback.s())), c.marks(1, r.id)],
)
case(
    "link_error",
    "many errbacks",
    lambda c: [c.end(c.t.boom.apply_async(link_error=[c.t.errback.s(key=c.key)] * 2)), c.marks(2)],
)
case(
    "link_error",
    "of a chain, in its middle",
    lambda c: [
        chain(c.t.add.s(1, 2), c.t.boom.s(), c.t.add.s(1))
        .on_error(c.t.errback.s(key=c.key))
        .apply_async()
        and 0,
        c.marks(1),
    ],
)
case(
    "link_error",
    "of a group",
    lambda c: [
        group(c.t.boom.s("g"), c.t.add.s(1, 1)).on_error(c.t.errback.s(key=c.key)).apply_async()
        and 0,
        c.marks(1),
    ],
)
case(
    "link_error",
    "not called when it succeeds",
    lambda c: [c.end(c.t.add.apply_async((1, 1), link_error=c.t.errback.s(key=c.key))), c.marks()],
)
case(
    "link_error",
    "after retries are used up",
    lambda c: [c.end(c.t.flaky.apply_async((9,), link_error=c.t.errback.s(key=c.key))), c.marks(1)],
)


class Stamps(StampingVisitor):
    """Stamps each signature with a word."""

    def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
        return {"word": "stamped", "stamped_headers": ["word"]}


case(
    "stamp",
    "of a task",
    lambda c: [
        (s := c.t.fields.s("stamps", "stamped_headers")).stamp(color="red"),
        s.delay().get(timeout=c.s),
    ],
)
case(
    "stamp(visitor=)",
    "of a task",
    lambda c: [
        (s := c.t.fields.s("stamps", "stamped_headers")).stamp(visitor=Stamps()),
        s.delay().get(timeout=c.s),
    ],
)
case(
    "stamp",
    "of a chain",
    lambda c: [
        (s := chain(c.t.add.s(1, 1), c.t.fields.si("stamps"))).stamp(color="red"),
        s.delay().get(timeout=c.s),
    ],
)
case(
    "stamp",
    "of a chord's body",
    lambda c: [
        (s := chord([c.t.add.s(1, 1)] * 2, c.t.fields.si("stamps"))).stamp(color="red"),
        s.delay().get(timeout=c.s),
    ],
)
case(
    "stamp",
    "of a group",
    lambda c: [
        (s := group(c.t.fields.s("stamps"), c.t.fields.s("stamps"))).stamp(visitor=Stamps()),
        s.delay().get(timeout=c.s),
    ],
)
