"""The backfill without a server: which nodes are booked, who may go there, and what the core makes
of it.
"""

from typing import Any

import pytest

from parsync_redis.model.booking import Booking, read_booking, read_bookings
from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import Resources, parse_needs
from parsync_redis.model.replies import Judged, Snapshot
from parsync_redis.placement.backfill import (
    CLOCKS_MS,
    LEAST_MS,
    LargeTask,
    by_lack,
    choose,
    makes_room,
    unused,
)
from parsync_redis.placement.facts import Holder, NodeFacts
from parsync_redis.placement.forecast import ExpectedEnd
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.large_kinds import MAX_LARGE_KINDS as MOST_LARGE
from parsync_redis.scheduler.core.large_kinds import LeastAsked, find_large
from parsync_redis.scheduler.core.reservations import BarredNodes
from tests.kit.core_rig import Queue, bitmap, claims_of, judge, make, node, see, waiting

NOW = 100_000
BIG = "big slots=4"


def facts(name: str, free: int = 0, slots: int = 4, **changes: Any) -> NodeFacts:
    return NodeFacts(name, changes.pop("state", "up"), False, Resources.of(slots), free, **changes)


def held(node: str, *left_ms: int | None) -> list[ExpectedEnd]:
    return [
        ExpectedEnd(Holder(node, f"{node}-{at}", {}, 1, NOW), None if ms is None else NOW + ms)
        for at, ms in enumerate(left_ms)
    ]


def booked(
    *nodes: NodeFacts, waited_ms: float = 10_000, ends: Any = (), before: Any = (), count: int = 8
) -> Any:
    """Return which node is booked for BIG, and how long it takes until it has room; None if none
    is.
    """
    waits = [LargeTask(BIG, parse_needs("slots=4"), "t", waited_ms)]
    found = choose(waits, {BIG: nodes}, dict(ends), before, count, NOW)
    return (found[0].node, found[0].from_ms - NOW) if found else None


def test_a_node_with_a_notice_is_booked_only_if_the_task_ends_before_it_leaves() -> None:
    ends = {"n1": held("n1", 100, 100, 100, 5000)}
    waits = [LargeTask(BIG, parse_needs("slots=4"), "t", 10_000)]

    def booked_by(latest_ms: float) -> list[str]:
        latest = {(BIG, "n1"): NOW + latest_ms}
        bookings = choose(waits, {BIG: [facts("n1")]}, ends, (), 8, NOW, latest)
        return [booking.node for booking in bookings]

    assert booked_by(5000) == ["n1"]
    assert booked_by(4999) == []


def test_the_node_that_has_room_first_is_booked() -> None:
    ends = {"n1": held("n1", 100, 200, 300, 5000), "n2": held("n2", 4000, 4000, 4000, 4000)}
    assert booked(facts("n1"), facts("n2"), ends=ends) == ("n2", 4000)
    assert booked(
        facts("n1", free=1), facts("n2"), ends=ends | {"n1": held("n1", 100, 200, 300)}
    ) == ("n1", 300)


def test_a_kind_must_have_waited_for_a_while_by_the_time_that_its_node_needs() -> None:
    ends = {"n1": held("n1", 100, 100, 100, 8000)}
    assert booked(facts("n1"), ends=ends, waited_ms=3900) is None
    assert booked(facts("n1"), ends=ends, waited_ms=4000) == ("n1", 8000)
    assert booked(facts("n1"), ends={"n1": held("n1", 1, 1, 1, 1)}, waited_ms=LEAST_MS - 1) is None


def test_a_node_with_tasks_of_unknown_run_times_is_not_booked() -> None:
    ends = {"n1": held("n1", 1, 1, 1, None), "n2": held("n2", 9000, 1, 1, 1)}
    assert booked(facts("n1"), facts("n2"), ends=ends) == ("n2", 9000)
    assert booked(facts("n1"), ends=ends) is None


def test_a_kind_keeps_its_booked_node_unless_another_node_is_free_much_earlier() -> None:
    ends = {
        "n1": held("n1", *[4000] * 4),
        "n2": held("n2", *[3000] * 4),
        "n3": held("n3", *[1900] * 4),
    }
    before = [Booking("n1", BIG, "t", NOW + 4000)]
    assert booked(facts("n1"), facts("n2"), ends=ends, before=before, waited_ms=0) == ("n1", 4000)
    assert booked(facts("n1"), facts("n3"), ends=ends, before=before, waited_ms=0) == ("n3", 1900)
    assert booked(facts("n2"), ends=ends, before=before, waited_ms=0) is None, (
        "n1 is drained or lost"
    )
    assert booked(facts("n2"), ends=ends, before=before) == ("n2", 3000)


