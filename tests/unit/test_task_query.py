"""A query finds tasks in a fixed order. Pure."""

import pytest

from parsync_redis.errors import InvalidInput
from parsync_redis.inspect.node_detail import no_such_node
from parsync_redis.model.place import Place
from parsync_redis.model.record import TaskLine
from parsync_redis.store.reads.find_tasks import TaskEntry, TaskQuery, matches, order_of

NOW_MS = 1_000_000


def seen(
    id,
    name="a.b",
    submitted_ms=NOW_MS - 60_000,
    node="",
    asked="",
    started_ms=None,
    ended_ms=None,
    accounts="",
):
    text = f"0@1 8121795630000001 {submitted_ms} {submitted_ms} - {name} slots=1{accounts}"
    line = TaskLine.of(text)
    place = Place(id, "1@1.s1.0", 0, node, (0,), 1, submitted_ms, asked) if node else None
    return TaskEntry(id, line, place, started_ms, ended_ms)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"name": "a.*"}, "a r e"),
        ({"node": "n1"}, "r"),
        ({"node": "n1", "name": "x.*"}, ""),
        ({"holds": "gpu"}, "r"),
        ({"holds": "gpu.mem"}, "r"),
        ({"holds": "mem"}, "x"),
        ({"older_than_s": 100}, "r e"),
        ({"older_than_s": 100, "node": "n2"}, ""),
        ({"tenant": "research"}, "r x"),
        ({"tenant": "research/anna"}, "r"),
        ({"tenant": "res"}, ""),
        ({"under": "stripe"}, "r e"),
        ({"under": "stripe", "tenant": "research"}, "r"),
    ],
)
def test_each_condition_and_all_of_several(query, found):
    tasks = [
        seen("a"),
        seen(
            "r",
            node="n1",
            asked="gpu@1=0.5 gpu.mem@1=8",
            submitted_ms=NOW_MS - 200_000,
            started_ms=NOW_MS - 5,
            accounts=" for=research/anna under=customer:7,stripe*2",
        ),
        seen("x", "x.y", node="n2", asked="mem=4 gpu=0", accounts=" for=research"),
        seen(
            "e",
            submitted_ms=NOW_MS - 300_000,
            ended_ms=NOW_MS - 150_000,
            accounts=" under=stripe",
        ),
    ]
    assert " ".join(one.id for one in tasks if matches(one, TaskQuery(**query), NOW_MS)) == found


def test_orders():
    tasks = [
        seen("waits", "c", NOW_MS - 900),
        seen("short", "b", NOW_MS - 800, "n2", started_ms=NOW_MS - 10),
        seen("long", "a", NOW_MS - 700, "n1", started_ms=NOW_MS - 600),
        seen("ended", "d", NOW_MS - 5000, "n3", started_ms=NOW_MS - 5000, ended_ms=NOW_MS - 100),
    ]
    orders = {
        "run": "ended long short waits",
        "age": "waits short long ended",
        "name": "long short waits ended",
        "node": "long short ended waits",
        "ended": "ended long short waits",
    }
    for sort, right in orders.items():
        assert (
            " ".join(one.id for one in sorted(tasks, key=lambda one: order_of(one, sort, NOW_MS)))
            == right
        ), sort
    with pytest.raises(InvalidInput, match="sort='size' is not known: known are age, run"):
        TaskQuery(sort="size")


def test_an_unknown_node_names_the_nearest():
    assert no_such_node("gpu-3", ["gpu-1", "gpu-2", "web-1"]).startswith(
        "no node 'gpu-3': there are gpu-"
    )
    assert no_such_node("n1", []) == "no node 'n1': no node is registered"
    assert no_such_node("x", [f"n{n}" for n in range(1000)]).endswith("n7, ... (1,000 in all)")
