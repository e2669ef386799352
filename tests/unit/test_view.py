"""The view: where a task could go, as far as a scheduler knows."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.placement.fits import fits
from parsync_redis.placement.strategy import Ints
from parsync_redis.scheduler.core.offers import MAX_DISTINCT
from parsync_redis.scheduler.core.partition import PartitionCopy, Seats
from parsync_redis.scheduler.core.view import View


def node(
    name: str, first: int, slots: int, score: float = 1.0, **labels_and_amounts: object
) -> Node:
    resources = {k: v for k, v in labels_and_amounts.items() if isinstance(v, int)}
    labels = {k: v for k, v in labels_and_amounts.items() if isinstance(v, str)}
    # name, state, incarnation, drain, first bit, slots, score, offer
    return Node(name, "up", 1, False, first, slots, score, Resources.of(slots, resources, labels))


def bits(*free: int, size: int = 32) -> bytes:
    """Return a bitmap as SETBIT writes it."""
    flags = np.zeros(size, dtype=bool)
    flags[list(free)] = True
    return np.packbits(flags).tobytes()


def partition(
    *nodes: Node, free: tuple[int, ...], left: dict[str, str] | None = None
) -> PartitionCopy:
    view = View(1)
    view.partitions[0].set_nodes(nodes, 1)
    view.partitions[0].set_free(bits(*free), left or {}, 1)
    view.rescale()
    return view.partitions[0]


def everything(seats: Seats) -> Ints:
    return np.arange(len(seats.leads))


def test_every_free_slot_is_a_seat_for_a_plain_task() -> None:
    view = partition(node("a", 0, 4), node("b", 4, 4), free=(0, 2, 5))
    seats = view.seats(Resources.of(1))
    places = view.reserve(seats, everything(seats), Resources.of(1))
    assert [(node.name, slots) for node, slots in places.claim(3)] == [
        ("a", (0,)),
        ("a", (2,)),
        ("b", (1,)),
    ]
    assert view.free_count == 0


def test_seats_are_moved_to_other_free_slots_of_their_nodes() -> None:
    """A task that packs and holds an amount: the node has more free slots than seats."""
    needs = Resources.of(1, {"mem": 1})
    slots_by_shift = dict[int, list[tuple[str, tuple[int, ...]]]]()
    for shift in (0, 1, 5):
        view = partition(
            node("a", 0, 8, mem=2),
            node("b", 8, 4, mem=1),
            free=(0, 2, 3, 5, 8, 11),
            left={"a": "mem=2", "b": "mem=1"},
        )
        seats = view.seats(needs)
        places = view.reserve(seats, everything(seats), needs, shift)
        slots_by_shift[shift] = [(node.name, slots) for node, slots in places.claim(3)]
        assert view.free_count == 3
    assert slots_by_shift == {
        0: [("a", (0,)), ("a", (2,)), ("b", (0,))],
        1: [("a", (2,)), ("a", (3,)), ("b", (3,))],
        5: [("a", (2,)), ("a", (3,)), ("b", (3,))],
    }


def test_partitions_share_what_the_rules_say_of_equal_offers_unless_there_are_many() -> None:
    needs = Resources.needed(1, {"mem": 2}, {"zone": "a"})
    for extra in (1, MAX_DISTINCT):
        view = View(2)
        view.partitions[0].set_nodes(
            [node("a", 0, 4, mem=2, zone="a"), node("b", 4, 4, mem=1, zone="a")], 1
        )
        others = [node(f"n{i}", 8 + i, 1, mem=1, zone=f"z{i}") for i in range(extra)]
        view.partitions[1].set_nodes(
            [node("c", 0, 4, mem=2, zone="b"), node("d", 4, 4, mem=2, zone="a"), *others], 1
        )
        view.rescale()
        masks = [partition.offers.fitting(needs, None).tolist() for partition in view.partitions]
        assert masks == [[True, False], [False, True] + [False] * extra]
        view.partitions[0].set_nodes([node("e", 0, 4, mem=3, zone="a")], 2)
        view.rescale()
        assert view.partitions[0].offers.fitting(needs, None).tolist() == [True]
        assert view.partitions[1].offers.fitting(needs, None).tolist() == masks[1]


def test_several_slots_are_of_one_node() -> None:
    view = partition(node("a", 0, 4), node("b", 4, 4), free=(0, 4, 5, 7))
    seats = view.seats(Resources.of(2))
    assert len(seats.leads) == 1
    assert view.reserve(seats, everything(seats), Resources.of(2)).slots == [(0, 1)]


def test_labels_and_amounts_narrow_the_seats() -> None:
    view = partition(
        node("a", 0, 4, gpu=2, model="t4"),
        node("b", 4, 4, gpu=2, model="a100"),
        node("c", 8, 4),
        free=tuple(range(12)),
        left={"a": "gpu=2", "b": "gpu=1"},
    )
    assert len(view.seats(Resources.of(1, labels={"model": "a100"})).leads) == 4
    one_gpu = view.seats(Resources.of(1, {"gpu": 1}))
    assert sorted(view.nodes[i].name for i in one_gpu.nodes) == ["a", "a", "b"], (
        "as many as each has GPUs left"
    )
    assert len(view.seats(Resources.of(1, {"gpu": 2})).leads) == 1
    assert len(view.seats(Resources.of(1, {"gpu": 3})).leads) == 0


def test_reserving_takes_slots_and_amounts_away_until_they_are_given_back() -> None:
    needs = Resources.of(1, {"gpu": 1})
    view = partition(node("a", 0, 4, gpu=2), free=(0, 1, 2, 3), left={"a": "gpu=2"})
    seats = view.seats(needs)
    places = view.reserve(seats, everything(seats), needs)
    assert len(view.seats(needs).leads) == 0
    assert len(view.seats(Resources.of(1)).leads) == 2
    places.claim(1)
    places.give_back()
    assert (view.free_count, len(view.seats(needs).leads)) == (3, 1), "a claim is Redis' to judge"
    places.give_back()
    assert view.free_count == 3, "it was given back before"


def test_a_snapshot_does_not_free_reserved_slots_and_tells_which_slots_are_gone() -> None:
    needs = Resources.of(1, {"gpu": 1})
    view = partition(node("a", 0, 4, gpu=2), free=(0, 1), left={"a": "gpu=2"})
    places = view.reserve(view.seats(needs), np.arange(2), needs)
    view.set_free(bits(0, 2), {"a": "gpu=2"}, 2)
    assert places.slots == [(0,)]
    assert (view.free_count, len(view.seats(needs).leads)) == (1, 1)
    places.give_back()
    assert (view.free_count, len(view.seats(needs).leads)) == (2, 2)
    places = view.reserve(view.seats(needs), np.arange(1), needs)
    view.set_nodes([node("b", 0, 4)], 2)
    assert len(places) == 0
    places.give_back()
    assert view.free_count == 0


def test_bits_beyond_the_nodes_count_for_nothing() -> None:
    view = partition(node("a", 0, 2), free=(0, 1, 2, 3, 9))
    assert view.free_count == 2


def test_quality_is_the_score_in_standard_deviations_weighted_by_slots() -> None:
    view = View(2)
    view.partitions[0].set_nodes([node("a", 0, 3, score=1.0)], 1)
    view.partitions[1].set_nodes([node("b", 0, 1, score=5.0)], 1)
    view.rescale()
    mean = 2.0
    spread = np.sqrt((3 * 1 + 9) / 4)
    assert np.isclose(view.partitions[0].quality[0], (1 - mean) / spread)
    assert np.isclose(view.partitions[1].quality[0], (5 - mean) / spread)


def test_explain_names_the_missing_resources() -> None:
    view = View(1)
    view.partitions[0].set_nodes([node("a", 0, 4, gpu=1)], 1)
    view.partitions[0].set_free(bits(0), {"a": "gpu=0"}, 1)
    view.rescale()
    assert view.explain(Resources.of(1, labels={"zone": "x"})) == (
        "no node fits: no node has label zone:x; there are no labels"
    )
    assert view.explain(Resources.of(2)) == "only node a fits: it has fewer than 2 free slots"
    assert (
        view.explain(Resources.of(1, {"gpu": 1}))
        == "only node a fits: it is short of gpu: the task needs 1"
    )
    assert View(1).explain(Resources.of(1)).startswith("the cluster has no node")


def test_explain_tells_a_node_that_is_drained_or_down_from_one_that_is_not_there() -> None:
    view = View(2)
    nodes = [
        replace(node("a", 0, 4, gpu=1), state="down"),
        replace(node("b", 4, 4, gpu=1), drain=1),
        node("c", 8, 4),
    ]
    view.partitions[1].set_nodes(nodes, 1)
    view.partitions[1].set_free(bits(8, 9), {"c": ""}, 1)
    assert view.explain(Resources.of(1, {"gpu": 1})) == "2 nodes fit: a is down; b is drained"


@given(st.data())
def test_all_seats_together_can_be_filled(data: st.DataObject) -> None:
    """Taking every seat uses no slot twice and no node's amounts beyond what is left; no seat is
    left out.
    """
    nodes = []
    first = 0
    for i in range(data.draw(st.integers(1, 4))):
        slots = data.draw(st.integers(1, 6))
        gpu = data.draw(st.integers(0, 4))
        nodes.append(node(f"n{i}", first, slots, gpu=gpu))
        first += slots
    free = tuple(b for b in range(first) if data.draw(st.booleans()))
    left = {n.name: data.draw(st.integers(0, dict(n.offer.amounts).get("gpu", 0))) for n in nodes}
    needs = Resources.of(
        data.draw(st.integers(1, 3)),
        {"gpu": amount} if (amount := data.draw(st.integers(0, 2))) else {},
    )
    view = partition(*nodes, free=free, left={name: f"gpu={n}" for name, n in left.items()})
    seats = view.seats(needs)
    places = view.reserve(seats, everything(seats), needs)
    seats_of = list(places.claim(len(places)))
    taken = [n.first + slot for n, slots in seats_of for slot in slots]
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(free)
    for n in nodes:
        mine = [slots for owner, slots in seats_of if owner is n]
        free_here = sum(n.first <= b < n.first + n.offer.slots for b in free)
        limit = free_here // needs.slots
        if amount:
            limit = min(limit, left[n.name] // amount)
        assert len(mine) == (limit if fits(n.offer, needs) else 0)