def several(
    before: Any = (), tasks: Any = ("t1", "t2", "t3"), count: int = 8, **ends: int
) -> dict[str, str]:
    """Return for which task each node is booked; ends: how long the tasks of a node run yet."""
    waits = [LargeTask(BIG, parse_needs("slots=4"), task, 10_000) for task in tasks]
    lengths = {name: held(name, *[left_ms] * 4) for name, left_ms in ends.items()}
    found = choose(waits, {BIG: [facts(name) for name in ends]}, lengths, before, count, NOW)
    assert all(
        one.at_ms == (NOW - 9 if any(one.node == old.node for old in before) else NOW)
        for one in found
    )
    return {one.node: one.task for one in found}


def test_each_waiting_task_of_a_kind_gets_a_node_while_there_are_places() -> None:
    assert several(count=12, n1=300, n2=100, n3=200, n4=400) == {"n2": "t1", "n3": "t2", "n1": "t3"}
    assert several(count=8, n1=300, n2=100, n3=200, n4=400) == {"n2": "t1", "n3": "t2"}
    assert several(tasks=["t1"], n1=300, n2=100) == {"n2": "t1"}


def test_a_task_keeps_its_node_and_the_next_task_inherits_the_node_of_a_task_that_left() -> None:
    before = [Booking("n1", BIG, "t1", NOW, NOW - 9), Booking("n2", BIG, "t2", NOW, NOW - 9)]
    assert several(before, n1=300, n2=200) == {"n1": "t1", "n2": "t2"}
    assert several(before, ["t2", "t3"], n1=300, n2=400, n3=250) == {"n2": "t2", "n1": "t3"}
    assert several(before, ["t3"], n1=300, n2=400, n3=250) == {"n1": "t3"}


def test_a_task_that_got_the_node_of_its_kind_uses_the_booking_up() -> None:
    booking = Booking("n1", BIG, "t1", NOW + 500, NOW)
    kinds = {"n1-0": BIG, "n1-1": "work slots=1"}

    def left(since_ms: int, kinds: Any, node: str = "n1") -> list[Booking]:
        holders = [
            ExpectedEnd(Holder(node, f"{node}-{at}", {}, 1, since_ms), None) for at in (0, 1)
        ]
        return unused([booking], {node: holders}, kinds)

    assert left(NOW + 5, kinds) == []
    assert left(NOW - CLOCKS_MS, kinds) == [], "the clock of its server may be late"
    assert left(NOW - CLOCKS_MS - 1, kinds) == [booking], "it was there before"
    assert left(NOW + 5, {"n1-1": "work slots=1"}) == [booking], "others passed"
    assert left(NOW + 5, {"n2-0": BIG}, "n2") == [booking], "it went elsewhere"


def test_few_nodes_are_booked_and_each_for_one_kind() -> None:
    kinds = [f"big{number} slots=4" for number in range(20)]
    waits = [LargeTask(kind, parse_needs("slots=4"), "t", 10_000) for kind in kinds]
    nodes = [facts(f"n{number:02}") for number in range(20)]
    ends = {one.name: held(one.name, 1, 1, 1, 1) for one in nodes}
    for count, most in ((1, 1), (4, 1), (7, 2), (12, 3), (1000, 20)):
        found = choose(waits, dict.fromkeys(kinds, nodes), ends, (), count, NOW)
        assert [one.kind for one in found] == kinds[:most], "the oldest first"
        assert len({one.node for one in found}) == most


def test_the_nearest_nodes_are_open_and_fit_and_booked_ones_come_first() -> None:
    nodes = [
        facts("full"),
        facts("near", free=3),
        facts("small", free=2, slots=2),
        facts("down", state="down"),
        facts("other", knows=False),
    ]
    assert [one.name for one in by_lack(parse_needs("slots=4"), nodes)] == ["near", "full"]
    assert [one.name for one in by_lack(parse_needs("slots=4"), nodes, ["full"])] == [
        "full",
        "near",
    ]


def test_a_booking_reads_back_and_bars_others_that_may_run_too_long() -> None:
    booking = Booking("n1", "big slots=4 latency", "a%20b", NOW, NOW - 5)
    assert read_bookings({b"n1": booking.text.encode(), b"n2": b"nonsense"}) == (booking,)
    assert booking.whom == "task a b (big slots=4)"
    assert not booking.bars(Kind("big", "slots=4"), None, NOW)
    assert booking.bars(Kind("big", "slots=1"), None, NOW), "nobody knows how long it runs"
    assert not booking.bars(Kind("work", "slots=1"), 1000, NOW - 1000)
    assert booking.bars(Kind("work", "slots=1"), 1001, NOW - 1000)


# -- the core --------------------------------------------------------------------------------------


def bars(runs_ms: float | None = None, name: str = "n1") -> BarredNodes:
    return BarredNodes(
        [Booking(name, BIG, "t", NOW)],
        lambda of_kind, _: runs_ms if of_kind == "work" else None,
        NOW - 1000,
    )


