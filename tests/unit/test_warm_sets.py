"""Warm sets: the ring of a key, how many of its nodes the warm set has, and where tasks go."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.preferences import key_of, preferences_text, with_key
from parsync_redis.model.replies import Snapshot
from parsync_redis.model.times import LearntTimes
from parsync_redis.placement.columns import Columns
from parsync_redis.placement.facts import NodeFacts
from parsync_redis.placement.preferences.preference import MAX_BUCKET, QUARTERS
from parsync_redis.placement.preferences.ring import (
    NodeRing,
    RingNodes,
    hashes_of,
)
from parsync_redis.placement.preferences.warm import WarmPreference
from parsync_redis.placement.ranked_nodes import nodes_now
from parsync_redis.scheduler.core import warm_sets
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.offers import MAX_CACHED, MAX_RANKED
from parsync_redis.scheduler.core.warm_sets import MAX_KEYS, SHRINK_MS, SetSize, WarmSets
from tests.kit.core_rig import Queue, claims_of, make

SLOTS = 4
PLAIN = Resources.needed()
NAMES = st.lists(st.integers(0, 99).map("n{}".format), min_size=2, max_size=20, unique=True)


def nodes_of(names: Sequence[str], slots: int = SLOTS) -> RingNodes:
    """Return the facts of nodes that all fit."""
    columns = Columns([Resources.of(slots)] * len(names))
    return RingNodes(hashes_of(names), columns, columns.everyone())


def order_of(ring: NodeRing, partitions: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of the nodes in the order of a ring."""
    places = {
        name: int(place)
        for names, of_partition in zip(partitions, ring.places, strict=True)
        for name, place in zip(names, of_partition, strict=True)
    }
    return sorted(places, key=lambda name: places[name])


def read_nodes(
    core: Core, partitions: Sequence[Sequence[str]], drains: str = "", taken: int = 0
) -> None:
    """Give a core a read of nodes of SLOTS slots. taken: the first slots of each that are taken."""
    for p, names in enumerate(partitions):
        nodes = [
            Node(name, "up", 1, name == drains, SLOTS * index, SLOTS, 1.0, Resources.of(SLOTS))
            for index, name in enumerate(names)
        ]
        core.on_nodes(p, nodes, 1)
        bits = np.array([slot >= taken for _ in names for slot in range(SLOTS)], dtype=bool)
        core.on_snapshot(Snapshot(p, 1, 1, np.packbits(bits).tobytes(), {}), float(p))
    core.plan(place=False, confirm=False)


def ring_of(core: Core, key: str, partitions: Sequence[Sequence[str]]) -> list[str]:
    """Return the nodes in the order of a core's ring for tasks of one slot."""
    warm_set = core.view.warm_sets.of(key, PLAIN, None, core.view.partitions)
    return order_of(warm_set.ring, partitions)


def places(queue: Queue, count: int, key: str = "llama", now_ms: int = 0) -> list[str]:
    """Return the nodes that tasks of a key get, in the order of their claims."""
    queue.now_ms = max(queue.now_ms, now_ms)
    queue.add(Kind("work", "slots=1", prefer=f"warm={key}").text, count, prefix=f"t{now_ms}.")
    queue.tell()
    return [claim.partition("/")[0] for claim in claims_of(queue.turn())]


@given(NAMES, st.data())
def test_a_node_that_comes_or_goes_moves_only_its_own_keys(names: list[str], data: st.DataObject):
    gone = data.draw(st.sampled_from(names))
    left = [name for name in names if name != gone]
    for key in ("llama", "falcon", "a:b/c"):
        before = order_of(NodeRing.of(key, PLAIN, [nodes_of(names)]), [names])
        after = order_of(NodeRing.of(key, PLAIN, [nodes_of(left)]), [left])
        assert after == [name for name in before if name != gone]


def test_keys_are_spread_over_the_nodes():
    names = [f"n{number}" for number in range(10)]
    firsts = [
        order_of(NodeRing.of(f"key{number}", PLAIN, [nodes_of(names)]), [names])[0]
        for number in range(1000)
    ]
    assert all(60 <= firsts.count(name) <= 140 for name in names), "100 of 1,000 keys each"


LINES = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["llama", "falcon"]), st.integers(0, 9)),
    max_size=8,
)


