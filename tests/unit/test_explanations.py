"""The obstacles that people read agree with the view that places the task; forecasts follow from the held slots."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.devices import attributes_of, indexes_of, kind_of, share_of
from parsync_redis.model.explanation import Explanation, Forecast, Obstacle, Outlook
from parsync_redis.model.needs import SHARED_LABEL, TAINT_LABEL, Resources
from parsync_redis.model.node import Node
from parsync_redis.model.taints import tolerated
from parsync_redis.model.times import MIN_LEARNT_RUNS, LearntTimes, RunTimes, bin_of
from parsync_redis.placement.facts import Holder, NodeFacts
from parsync_redis.placement.forecast import (
    ExpectedEnd,
    WaitingTasks,
    expected_start_ms,
    forecast_end,
    forecast_start,
    has_room_now,
)
from parsync_redis.placement.now import classify, obstacles
from parsync_redis.scheduler.core.view import View
from tests.store.model.test_fits import NEEDS, OFFERS

STATES = st.sampled_from(
    [("up", False), ("up", False), ("up", True), ("suspect", False), ("down", False)]
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[View, list[NodeFacts]]:
    """Return a view of one partition, and the same as facts."""
    nodes = []
    facts = []
    first = 0
    bits = []
    for at, offer in enumerate(draw(st.lists(OFFERS, min_size=1, max_size=5))):
        state, draining = draw(STATES)
        node = Node(f"n{at}", state, 1, int(draining), first, offer.slots, 1.0, offer)
        is_open = state == "up" and not draining
        mine = [is_open and draw(st.booleans()) for _ in range(offer.slots)]
        left = {
            name: draw(st.sampled_from([0, amount // 2, amount])) for name, amount in offer.amounts
        }
        nodes.append((node, left))
        facts.append(NodeFacts(node.name, state, draining, offer, sum(mine), left))
        bits += mine
        first += offer.slots
    view = View(1)
    view.partitions[0].set_nodes([node for node, _ in nodes], 1)
    texts = {node.name: Resources.made(1, left.items(), ()).asked for node, left in nodes}
    raw = bytes(
        sum(bit << (7 - i) for i, bit in enumerate(bits[at : at + 8]))
        for at in range(0, len(bits), 8)
    )
    view.partitions[0].set_free(raw, texts, 1)
    view.rescale()
    return view, facts


@given(clusters(), NEEDS)
def test_a_node_has_a_seat_exactly_if_nothing_keeps_it(
    cluster: tuple[View, list[NodeFacts]], needs
) -> None:
    view, facts = cluster
    partition = view.partitions[0]
    seats = {partition.nodes[i].name for i in partition.seats(needs).nodes}
    assert seats == {node.name for node in facts if not obstacles(needs, node)}


@given(clusters(), NEEDS)
def test_without_the_rules_that_are_named_the_node_has_room(
    cluster: tuple[View, list[NodeFacts]], needs: Resources
) -> None:
    """Mend just what each obstacle names: then nothing keeps the node."""
    for node in cluster[1]:
        for _ in range(3):  # a node that is opened may turn out to be full
            node, found = mended(node, needs), obstacles(needs, node)
        assert not obstacles(needs, node), found


def mended(node: NodeFacts, needs: Resources) -> NodeFacts:
    amounts = dict(node.offer.amounts)
    labels = [*node.offer.labels]
    left = dict(node.amounts_left)
    slots = node.offer.slots
    free = node.free
    for obstacle in obstacles(needs, node):
        if obstacle.rule == "state":
            node = replace(node, state="up", draining=False)
        elif obstacle.rule == "slots":
            slots = needs.slots
        elif obstacle.rule == "free slots":
            free = needs.slots
        elif obstacle.rule == "protection":
            labels.append(SHARED_LABEL)
        elif obstacle.rule == "free devices":
            left |= {
                name: amount for name, amount in amounts.items() if kind_of(name) == obstacle.what
            }
        elif obstacle.rule == "resources" and kind_of(
            obstacle.what.partition("=")[0]
        ) in indexes_of(amounts):
            amounts = with_devices(amounts, kind_of(obstacle.what.partition("=")[0]), needs)
            left = dict(amounts)
        elif obstacle.rule in ("resources", "free resources"):
            name = obstacle.what.partition("=")[0]
            amounts[name] = max(amounts.get(name, 0), dict(needs.amounts)[name])
            left[name] = amounts[name]
        elif obstacle.rule == "taints":
            labels = [
                label for label in labels if label[0] != TAINT_LABEL or label[1] in tolerated(needs)
            ]
        elif obstacle.rule == "labels":
            labels = []
            meet = [
                *meeting(needs),
                *[label for label in node.offer.labels if label == SHARED_LABEL],
            ]
            return replace(
                node,
                offer=Resources.made(slots, amounts.items(), meet),
                amounts_left=left,
                free=free,
            )
    return replace(
        node, offer=Resources.made(slots, amounts.items(), labels), amounts_left=left, free=free
    )


def with_devices(amounts: dict[str, int], kind: str, needs: Resources) -> dict[str, int]:
    """Return amounts with the devices that the task asks; with a plain amount if no few devices
    make it.
    """
    found = share_of(kind, needs.amounts)
    if found is None or found[1] > 1000:
        others = {name: amount for name, amount in amounts.items() if kind_of(name) != kind}
        return others | {name: amount for name, amount in needs.amounts if kind_of(name) == kind}
    for index in range(found[1]):
        amounts[f"{kind}@{index}"] = 1000
        amounts |= {
            f"{name}@{index}": amount for name, amount in attributes_of(kind, needs.amounts)
        }
    return amounts


def meeting(needs: Resources) -> list[tuple[str, str]]:
    """Return labels that meet the conditions of needs, one value for each positive one that fits
    the others.
    """
    from parsync_redis.model.condition import holds

    names = {name for name, _ in needs.labels} - {TAINT_LABEL}
    candidates = [
        "a",
        "ab",
        "a.b",
        "b/c",
        "3",
        "-3.5",
        "03",
        "16.0",
        "2.",
        "1e3",
        "0x10",
        "123456789012345",
    ]
    found = []
    for name in names:
        conditions = [condition for other, condition in needs.labels if other == name]
        options = [
            [],
            *([value] for value in [*candidates, "999999999999999", "-99999999999999", "z"]),
        ]
        value = next((v for v in options if all(holds(c, v) for c in conditions)), [])
        found += [(name, one) for one in value]
    return found


def facts(name: str, free: int = 0, **more: object) -> NodeFacts:
    return NodeFacts(name, "up", False, Resources.of(2), free, **more)  # type: ignore[arg-type]


def test_classes_put_nodes_together_that_lack_the_same_the_nearest_first() -> None:
    needs = Resources.needed(1, {"gpu": 2}, {"zone": "a"})
    nodes = [
        NodeFacts("n1", "up", False, Resources.of(1, {"gpu": 2}, {"zone": "a"}), 1, {"gpu": 500}),
        NodeFacts("n2", "up", False, Resources.of(1, {"gpu": 4}, {"zone": "a"}), 1, {"gpu": 1500}),
        NodeFacts("n3", "up", False, Resources.of(1, {"gpu": 4}, {"zone": "b"}), 1, {"gpu": 4000}),
        NodeFacts(
            "n4", "down", False, Resources.of(1, {"gpu": 4}, {"zone": "a"}), 0, {"gpu": 4000}
        ),
        NodeFacts("n5", "up", False, Resources.of(1, {"gpu": 4}, {"zone": "c"}), 1, {"gpu": 4000}),
    ]
    found = classify(needs, nodes)
    assert [some.nodes for some in found] == [("n2", "n1"), ("n4",), ("n3", "n5")]
    assert found[0].obstacles == (
        Obstacle("free resources", False, "gpu", "is short of gpu: the task needs 2", 0.5),
    )
    assert [o.why for o in found[2].obstacles] == ["lacks zone:a"]


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (1, 100),
        (2, 300),
        (3, None),  # no node has three slots
    ],
)
def test_the_leader_expects_a_start_when_the_tasks_that_hold_a_node_leave_enough(
    slots: int, expected: int | None
) -> None:
    ends = [
        ExpectedEnd(Holder("n1", f"t{n}", {}, 1, 0), until) for n, until in enumerate([100, 300])
    ]
    ends.append(ExpectedEnd(Holder("n2", "t9", {}, 2, 0), None))
    nodes = [facts("n1"), facts("n2")]
    assert expected_start_ms(Resources.needed(slots), nodes, ends, 10) == expected
    assert expected_start_ms(Resources.needed(1), nodes, [], 10) == 10


def test_a_task_that_ended_between_the_two_reads_of_a_node_does_not_keep_it() -> None:
    node = NodeFacts("n1", "up", False, Resources.of(4, {"gpu": 1}), 0, {"gpu": 0})
    ends = [
        ExpectedEnd(Holder("n1", task, {}, 1, 0), until_ms)
        for task, until_ms in (("a", 50), ("b", 70), ("c", 90))
    ]
    assert expected_start_ms(Resources.needed(4, {"gpu": 1}), [node], ends, 0) == 90
    assert expected_start_ms(Resources.needed(1), [node], ends, 0) == 0


def test_a_held_amount_comes_back_when_its_holder_ends() -> None:
    needs = Resources.needed(1, {"gpu": 0.5})
    node = NodeFacts("n1", "up", False, Resources.of(4, {"gpu": 1}), 2, {"gpu": 250})
    ends = [
        ExpectedEnd(Holder("n1", "a", {"gpu": 125}), 50),
        ExpectedEnd(Holder("n1", "b", {"gpu": 625}), 70),
    ]
    assert expected_start_ms(needs, [node], ends, 0) == 70


SLOT = Resources.needed(1)


def learnt(runs: int = 500, **runs_ms: float) -> LearntTimes:
    """Return run times by name: as many runs of each were learnt, all equally long."""
    return LearntTimes(
        {
            name: RunTimes(runs, runs * ms, Counter({bin_of(ms): runs}))
            for name, ms in runs_ms.items()
        }
    )


def held_by(name: str, node: str = "n1", since_ms: int = 0) -> list[tuple[Holder, str]]:
    return [(Holder(node, f"t{slot}", {}, 1, since_ms), name) for slot in range(2)]


def starts(
    times: LearntTimes, *ahead: WaitingTasks, name: str = "work", seed: str = "a"
) -> Forecast | str:
    return forecast_start(
        WaitingTasks("work", SLOT, [facts("n1")]), ahead, held_by(name), times, 10, seed
    )


def test_a_forecast_waits_for_the_tasks_that_hold_and_for_those_before_it() -> None:
    times = learnt(work=1000, small=100)
    alone = starts(times)
    behind = starts(times, WaitingTasks("work", SLOT, [facts("n1")], range(8)))
    assert isinstance(alone, Forecast)
    assert isinstance(behind, Forecast)
    assert 840 < alone.p5_ms <= alone.p50_ms <= alone.p95_ms < 1100
    assert 4.9 * 840 < behind.p5_ms <= behind.p95_ms < 5.1 * 1100
    assert starts(times) == alone, "the same task is told the same"


def test_tasks_of_other_needs_count_if_they_come_first_on_its_nodes() -> None:
    times = learnt(work=1000, large=10_000)
    behind = starts(times, WaitingTasks("large", Resources.needed(2), [facts("n1")], [0, 1]))
    assert isinstance(behind, Forecast)
    elsewhere = starts(times, WaitingTasks("large", Resources.needed(2), [facts("n2")], [0, 1]))
    assert isinstance(elsewhere, Forecast)
    assert elsewhere.p95_ms < 1100


@pytest.mark.parametrize("times", [learnt(), learnt(MIN_LEARNT_RUNS - 1, work=1000)])
def test_a_forecast_is_unknown_without_enough_runs_of_the_name(
    times: LearntTimes,
) -> None:
    assert starts(times) == "fewer than 10 runs of work are known"
    assert starts(learnt(work=1000), name="new") == "fewer than 10 runs of new are known"
    many = WaitingTasks("work", SLOT, [facts("n1")], range(50))
    assert starts(learnt(49, work=1000), many) == "fewer than 50 runs of work are known"
    ahead = WaitingTasks("new", SLOT, [facts("n1")], [0])
    assert starts(learnt(work=1000), ahead) == "fewer than 10 runs of new are known"


def test_a_task_has_room_now_if_those_before_it_leave_enough() -> None:
    task = WaitingTasks("work", SLOT, [facts("n1")])
    ahead = [WaitingTasks("new", SLOT, [facts("n1")], [0])]
    assert has_room_now(task, ahead, [], ["n1"])
    assert not has_room_now(task, ahead, held_by("new")[:1], ["n1"])
    assert has_room_now(
        task, [WaitingTasks("new", Resources.needed(3), [facts("n1")], [0])], [], ["n1"]
    )


def test_a_run_that_is_longer_than_all_before_it_ends_no_sooner_than_now_and_may_last() -> None:
    holder = Holder("n1", "t1", {}, 1, 0)
    end = forecast_end("work", holder, Resources.of(2), learnt(work=1000), 5000)
    assert end is not None
    assert 5000 < end.p5_ms < end.p50_ms < end.p95_ms
    assert end.p95_ms > 20_000
    assert forecast_end("new", holder, Resources.of(2), learnt(work=1000), 5000) is None


def test_a_forecast_shows_a_range_and_the_unknown_parts() -> None:
    waits = Explanation(
        "t1",
        "work",
        "slots=1",
        Outlook.WAITS,
        "it waits",
        now_ms=1000,
        start=Forecast(13_000, 50_000, 241_000),
    )
    assert (
        waits.start_text
        == "it starts in between 12s and 4m, 9 times of 10, if nothing is submitted that comes before it"
    )
    unknown = replace(waits, start=None, no_forecast="fewer than 10 runs of work are known")
    assert (
        unknown.start_text
        == "when it starts is not known yet: fewer than 10 runs of work are known"
    )
    assert Forecast(1, 2, 3).not_before(2) == Forecast(2, 2, 3)
