"""The tree of tenants: whose task is placed next."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsync_redis.model.claim import ClaimOutcome
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.policy_reader import read_policy
from parsync_redis.model.replies import Snapshot
from parsync_redis.scheduler.core.core import Core
from tests.kit.core_rig import Queue, bitmap, judge, make, node, see, takes


def sees(free: int, slots: int = 100, policy: str = "", shards: int = 1) -> Core:
    """Return a core that sees `free` free slots of `slots`, and knows a policy."""
    core = make(shards=shards)
    core.on_policy(read_policy(policy))
    see(core, 0, [node("n", slots)], free)
    return core


def wait(core: Core, tenants: Mapping[str, int], first: int = 1) -> Queue:
    """Let tasks of one slot wait for each tenant, those of the first tenant first."""
    queue = Queue(core)
    for tenant, count in tenants.items():
        queue.add(of(tenant), count, first, tenant or "none")
        first += count
    return queue


def of(tenant: str, needs: str = "slots=1", name: str = "work") -> str:
    """Return the kind of a tenant's tasks."""
    return Kind(name, needs, "", tenant).text


def tell(queue: Queue, lines: Mapping[str, str] = {}) -> None:
    """Tell the core the queue, and what tenants hold: `slots=3`."""
    for account, held in lines.items():
        queue.account(f"@{account}", f"n=1 {held} of -")
    queue.core.on_wake()
    queue.tell()


def shares(core: Core, room: int | None = None) -> dict[str, int]:
    """Return how many tasks of each tenant the next plan takes."""
    counts: Counter[str] = Counter()
    for text, count in takes(core.plan(room=room)):
        counts[Kind.of(text).tenant] += count
    return dict(counts)


def test_free_slots_are_shared_between_tenants_and_not_by_age() -> None:
    core = sees(40)
    tell(wait(core, {"a": 1000, "b": 1000}))
    assert shares(core) == {"a": 20, "b": 20}


def test_a_tenant_that_holds_less_catches_up_first() -> None:
    core = sees(40)
    tell(wait(core, {"a": 1000, "b": 1000}), {"a": "slots=30", "b": "slots=10"})
    assert shares(core) == {"a": 10, "b": 30}


def test_a_tenant_that_asks_for_little_gets_all_of_it_and_the_rest_is_shared() -> None:
    core = sees(40)
    tell(wait(core, {"a": 1000, "b": 5, "c": 1000}))
    counts = shares(core)
    assert counts.pop("b") == 5
    assert sorted(counts.values()) == [17, 18]


def test_a_weight_is_a_part_of_the_nodes() -> None:
    core = sees(40, policy="[tenants.a]\nweight = 3\n")
    tell(wait(core, {"b": 1000, "a": 1000}))
    assert shares(core) == {"a": 30, "b": 10}


def test_a_tenant_below_its_guarantee_goes_first() -> None:
    core = sees(10, policy="[tenants.b]\nat_least = {slots = 30}\n")
    tell(wait(core, {"a": 1000, "b": 1000}), {"b": "slots=24"})
    assert shares(core) == {"b": 6, "a": 4}


def test_the_listed_order_decides_where_the_policy_is_strict() -> None:
    core = sees(10, policy='[tenants]\nchildren = "strict"\n[tenants.b]\n[tenants.a]\n')
    tell(wait(core, {"other": 1000, "a": 1000, "b": 7}))
    assert shares(core) == {"b": 7, "a": 3}


def test_the_children_of_a_tenant_share_what_it_gets() -> None:
    core = sees(40, policy='[tenants."x/b"]\nweight = 3\n')
    tell(wait(core, {"x/a": 1000, "x/b": 1000, "y": 1000}))
    assert shares(core) == {"x/a": 5, "x/b": 15, "y": 20}


def test_the_own_tasks_of_a_tenant_share_with_those_of_its_children() -> None:
    core = sees(40)
    lines = {"x": "slots=16", "x/a": "slots=4"}
    tell(wait(core, {"x": 1000, "x/a": 1000}), lines)
    assert shares(core) == {"x": 16, "x/a": 24}


def test_tasks_without_a_tenant_hold_what_no_tenant_holds() -> None:
    core = sees(40, policy="[tenants.a]\n")
    tell(wait(core, {"": 1000, "a": 1000}), {"a": "slots=10"})
    # 60 slots are used: 10 by a, 50 by tasks without a tenant
    assert shares(core) == {"a": 40}
    core = sees(40, policy="[tenants.'-']\nweight = 4\n")
    tell(wait(core, {"": 1000, "a": 1000}), {"a": "slots=10"})
    assert shares(core) == {"": 30, "a": 10}


