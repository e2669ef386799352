"""The turns in which large tasks of tenants get bookings."""

import sys
from collections import Counter
from collections.abc import Mapping
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.kind import Kind
from parsync_redis.model.node import Node
from parsync_redis.model.policy import DueShares
from parsync_redis.model.policy_reader import read_policy
from parsync_redis.model.replies import Snapshot
from parsync_redis.scheduler.core.booking_turns import BookingTurns
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.large_kinds import LargeKind, LeastAsked, large_groups
from tests.kit.core_rig import Queue, bitmap, judge, make, node, see, takes

SLOTS = 100


def of(tenant: str, slots: int = 8, name: str = "work") -> str:
    """Return the kind of a tenant's tasks."""
    return Kind(name, f"slots={slots}", "", tenant).text


def full(
    kinds: Mapping[str, int],
    slots_held: Mapping[str, int] = {},
    policy: str = "",
    ceiling: str = "-",
) -> Core:
    """Return a core that sees 100 slots, all of them held, and tasks that wait.

    kinds: how many tasks of each kind wait, the first kind is the oldest.
    slots_held: by tenant, how many slots its tasks hold; a tenant with children holds theirs, too.
    """
    core = make()
    core.on_policy(read_policy(policy))
    see(core, 0, [node("n", SLOTS)], 0)
    queue = Queue(core)
    for number, (kind, count) in enumerate(kinds.items()):
        queue.add(kind, count, 1 + 1000 * number, f"k{number}t")
    for tenant, slots in slots_held.items():
        queue.account(f"@{tenant}", f"n=1 slots={slots} of {ceiling}")
    core.on_wake()
    queue.tell()
    core.plan()
    return core


def large(core: Core) -> tuple[LargeKind, ...]:
    groups = large_groups(core.queue.blocked.strict, LeastAsked(10.0))
    return BookingTurns(core.queue, groups).large()


def turns(core: Core) -> str:
    """Return the tenants whose tasks get bookings, in their order."""
    tenant_by_turn = {
        turn: Kind.of(kind.kind).tenant for kind in large(core) for turn in kind.turn_numbers or ()
    }
    assert sorted(tenant_by_turn) == [*range(len(tenant_by_turn))]
    return " ".join(tenant_by_turn[turn] for turn in sorted(tenant_by_turn))


def test_a_tenant_gets_as_many_bookings_as_are_missing_to_its_share() -> None:
    waits = {of("l"): 50, of("s", 1): 500}
    assert turns(full(waits, {"l": 16, "s": 84})) == "l l l l l", "16 and 5 times 8 are over 50"
    assert turns(full(waits, {"l": 48, "s": 52})) == "l"
    assert turns(full({of("l"): 2, of("s", 1): 500}, {"s": 100})) == "l l", "two wait"


def test_a_tenant_at_its_share_gets_none_while_one_below_its_share_waits() -> None:
    waits = {of("l"): 50, of("s", 1): 500}
    assert turns(full(waits, {"l": 56, "s": 44})) == ""
    assert turns(full({**waits, of("m"): 50}, {"l": 56, "s": 44})) == "m m m m m"


def test_the_tenant_whose_turn_it_is_gets_one_if_all_that_wait_have_their_share() -> None:
    """Else its own small tasks would keep its large tasks waiting for ever."""
    waits = {of("l"): 50, of("l", 1): 500, of("s", 1): 500}
    assert turns(full(waits, {"l": 50, "s": 50})) == "l"
    assert turns(full(waits, {"l": 51, "s": 50})) == ""


def test_a_tenant_beside_which_nobody_waits_gets_any_number() -> None:
    assert turns(full({of("l"): 5, of("l", 1): 500}, {"l": 90, "s": 10})) == "l l l l l"


def test_bookings_follow_the_order_of_the_tree_and_the_weights() -> None:
    waits = {of("l"): 50, of("m"): 50, of("s", 1): 500}
    assert turns(full(waits, {"l": 20, "m": 4, "s": 76})) == "m m l m l m"
    policy = "[tenants.m]\nweight = 2\n"
    assert turns(full(waits, {"l": 20, "m": 4, "s": 76}, policy)) == "m m m m m l m"