@given(NAMES, LINES, st.lists(st.integers(0, 200_000), max_size=8), st.randoms())
def test_schedulers_with_the_same_lines_have_the_same_ring_and_set(
    names: list[str], lines: list[tuple[int, str, int]], ticks: list[int], random: Random
):
    halves = [names[: len(names) // 2], names[len(names) // 2 :]]
    swapped = [halves[1], halves[0]]
    last = {(shard, key): held for shard, key, held in lines}
    shuffled = [(shard, key, held) for (shard, key), held in last.items()]
    random.shuffle(shuffled)
    seen = list[tuple[list[str], list[int]]]()
    for partitions, told, times in ((halves, lines, []), (swapped, shuffled, sorted(ticks))):
        core = make(2, seed=len(seen))
        read_nodes(core, partitions)
        sets = core.view.warm_sets
        for shard, key, held in told:
            sets.on_line(shard, key, f"n={held} units={held} of -")
        for now_ms in times:
            sets.on_time(now_ms)
            sets.of("llama", PLAIN, None, core.view.partitions)
        sets.on_time(10**7)
        sizes = [sets.of(key, PLAIN, None, core.view.partitions).size for key in ("llama", "x")]
        seen.append((ring_of(core, "llama", partitions), sizes))
    assert seen[0] == seen[1]


def test_a_warm_set_has_the_nodes_that_hold_its_tasks_when_seven_tenths_full():
    ring = NodeRing.of("llama", PLAIN, [nodes_of([f"n{number}" for number in range(10)], slots=8)])
    expected = {1: 1, 5.6: 1, 5.7: 2, 11: 2, 12: 3, 56: 10, 1000: 10}
    assert {tasks: ring.size_for(tasks) for tasks in expected} == expected
    needs = Resources.needed(1, {"gpu": 1})
    columns = Columns([Resources.of(8, {"gpu": 2})] * 10)
    gpus = RingNodes(hashes_of("abcdefghij"), columns, columns.everyone())
    assert NodeRing.of("llama", needs, [gpus]).size_for(4) == 3, "two tasks fit on a node"


def test_a_warm_set_grows_at_once_and_loses_a_node_in_thirty_seconds():
    size = SetSize()
    assert [size.follow(needed, 1000.0) for needed in (3, 5, 2)] == [3, 5, 5]
    assert size.follow(2, 1000.0 + SHRINK_MS - 1) == 5
    assert size.follow(2, 1000.0 + SHRINK_MS) == 4
    assert size.follow(2, 1000.0 + 2.5 * SHRINK_MS) == 3
    assert size.follow(2, 1000.0 + 3 * SHRINK_MS) == 2
    assert size.follow(6, 1000.0 + 3 * SHRINK_MS) == 6
    assert size.follow(1, 1000.0 + 99 * SHRINK_MS) == 1, "nobody asked for long"


def test_a_warm_set_follows_what_all_shards_hold_and_its_mean_over_a_minute():
    core = make()
    read_nodes(core, [[f"n{number}" for number in range(10)]])
    sets = core.view.warm_sets

    def size(now_ms: float) -> int:
        sets.on_time(now_ms)
        return sets.of("llama", PLAIN, None, core.view.partitions).size

    assert size(0) == 1
    sets.on_line(0, "llama", "n=7 units=7 of -")
    sets.on_line(1, "llama", "n=5 units=5 of -")
    assert size(0) == 5, "13 tasks on nodes that hold 2.8 at a time"
    sets.on_line(1, "llama", "damaged of -")
    assert size(120_000) == 5, "a damaged line tells nothing"
    sets.clear_shard(1)
    sets.on_line(0, "llama", "n=0 of -")
    assert size(150_000) == 4, "one less, though its mean of 6.3 needs three nodes"
    assert size(900_000) == 1


def test_keys_that_nobody_holds_are_forgotten():
    sets = WarmSets()
    for number in range(MAX_KEYS):
        sets.on_line(0, f"key{number}", f"n={number % 2} units=1 of -")
    sets.on_line(0, "one-more", "n=1 units=1 of -")
    assert len(sets._demands) == MAX_KEYS // 2 + 1


def test_tasks_fill_the_warm_set_then_the_next_nodes_of_the_ring():
    core = make(2)
    partitions = [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    read_nodes(core, partitions)
    ring = ring_of(core, "llama", partitions)
    queue = Queue(core)
    assert sorted(places(queue, 10)) == sorted([ring[0]] * 4 + [ring[1]] * 4 + [ring[2]] * 2)
    queue.account("~llama", "n=10 units=10 of -").tell()
    assert set(places(queue, 2, now_ms=1000)) == {ring[3]}, "the emptiest of four nodes"


def test_in_the_warm_set_the_nodes_of_which_least_is_in_use_go_first():
    core = make()
    names = [["a", "b", "c", "d", "e", "f"]]
    read_nodes(core, names, taken=1)
    first, second, third = ring_of(core, "llama", names)[:3]
    queue = Queue(core).account("~llama", "n=5 units=5 of -")
    queue.tell()
    got = [places(queue, 1, now_ms=number)[0] for number in range(3)]
    assert sorted(got) == sorted([first, second, third]), "each goes where most is free"


def test_the_sizes_of_one_key_do_not_become_more_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(warm_sets, "MAX_SIZES", 3)
    core = make()
    read_nodes(core, [["a", "b", "c", "d"]])
    sets = core.view.warm_sets

    def size_for(slots: int) -> int:
        return sets.of("llama", Resources.needed(slots), None, core.view.partitions).size

    sets.on_line(0, "llama", "n=12 units=12 of -")
    large = [size_for(slots) for slots in (1, 2, 3)]
    sets.on_line(0, "llama", "n=0 units=0 of -")
    assert [size_for(slots) for slots in (1, 2, 3)] == large, "they shrink by a node in a time"
    assert size_for(4) < large[0]
    assert size_for(1) < large[0], "the oldest is forgotten"


def test_as_many_keys_as_ranks_are_kept_make_one_ring_each():
    core = make()
    read_nodes(core, [["a", "b"]])
    numbers = [
        [
            core.view.warm_sets.of(f"k{key}", PLAIN, None, core.view.partitions).number
            for key in range(MAX_RANKED)
        ]
        for _ in range(2)
    ]
    assert numbers[0] == numbers[1]
    assert MAX_RANKED > 3 * MAX_CACHED


def test_a_node_that_drains_is_passed_over():
    names = [["a", "b", "c", "d", "e", "f"]]
    core = make()
    read_nodes(core, names)
    ring = ring_of(core, "llama", names)
    assert set(places(Queue(core), 2)) == {ring[0]}
    core = make()
    read_nodes(core, names, drains=ring[0])
    assert set(places(Queue(core), 2)) == {ring[1]}


@given(NAMES, st.integers(0, 40), st.integers(0, SLOTS))
def test_people_are_told_the_buckets_by_which_a_scheduler_ranks(
    names: list[str], held: int, taken: int
):
    core = make()
    read_nodes(core, [names], taken=taken)
    rule = WarmPreference("llama")
    partition = core.view.partitions[0]
    partition.ranks((rule,), PLAIN, core.view.cluster_for(PLAIN, None, "warm=llama"))
    core.view.warm_sets.on_line(0, "llama", f"n={held} units={held} of -")
    cluster = core.view.cluster_for(PLAIN, None, "warm=llama")
    of_core = partition.ranks((rule,), PLAIN, cluster)
    facts = [NodeFacts(name, "up", False, Resources.of(SLOTS), SLOTS - taken) for name in names]
    told = rule.buckets(nodes_now(facts, PLAIN, LearntTimes(), {"llama": held}), PLAIN)
    assert told.tolist() == of_core.tolist()


def test_without_facts_of_warm_sets_all_nodes_are_equal_and_sentences_say_where_a_node_is():
    rule = WarmPreference("llama")
    assert rule.sentence(1) == "in the warm set of llama, 25 to 50 % of its slots in use"
    assert rule.sentence(QUARTERS) == "1 behind the warm set of llama"
    assert rule.sentence(MAX_BUCKET) == "60 or more behind the warm set of llama"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("proj.render", "proj.render"),
        ("__main__.add", "x__main__.add"),
        ("a#b(c)=d,e", "a-b-c--d-e"),
        ("#", "x-"),
        ("m" * 255, "x" + "m" * 127),
    ],
)
def test_warm_without_a_key_means_the_name_of_the_task(name: str, key: str):
    assert key_of(name) == key
    text = preferences_text(["zone=a", "warm", "pack"])
    assert text == "zone:a,warm,pack"
    assert with_key(text, name) == f"zone:a,warm={key},pack"
    kind = Kind(name, "slots=1", "latency", "acme", "stripe", with_key(text, name))
    assert Kind.of(kind.text) == kind
    assert [account.name for account in kind.accounts] == ["@acme", "stripe", f"~{key}"]


def test_a_label_named_warm_is_no_key():
    text = preferences_text(["warm=gpu", {"warm": {"a": 0, "b": 1}}, "warm-up=x"])
    assert text == "warm:gpu,warm:a=0|b=1,warm-up:x"
    assert with_key(text, "work") == text
    assert Kind("work", "slots=1", prefer=text).accounts == ()
