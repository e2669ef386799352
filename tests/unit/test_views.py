"""The view of a partition is the sum of its nodes; partitions are compared for evenness."""

import numpy as np
from hypothesis import given, strategies

from parsync_redis.model.views import Evenness, NodeView, gather_partition, measure_evenness, spread
from parsync_redis.store.reads.live_nodes import count_bits


def node(name, slots, score, labels=None, state="up", free=0):
    return NodeView(
        name, 0, state, False, 1, score, slots, free, slots - free, {}, {}, labels or {}
    )


def test_a_partition_is_the_sum_of_its_nodes_that_are_not_down():
    nodes = [
        node("a", 4, 1.0, {"zone": "x"}, free=3),
        node("b", 2, 4.0, free=2),
        node("c", 9, 9.0, state="down"),
    ]
    view = gather_partition(3, 7, 2, nodes)
    assert (view.number, view.version, view.epoch, view.nodes, view.slots, view.free) == (
        3,
        7,
        2,
        2,
        6,
        5,
    )
    assert view.mean_score == 2.0  # of a slot, not of a node
    assert view.labels == {"zone:x": 4}


def test_partitions_with_the_same_mix_are_even():
    same = [
        gather_partition(p, 0, 0, [node("a", 4, 2.0, {"zone": "x"}), node("b", 4, 1.0)])
        for p in range(3)
    ]
    assert measure_evenness(same) == Evenness(0, 0, {"zone:x": 0})


def test_a_partition_with_all_the_good_nodes_shows():
    uneven = measure_evenness(
        [
            gather_partition(0, 0, 0, [node("a", 6, 9.0, {"gpu": "a"})]),
            gather_partition(1, 0, 0, [node("b", 2, 1.0)]),
        ]
    )
    assert (uneven.slots, uneven.mean_score, uneven.labels) == (1.0, 1.6, {"gpu:a": 2.0})


def test_empty_partitions_count_for_slots_only():
    filled = gather_partition(0, 0, 0, [node("a", 4, 3.0, {"zone": "x"})])
    found = measure_evenness([filled, gather_partition(1, 0, 0, [])])
    assert (found.slots, found.mean_score, found.labels) == (2.0, 0, {"zone:x": 0})


def test_an_empty_list_and_zeros_have_no_spread():
    assert spread([]) is None
    assert spread([0, 0]) is None
    assert measure_evenness([]) == Evenness(None, None, {})


@given(strategies.binary(max_size=20), strategies.integers(0, 200), strategies.integers(0, 200))
def test_free_slots_are_counted_as_numpy_counts_them(bitmap, first, count):
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8))
    assert count_bits(bitmap, first, count) == bits[first : first + count].sum()