def test_children_share_what_their_parent_is_due() -> None:
    waits = {of("x/a"): 50, of("x/b", 1): 500, of("y", 1): 500}
    assert turns(full(waits, {"x": 20, "x/b": 20, "y": 80})) == "x/a x/a x/a x/a"
    assert turns(full(waits, {"x": 60, "x/b": 60, "y": 40})) == "", "x has more than its share"
    assert turns(full({of("x"): 50, **waits}, {"x": 10, "x/b": 10, "y": 90})).startswith("x x/a")


def test_a_tenant_below_its_guarantee_goes_before_its_share_counts() -> None:
    policy = "[tenants.l]\nat_least = {slots = 70}\n"
    waits = {of("l"): 50, of("s", 1): 500}
    assert turns(full(waits, {"l": 56, "s": 44}, policy)) == "l l"


def test_where_the_policy_is_strict_the_first_tenant_that_waits_gets_the_bookings() -> None:
    policy = '[tenants]\nchildren = "strict"\n[tenants.l]\n[tenants.s]\n'
    waits = {of("l"): 3, of("s"): 50, of("s", 1): 500}
    assert turns(full(waits, {"l": 56, "s": 44}, policy)) == "l l l"


def test_a_tenant_gets_no_booking_beyond_its_ceiling() -> None:
    core = full({of("l"): 50, of("s", 1): 500}, {"l": 16}, ceiling="slots=32")
    assert turns(core) == "l l"


def test_tasks_without_a_tenant_have_a_turn_too() -> None:
    assert turns(full({of("", 8): 50, of("s", 1): 500}, {"s": 84})) == "    ", "five of them"


def test_the_oldest_task_of_a_tenant_has_its_first_turn() -> None:
    core = full({of("l", 8, "old"): 2, of("l", 8, "new"): 9, of("s", 1): 500}, {"s": 100})
    by_name = {kind.kind.split()[0]: kind.turn_numbers for kind in large(core)}
    assert by_name == {"old": (0, 1), "new": (2, 3, 4, 5, 6)}


def test_the_search_for_turns_changes_nothing() -> None:
    core = full({of("l"): 50, of("s", 1): 500}, {"l": 16, "s": 84})
    before = dict(core.queue.accounts.held("@l"))
    assert turns(core) == turns(core)
    assert core.queue.accounts.held("@l") == before


HALF_LIFE = '[tenants."*"]\nhalf_life = "1h"\n'


@pytest.mark.parametrize(
    ("used", "tenants"),
    [
        ({"l": 0.9}, ""),
        ({"s": 0.9}, "l l l l l l l l l l"),
        ({"l": 0.2, "s": 0.8}, "l l l l l l l l"),
        ({"l": 0.5, "s": 0.5}, "l l l l l"),
    ],
)
def test_past_use_counts_in_the_turn_and_in_what_is_due(
    used: Mapping[str, float], tenants: str
) -> None:
    """In the first case s goes before l, so a booking would give l a node of s."""
    core = full({of("l"): 50, of("s", 1): 500}, {"l": 16, "s": 84}, HALF_LIFE)
    core.queue.set_used_shares(used)
    assert turns(core) == tenants


def test_past_use_without_a_half_life_does_not_count() -> None:
    core = full({of("l"): 50, of("s", 1): 500}, {"l": 16, "s": 84})
    core.queue.set_used_shares({"l": 0.9})
    assert turns(core) == "l l l l l"


def calls_of_the_search(tenants: int) -> int:
    """Return how many functions the search for turns calls while so many tenants wait."""
    waits = {of(f"t{number}"): 3 for number in range(tenants)}
    core = full(waits, {f"t{number}": 1 for number in range(tenants)})
    calls = Counter[str]()

    def count(frame: FrameType, event: str, arg: object) -> None:
        calls[event] += 1

    sys.setprofile(count)
    try:
        large(core)
    finally:
        sys.setprofile(None)
    return calls["call"]