def test_among_equal_shares_the_oldest_task_goes_first() -> None:
    core = sees(1)
    tell(wait(core, {"b": 3, "a": 3}))
    assert shares(core) == {"b": 1}


def test_priority_orders_the_tasks_of_a_tenant_only() -> None:
    core = sees(4)
    queue = Queue(core)
    late = 9 * 10**12
    queue.add(of("a", name="urgent"), 9, 1).add(of("b", name="usual"), 9, late)
    queue.add(of("b", name="less"), 9, late + 100)
    tell(queue)
    assert dict(takes(core.plan())) == {of("a", name="urgent"): 2, of("b", name="usual"): 2}


def test_a_tenant_whose_tasks_fit_nowhere_is_passed_over() -> None:
    core = sees(10)
    queue = Queue(core).add(of("a", "slots=50"), 5).add(of("b"), 50, 100)
    tell(queue, {"b": "slots=40"})
    assert shares(core) == {"b": 10}


def test_tenants_of_other_needs_share_as_well() -> None:
    core = sees(40)
    queue = Queue(core).add(of("a"), 100).add(of("b", "slots=4"), 100, 500)
    tell(queue)
    assert shares(core) == {"a": 20, "b": 5}


def test_reserved_tasks_count_until_the_shard_has_answered() -> None:
    core = sees(40)
    queue = wait(core, {"a": 1000, "b": 1000})
    tell(queue)
    plan = core.plan(room=3)
    counts = dict(takes(plan))
    assert counts == {of("a"): 2, of("b"): 1}
    queue.account("@a", "n=2 slots=2 of -").account("@b", "n=1 slots=1 of -").answer(plan)
    plan = core.plan(room=3, confirm=False)
    assert dict(takes(plan)) == {of("a"): 1, of("b"): 2}


def test_the_tree_is_as_before_if_no_task_comes() -> None:
    core = sees(40)
    queue = wait(core, {"a": 3, "b": 1000})
    tell(queue)
    assert shares(core) == {"a": 3, "b": 37}
    tell(queue)
    assert shares(core) == {"a": 3, "b": 37}


def test_a_tenant_at_its_ceiling_gives_way() -> None:
    core = sees(40)
    queue = wait(core, {"a": 1000, "b": 1000}).account("@a", "n=9 slots=9 of slots=12")
    tell(queue)
    assert shares(core) == {"a": 3, "b": 37}
    tell(queue.account("@a", "n=12 slots=12 of slots=12"))
    assert shares(core) == {"b": 40}
    tell(queue.account("@a", "n=10 slots=10 of slots=12").account("@b", "n=20 slots=20 of -"))
    assert shares(core) == {"a": 2, "b": 38}


def test_a_policy_that_changes_counts_at_once() -> None:
    core = sees(40)
    queue = wait(core, {"a": 1000, "b": 1000})
    tell(queue)
    assert shares(core) == {"a": 20, "b": 20}
    tell(queue)
    core.on_policy(read_policy("[tenants.b]\nweight = 3\n"))
    assert shares(core) == {"a": 10, "b": 30}


def test_without_tenants_the_age_decides() -> None:
    core = sees(40)
    tell(Queue(core).add("old slots=1", 30).add("young slots=1", 30, 100))
    assert dict(takes(core.plan())) == {"old slots=1": 30, "young slots=1": 10}
    assert core.queue.tree is None


def test_shards_share_as_one_queue() -> None:
    core = sees(40, shards=2)
    queues = [Queue(core, shard) for shard in range(2)]
    for queue, tenant in zip(queues, "ab", strict=True):
        queue.add(of(tenant), 1000)
        queue.account("@a", "n=1 slots=10 of -")
        tell_shard(queue)
    plan = core.plan()
    assert (takes(plan, 0), takes(plan, 1)) == ([(of("a"), 10)], [(of("b"), 30)])


def tell_shard(queue: Queue) -> None:
    """Tell the core what waits in a shard."""
    queue.core.on_wake(queue.shard)
    queue.tell()


# -- several amounts: dominant shares ------------------------------------------------------------