def two_nodes(free: int = 8) -> Core:
    core = make()
    there = [node("n1", 4, score=9.0), node("n2", 4)]
    there[1] = there[1].__class__(
        **{**{f: getattr(there[1], f) for f in there[1].__slots__}, "first": 4}
    )
    see(core, 0, there, free)
    return core


def test_other_kinds_go_to_another_node_and_wait_while_that_node_is_full() -> None:
    core = two_nodes()
    core.on_barred(bars())
    queue = waiting(core, 6)
    plan = queue.turn()
    assert sorted(claims_of(plan)) == ["n2/0", "n2/1", "n2/2", "n2/3"]
    judge(core, plan, ClaimOutcome.HELD)
    core.on_tick(0)
    plan = core.plan(confirm=False)
    assert plan.reasons[0] == [
        ("work slots=1", "2 nodes fit: n1 is reserved for task t (big slots=4); n2 is full")
    ]


def test_a_name_that_a_node_holds_back_goes_to_another_node_and_other_names_go_there() -> None:
    core = two_nodes()
    core.on_barred(BarredNodes(held_back={"work": frozenset({"n1"})}))
    queue = waiting(core, 5)
    plan = queue.turn()
    assert sorted(claims_of(plan)) == ["n2/0", "n2/1", "n2/2", "n2/3"]
    judge(core, plan, ClaimOutcome.HELD)
    core.on_tick(0)
    plan = core.plan(confirm=False)
    why = "n1 holds such tasks back, because they fail there; n2 is full"
    assert plan.reasons[0] == [("work slots=1", f"2 nodes fit: {why}")]
    assert claims_of(waiting(core, 1, name="other").turn()) == ["n1/0"]
    core.on_barred(BarredNodes())
    assert [claim[:2] for claim in claims_of(queue.turn())] == ["n1"]


@pytest.mark.parametrize(("runs_ms", "goes"), [(999.0, True), (1001.0, False), (None, False)])
def test_a_task_goes_to_a_booked_node_if_it_ends_before(runs_ms: float | None, goes: bool) -> None:
    core = two_nodes(free=4)
    core.on_barred(bars(runs_ms))
    assert (
        claims_of(waiting(core, 1).turn()) != []
        if goes
        else claims_of(waiting(core, 1).turn()) == []
    )


def test_the_booked_kind_takes_its_node() -> None:
    core = two_nodes(free=4)
    core.on_barred(bars())
    assert claims_of(waiting(core, 1, "slots=4", name="big").turn()) == ["n1/0"]


def test_a_barred_kind_is_placed_on_the_node_after_the_booking_ends() -> None:
    core = two_nodes(free=4)
    core.on_barred(bars())
    queue = waiting(core, 2)
    assert not queue.turn().commit
    core.on_barred(bars(name="n2"))
    assert [claim[:2] for claim in claims_of(queue.turn())] == ["n1", "n1"]
    core.on_barred(BarredNodes())
    assert not core.queue.barred.bookings


def test_an_equal_task_of_another_tenant_may_not_go_to_a_booked_node() -> None:
    booking = Booking("n1", f"{BIG} for=l", "t", NOW)
    equal = {tenant: Kind("big", "slots=4", "", tenant) for tenant in ("l", "m", "")}
    barred = BarredNodes([booking])
    assert {tenant: barred.of(kind) for tenant, kind in equal.items()} == {
        "l": frozenset(),
        "m": {"n1"},
        "": {"n1"},
    }
    assert booking.whom == "task t (big slots=4 for l)"


def test_a_task_makes_room_that_holds_what_another_asks_for() -> None:
    needs = parse_needs("slots=4 gpu=2")
    resources: list[dict[str, int]] = [
        {"gpu": 2000},
        {"gpu@0": 1000, "gpu@1": 1000},
        {"gpu": 1000},
        {},
    ]
    holders = [Holder("n1", "t", held, 4) for held in resources]
    assert [makes_room(holder, needs) for holder in holders] == [True, True, False, False]
    assert not makes_room(Holder("n1", "t", {"gpu": 2000}, 3), needs)


def test_names_of_one_group_part_while_one_of_them_is_barred() -> None:
    core = two_nodes(free=4)
    queue = Queue(core).add("work slots=1", 1).add("long slots=1", 1, first=2)
    queue.tell()
    core.on_barred(bars(runs_ms=10.0))
    assert len(claims_of(queue.turn())) == 1
    core.on_barred(BarredNodes())
    assert len(claims_of(queue.turn())) == 1


def test_without_bookings_nothing_is_grouped_anew() -> None:
    core = two_nodes()
    waiting(core, 1)
    group = next(iter(core.queue.kinds[0].values())).group
    core.on_barred(BarredNodes())
    core.plan()
    assert next(iter(core.queue.kinds[0].values())).group is group


