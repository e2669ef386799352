"""The reasons why a task waits: the words for each state of the nodes that fit the task."""

import pytest

from parsync_redis.model.needs import Resources, parse_needs, parse_resources
from parsync_redis.model.record import Record, TaskLine
from parsync_redis.model.status import TaskStatus
from parsync_redis.placement.facts import Holder, NodeFacts
from parsync_redis.placement.reasons import NO_NAME, NO_NODE, ROOM, explain_waiting, reason_class

GPU = parse_resources("slots=1 gpu=1 kind:gpu")
OFFER = "slots=2 gpu=2 kind:gpu"


def node(name="n1", state="up", offer=OFFER, free=2, left=None, **facts):
    resources = parse_resources(offer)
    return NodeFacts(
        name,
        state,
        facts.pop("draining", False),
        resources,
        free,
        dict(resources.amounts) if left is None else left,
        **facts,
    )


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (node(draining=True, note="no deadline"), "is drained"),
        (node(draining=True, note="deadline_s=60: a new disk"), "is drained: a new disk"),
        (node(state="down", down_ms=0), "is down since 1970-01-01 00:00:00 UTC"),
        (node(state="down"), "is down"),
        (node(state="down", draining=True), "is down"),
        (
            node(state="suspect", note="alive, but 3 tasks did not start"),
            "is suspect: alive, but 3 tasks did not start",
        ),
        (node(state="leaving"), "shuts down"),
        (node(free=0), "is full"),
        (node(left={"gpu": 0}), "is short of gpu: the task needs 1"),
        (node(left={}), "is short of gpu: the task needs 1"),
    ],
)
def test_the_reason_names_the_only_fitting_node_and_its_obstacle(facts, why):
    others = [node("cpu", offer="slots=8"), node("gpu0", offer="slots=1 gpu=1 kind:cpu")]
    assert explain_waiting(GPU, [*others, facts]) == f"only node n1 fits: it {why}"


def test_the_reason_names_the_holders_of_a_scarce_amount():
    holders = [
        Holder("n1", "t1", {"gpu": 2}),
        Holder("n1", "t2", {}),
        Holder("n2", "t3", {"gpu": 1}),
    ]
    full = explain_waiting(GPU, [node(free=0)], holders)
    assert full == "only node n1 fits: it is full until one of the tasks t1, t2 ends"
    short = explain_waiting(GPU, [node(left={"gpu": 0})], holders)
    assert short == (
        "only node n1 fits: it is short of gpu: the task needs 1, and 0 of 2 is left until task t1 "
        "ends"
    )
    wide = explain_waiting(
        Resources.of(2), [node(free=1)], [Holder("n1", f"t{n}", {}) for n in range(5)]
    )
    assert wide == (
        "only node n1 fits: it has fewer than 2 free slots until one of the tasks t0, t1, t2 or 2 "
        "more ends"
    )


def test_of_many_nodes_the_open_ones_are_named_first_and_the_rest_counted():
    nodes = [
        node("a", "down"),
        node("b", draining=True),
        node("c", free=0),
        node("d", "suspect"),
        node("e", offer="slots=1"),
    ]
    assert (
        explain_waiting(GPU, nodes) == "4 nodes fit: c is full; a is down; b is drained; and 1 more"
    )


def test_a_node_with_room_is_told_wherever_it_stands():
    nodes = [*(node(f"a{n}", free=0) for n in range(5)), node("z")]
    assert explain_waiting(GPU, nodes) == f"node z {ROOM}"


def test_where_no_node_fits_the_need_or_the_closest_node_is_named():
    assert explain_waiting(GPU, []) == NO_NODE
    assert explain_waiting(GPU, [node(offer="slots=4")]).startswith(
        "no node fits: task needs gpu=1; no node declares"
    )
    nodes = [node("a", offer="slots=4 gpu=1"), node("b", offer="slots=4 kind:gpu")]
    assert "a comes closest: it lacks kind:gpu" in explain_waiting(GPU, nodes)


def test_a_node_that_does_not_know_the_name_does_not_fit():
    assert explain_waiting(GPU, [node(knows=False)]) == NO_NAME
    nodes = [node("a", knows=False), node("b", "down")]
    assert explain_waiting(GPU, nodes) == "only node b fits: it is down"


def test_a_queue_that_nobody_consumes_is_named_as_such():
    offer = "slots=1 celery.queue:celery celery.queue:fast celery.tasks:00ff zone:a"
    routed = parse_resources("slots=1 celery.queue:slow")
    assert explain_waiting(routed, [node(offer=offer)]) == (
        "no node fits: no node consumes the queue slow; nodes consume celery, fast"
    )
    assert (
        explain_waiting(parse_resources("slots=1 celery.queue:fast"), [node(offer=offer)])
        == f"node n1 {ROOM}"
    )
    assert "there are labels zone" in explain_waiting(
        parse_resources("slots=1 kind:x"), [node(offer=offer)]
    )