def allocate(
    totals: Mapping[str, int], asked: Sequence[Mapping[str, int]], weights: Sequence[int] = ()
) -> list[int]:
    """Return how many tasks each tenant gets of a node with these amounts, if all have many.

    weights: of the tenants; 1 each by default.
    """
    amounts = " ".join(f"{name}={amount}" for name, amount in totals.items())
    core = make()
    entries = [f"[tenants.t{number}]\nweight = {weight}" for number, weight in enumerate(weights)]
    core.on_policy(read_policy("\n".join(entries)))
    offer = Resources.of(1000, totals)
    # name, state, incarnation, drain, first bit, slots, score, offer
    core.on_nodes(0, [Node("n", "up", 1, False, 0, 1000, 1.0, offer)], 1)
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(1000), {"n": amounts}), 0.0)
    queue = Queue(core)
    for number, needs in enumerate(asked):
        text = "slots=1 " + " ".join(f"{name}={amount}" for name, amount in sorted(needs.items()))
        queue.add(of(f"t{number}", text), 1000, 1 + number)
    tell(queue)
    counts = shares(core, 1000)
    return [counts.get(f"t{number}", 0) for number, _ in enumerate(asked)]


def test_dominant_shares_are_equal_as_in_the_paper() -> None:
    # Ghodsi et al. 2011: 9 CPUs, 18 GB; A asks for 1 CPU and 4 GB, B for 3 CPUs and 1 GB
    asked = [{"cpu": 1, "mem": 4}, {"cpu": 3, "mem": 1}]
    assert allocate({"cpu": 9, "mem": 18}, asked) == [3, 2]


AMOUNT = 240
"""What the node has of each amount; tenants take tasks until none fits."""
TOTALS = {"cpu": AMOUNT, "mem": AMOUNT}
DEMANDS = st.fixed_dictionaries({"cpu": st.integers(1, 8), "mem": st.integers(1, 8)})
WEIGHTED = st.lists(st.tuples(DEMANDS, st.integers(1, 5)), min_size=2, max_size=4)


@settings(max_examples=40, deadline=None)
@given(WEIGHTED, DEMANDS)
def test_a_tenant_gains_nothing_by_asking_for_other_amounts_than_it_needs(
    tenants: list[tuple[dict[str, int], int]], lie: dict[str, int]
) -> None:
    (needs, weight), *rivals = tenants
    asked = [rival_needs for rival_needs, _ in rivals]
    weights = [weight, *(rival_weight for _, rival_weight in rivals)]
    honest_tasks = allocate(TOTALS, [needs, *asked], weights)[0]
    lying_tasks = allocate(TOTALS, [lie, *asked], weights)[0]
    useful_tasks = min(lie[name] * lying_tasks / needs[name] for name in needs)
    # tasks are whole: the last task of a tenant may pass its share, and rivals may leave a rest
    last_task = max(max(lie.values()), *(max(needs.values()) for needs in asked))
    assert useful_tasks <= honest_tasks + 1 + last_task / max(needs.values())


@settings(max_examples=40, deadline=None)
@given(WEIGHTED)
def test_each_tenant_gets_what_its_part_of_the_nodes_would_give(
    tenants: list[tuple[dict[str, int], int]],
) -> None:
    asked = [needs for needs, _ in tenants]
    weights = [weight for _, weight in tenants]
    counts = allocate(TOTALS, asked, weights)
    largest = [max(needs.values()) for needs in asked]
    for tasks, most, weight in zip(counts, largest, weights, strict=True):
        # When a task fits no more, less than its largest amount is left of an amount; and no other
        # tenant is ahead by more than its last task.
        due = weight / sum(weights) * (AMOUNT - sum(largest))
        assert tasks * most >= due


@settings(max_examples=40, deadline=None)
@given(WEIGHTED)
def test_no_tenant_would_rather_have_what_another_one_got(
    tenants: list[tuple[dict[str, int], int]],
) -> None:
    asked = [needs for needs, _ in tenants]
    counts = allocate(TOTALS, asked, [weight for _, weight in tenants])
    for (needs, weight), tasks in zip(tenants, counts, strict=True):
        for (other_needs, other_weight), other_tasks in zip(tenants, counts, strict=True):
            part = weight / other_weight
            in_place = min(other_needs[name] * other_tasks // needs[name] for name in needs)
            ahead = max(other_needs.values()) / max(needs.values())
            # small tasks go on where a task of the tenant fits no more
            late = max((needs[name] - 1) / other_needs[name] for name in needs)
            late *= max(other_needs[name] / needs[name] for name in needs)
            assert in_place * part <= tasks + (ahead + late) * part + 1e-9


@pytest.mark.parametrize("count", [1, 3])
def test_lost_claims_do_not_confuse_the_tree(count: int) -> None:
    core = sees(count)
    queue = wait(core, {"a": 10, "b": 10})
    tell(queue)
    plan = queue.turn()
    judge(core, plan, ClaimOutcome.CONFLICT)
    tell(queue)
    core.plan()
    assert core.in_flight == count