def test_a_task_of_one_slot_is_large_while_others_ask_for_less_of_a_resource() -> None:
    core = two_nodes(free=0)
    least = LeastAsked(10.0)
    queue = Queue(core).add("two slots=1 gpu=2", 1).add("half slots=1 gpu=0.5 mem=4", 1, first=2)
    queue.add("plain slots=1", 1, first=3).tell()
    core.plan()

    def large() -> list[str]:
        return [one.kind.split()[0] for one in find_large(core.queue.blocked.strict, least)]

    assert large() == []
    least.see(core.queue.groups, 1.0)
    assert large() == ["two"]
    least.see([], 11.0)
    assert large() == ["two"], "the others may all have a place at this moment"
    least.see([], 11.5)
    assert large() == []


@pytest.mark.parametrize(
    ("kind", "barred"),
    [
        ("two slots=1 gpu=2", {"slots=1 gpu=1", "slots=1 gpu=0.5 mem=64", "slots=3 gpu=1"}),
        ("two slots=1 gpu=1 mem=8", {"slots=1 gpu=0.5 mem=64"}),
        (
            "two slots=2 gpu=2",
            {
                "slots=1",
                "slots=1 gpu=1",
                "slots=1 gpu=0.5 mem=64",
                "slots=1 gpu=2",
                "slots=3 gpu=1",
            },
        ),
    ],
)
def test_a_booked_node_takes_other_tasks_that_cannot_starve_its_kind(
    kind: str, barred: set[str]
) -> None:
    booking = Booking("n1", kind, "t", NOW)
    every = ["slots=1", "slots=1 gpu=1", "slots=1 gpu=0.5 mem=64", "slots=1 gpu=2", "slots=3 gpu=1"]
    kinds = [Kind("work", needs) for needs in every]
    assert {kind.needs for kind in kinds if booking.bars(kind, None, NOW)} == barred
    assert not any(booking.bars(kind, 10.0, NOW - 10) for kind in kinds), "they end before"


def test_a_booking_of_a_leader_before_this_version_is_read() -> None:
    assert read_booking("n1", f"from={NOW} task=t {BIG}") == Booking("n1", BIG, "t", NOW)


def test_a_booking_of_a_kind_that_nobody_can_submit_is_none() -> None:
    assert read_booking("n1", Booking("n1", "big slots=2", "t", NOW).text) is not None
    assert read_booking("n1", Booking("n1", "big x", "t", NOW).text) is None


def test_the_core_finds_the_oldest_large_kinds() -> None:
    core = two_nodes(free=0)
    queue = Queue(core).add("small slots=1", 1)
    for number in range(MOST_LARGE + 8):
        queue.add(f"big{number} slots=3", 1, first=1000 - number)
    queue.add("one slots=1 gpu=1", 1, first=1)
    queue.tell()
    core.plan()
    large = find_large(core.queue.blocked.strict, LeastAsked(10.0))
    assert [one.first for one in large] == sorted(
        1000 - number for number in range(MOST_LARGE + 8)
    )[:MOST_LARGE]
    assert {one.kind.split()[1] for one in large} == {"slots=3"}


# -- answers of commit -----------------------------------------------------------------------------


def answered(
    core: Core, plan: Any, version: int, *words: ClaimOutcome
) -> tuple[int, int, int, int]:
    """Answer a commit; return how many claims were made, placed, merged and lost so far."""
    for p, claims in plan.commit.items():
        verdicts = [Verdict(word, "1000" if word is ClaimOutcome.HELD else "x") for word in words]
        core.on_judged(Judged(p, version, 1000, claims, verdicts))
    counters = core.counters
    return counters.claims, counters.placed, counters.merged, counters.conflicts


def test_a_claim_by_an_old_copy_that_wins_is_merged() -> None:
    held = ClaimOutcome.HELD
    lost = ClaimOutcome.CONFLICT
    core = make()
    see(core, 0, [node("n", 8)], 8, version=5)
    queue = waiting(core, 2)
    assert answered(core, queue.turn(), 6, held, held) == (2, 2, 0, 0), (
        "nothing but this commit changed it"
    )
    queue.add("work slots=1", 1, first=3).tell()
    assert answered(core, queue.turn(), 7, held) == (3, 3, 0, 0), "it knows its own change"
    queue.add("work slots=1", 2, first=4).tell()
    assert answered(core, queue.turn(), 9, held, lost) == (5, 4, 1, 1), (
        "another scheduler's came between"
    )
    core.on_snapshot(Snapshot(0, 9, 1, bitmap(8), {}), 1.0)
    core.plan()
    queue.add("work slots=1", 1, first=9).tell()
    assert answered(core, queue.turn(), 10, held)[2] == 1, "it has read it again"