def test_the_search_for_turns_costs_little_for_each_tenant() -> None:
    """The tree of the queue is used, because a second tree of all tenants takes a second."""
    calls_for_300_more = calls_of_the_search(600) - calls_of_the_search(300)
    assert calls_for_300_more < 10 * 300, "a second tree needs 70 calls for each tenant"


TENANTS = ("a", "b", "c", "c/d", "c/e")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_tenant_gets_more_bookings_than_are_missing_to_its_share(data: st.DataObject) -> None:
    """Else it would keep nodes from tenants below theirs."""
    waiting = data.draw(st.sets(st.sampled_from(TENANTS), min_size=1))
    with_large = data.draw(st.sets(st.sampled_from(sorted(waiting)), min_size=1))
    own = {tenant: data.draw(st.integers(0, 20), tenant) for tenant in TENANTS}
    weights = {tenant: data.draw(st.integers(1, 4), f"weight {tenant}") for tenant in TENANTS}
    slots = data.draw(st.integers(2, 10), "slots")
    slots_held = own | {"c": own["c"] + own["c/d"] + own["c/e"]}
    text = "".join(f'[tenants."{name}"]\nweight = {weight}\n' for name, weight in weights.items())
    kinds = {of(tenant, slots): 50 for tenant in sorted(with_large)}
    kinds |= {of(tenant, 1): 50 for tenant in sorted(waiting)}
    core = full(kinds, {tenant: size for tenant, size in slots_held.items() if size}, text)
    bookings = Counter(turns(core).split())
    own_children = {f"{tenant}/-" for tenant in waiting if tenant == "c"}
    active = {tenant for tenant in TENANTS if slots_held[tenant]} | waiting | own_children
    active |= {"c" for tenant in waiting if tenant.startswith("c/")}
    due = DueShares(read_policy(text), active)
    is_below = {tenant: slots_held[tenant] < SLOTS * due.of(tenant) for tenant in ("a", "b", "c")}
    waiting_roots = {tenant.split("/")[0] for tenant in waiting}
    for root in waiting_roots:
        count = sum(number for tenant, number in bookings.items() if tenant.split("/")[0] == root)
        siblings = waiting_roots - {root}
        if siblings and count > 1:
            assert slots_held[root] + slots * (count - 1) < SLOTS * due.of(root)
        if count and not is_below[root]:
            assert not any(is_below[sibling] for sibling in siblings)


def two_nodes(free: int) -> tuple[Core, Queue]:
    """Return a core that sees two nodes of 8 slots, `free` of them free, and its queue."""
    core = make()
    see(core, 0, [node("n1", 8), Node("n2", "up", 1, False, 8, 8, 1.0, node("n2", 8).offer)], free)
    return core, Queue(core)


@pytest.mark.parametrize(("slots_held", "goes_first"), [(0, "l"), (15, "s")])
def test_a_taken_task_leaves_its_seat_to_a_larger_task_whose_turn_is_before(
    slots_held: int, goes_first: str
) -> None:
    """A task whose claim was lost would else take one of the slots that the large task needs."""
    core, queue = two_nodes(free=1)
    queue.add(of("s", 1), 1)
    core.on_wake()
    queue.tell()
    judge(core, queue.turn(), ClaimOutcome.CONFLICT)
    queue.add(of("l"), 1, 500)
    queue.account("@s", "n=1 slots=8 of -").account("@l", f"n=1 slots={slots_held} of -")
    core.on_wake()
    queue.tell()
    core.on_snapshot(Snapshot(0, 9, 1, bitmap(8), {}), 1.0)
    plan = core.plan(confirm=False)
    if goes_first == "l":
        assert (takes(plan), plan.commit) == ([(of("l"), 1)], {})
    else:
        assert [claim.slots for claim in plan.commit[0]] != []
        assert takes(plan) == []