HALVES = "slots=8 gpu.mem@0=24 gpu.mem@1=24 gpu@0=1 gpu@1=1 kind:gpu"


@pytest.mark.parametrize(
    ("asks", "left", "why"),
    [
        (
            "gpu.mem=16",
            "gpu.mem@0=4 gpu.mem@1=8 gpu@0=0.5 gpu@1=0.999",
            "gpu.mem=16, on one device, and no gpu has gpu.mem=16 left; the freest, gpu 1, has 8",
        ),
        (
            "gpu.mem=16",
            "gpu.mem@0=24 gpu.mem@1=8 gpu@0=0 gpu@1=0.999",
            "gpu.mem=16, on one device, and no gpu that is free enough has gpu.mem=16 left; the "
            "freest, gpu 1, has 8",
        ),
        (
            "gpu.mem=16",
            "gpu.mem@0=24 gpu.mem@1=24 gpu@0=0 gpu@1=0",
            "gpu.mem=16, on one device, and each gpu is held whole",
        ),
        (
            "gpu=0.7",
            "gpu.mem@0=4 gpu.mem@1=8 gpu@0=0.6 gpu@1=0.5",
            "gpu=0.7, on one device, and no gpu has gpu=0.7 left; the freest, gpu 0, has 0.6",
        ),
        (
            "gpu=2",
            "gpu.mem@0=24 gpu.mem@1=24 gpu@0=1 gpu@1=0.999",
            "gpu=2, 2 whole devices, and 1 of 2 gpu devices are free",
        ),
        (
            "gpu=1",
            "gpu.mem@0=24 gpu.mem@1=24 gpu@0=0 gpu@1=0.2",
            "gpu=1, a whole device, and 0 of 2 gpu devices are free",
        ),
        (
            "gpu=2 gpu.mem=16",
            "gpu.mem@0=24 gpu.mem@1=12 gpu@0=1 gpu@1=1",
            "gpu=2 gpu.mem=16, 2 whole devices, and 1 of 2 gpu devices have all of it left",
        ),
    ],
)
def test_the_reason_names_the_freest_device_and_its_free_amount(
    asks: str, left: str, why: str
) -> None:
    full = node(offer=HALVES, free=8, left=dict(parse_resources(left).amounts))
    holders = [
        Holder("n1", "t1", {"gpu@1": 500}),
        Holder("n1", "t2", {"mem": 1}),
        Holder("n2", "t3", {"gpu@0": 1}),
    ]
    reason = explain_waiting(parse_needs(f"slots=1 {asks}"), [full], holders)
    assert (
        reason == f"only node n1 fits: it is short of gpu: the task needs {why} until task t1 ends"
    )


@pytest.mark.parametrize(
    ("why", "word"),
    [
        ("", "unexplained"),
        (NO_NODE, "no_node"),
        (NO_NAME, "unknown_name"),
        (f"node n1 {ROOM}", "room"),
        ("what nobody wrote", "other"),
        ("only node is full fits: it is full", "other"),
        *(
            (explain_waiting(GPU, [*more, facts]), word)
            for more in ([], [node("n9", state="down")])
            for facts, word in [
                (node(free=0), "full"),
                (node(left={"gpu": 0}), "resources"),
                (node(booked="a task"), "reserved"),
                (node(held_back=True), "held_back"),
                (
                    node(offer=OFFER.replace("kind:gpu", "kind:cpu")),
                    "no_fit" if not more else "down",
                ),
                (node(state="down", draining=True), "down"),
                (node(draining=True, note="no deadline: n2 is full"), "drained"),
                (node(state="suspect"), "suspect"),
                (node(state="leaving"), "leaving"),
                (node(), "room"),
            ]
        ),
        (explain_waiting(parse_resources("slots=2"), [node(offer="slots=4", free=1)]), "full"),
        (
            explain_waiting(parse_resources("slots=1 apart_web=1"), [node(left={"apart_web": 0})]),
            "apart",
        ),
    ],
)
def test_each_reason_is_of_a_class(why, word):
    assert reason_class(why) == word


@pytest.mark.parametrize(
    ("ready_ms", "why"), [(1400, "its name is held back"), (1000, "only node n1 fits: it is full")]
)
def test_a_task_that_is_put_off_for_a_moment_has_its_own_reason_and_not_that_of_its_kind(
    ready_ms, why
):
    line = TaskLine.of(f"+1@1 8121795630000001 {ready_ms} 900 since=900 work slots=1")
    kind_line = "1 8121795630000002 8121795630000002 only node n1 fits: it is full"
    record = Record(
        "a", "pending", 1000, "", line, kind_line=kind_line, extra={"why": "its name is held back"}
    )
    assert TaskStatus.of(record).why == why
