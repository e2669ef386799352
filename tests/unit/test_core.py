"""The scheduler's core, driven by events: no server, no clock, dice with a seed."""

from dataclasses import replace

import numpy as np

from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.kind import Kind
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.place import Place
from parsync_redis.model.replies import Judged, Snapshot, Took
from parsync_redis.model.task import Taken
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.plan import ShardLook
from tests.kit.core_rig import (
    Queue,
    after_a_gap,
    bitmap,
    claims_of,
    judge,
    make,
    node,
    reasons,
    see,
    takes,
    tasks_of,
    waiting,
)


def test_a_task_goes_to_the_best_slot_and_is_confirmed_there() -> None:
    core = make()
    core.on_nodes(
        0, [node("slow", 1, 1.0), Node("fast", "up", 4, False, 1, 1, 99.0, Resources.of(1))], 1
    )
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(2), {}), 0.0)
    plan = waiting(core, 1).turn()
    assert claims_of(plan) == ["fast/0"]
    assert plan.commit[0][0].inc == 4
    judge(core, plan, ClaimOutcome.HELD)
    (place,) = core.plan().confirm
    assert (place.task, place.node, place.slot, place.inc, place.since_ms) == (
        "t1",
        "fast",
        0,
        4,
        1000,
    )
    assert core.in_flight == 0


def test_seats_of_lost_claims_are_free_again_when_the_partition_has_not_changed() -> None:
    core = make()
    core.on_nodes(0, [replace(node("n", 2), offer=Resources.of(2, {"mem": 2}))], 1)
    core.on_snapshot(Snapshot(0, 7, 1, bitmap(2), {"n": "mem=2"}), 0.0)
    plan = waiting(core, 2, "slots=1 mem=1").turn()
    assert sorted(claims_of(plan)) == ["n/0", "n/1"]
    judge(core, plan, ClaimOutcome.CONFLICT)
    assert (
        core.view.partitions[0].free_count,
        core.view.partitions[0].amounts_left.of_node(0),
    ) == (
        0,
        {"mem": 0},
    )
    core.on_snapshot(Snapshot(0, 7, 1, None, {}), 1.0)
    assert (
        core.view.partitions[0].free_count,
        core.view.partitions[0].amounts_left.of_node(0),
    ) == (
        2,
        {"mem": 2000},
    )
    assert len(claims_of(core.plan(confirm=False))) == 2


def test_a_copy_that_is_wrong_without_a_change_of_another_scheduler_is_read_whole() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2, version=7)
    plan = waiting(core, 1).turn()
    assert core.view.partitions[0].since == 7
    core.on_judged(Judged(0, 7, 1, plan.commit[0], [Verdict(ClaimOutcome.SHORT, "")]))
    assert core.view.partitions[0].since == -1


def test_an_answer_from_before_the_claims_does_not_free_their_seats() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2, version=7)
    plan = waiting(core, 2).turn()
    core.on_judged(Judged(0, 8, 1, plan.commit[0], [Verdict(ClaimOutcome.HELD, "1")] * 2))
    core.on_snapshot(Snapshot(0, 7, 1, None, {}), 1.0)
    assert core.view.partitions[0].free_count == 0


def test_now_and_then_a_partition_is_read_as_a_whole() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2)
    asked = []
    for version in range(2, 130):
        asked.append(core.view.partitions[0].since)
        core.on_snapshot(Snapshot(0, version, 1, bitmap(2), {}, False), 0.0)
    assert (asked.count(-1), asked[0]) == (2, 1)


def test_seats_are_of_the_nodes_that_are_there_now() -> None:
    core = make()
    for name, zone in (("n1", "a"), ("n2", "b")):
        core.on_nodes(0, [node("n0", 1), replace(node(name, 2, zone=zone), first=1)], 1)
        core.on_snapshot(Snapshot(0, 2, 1, bitmap(3), {}), 0.0)
        found = {
            at: len(core.view.partitions[0].seats(Resources.of(1, labels={"zone": at})).leads)
            for at in ("a", "b")
        }
        assert found == {"a": 2 * (zone == "a"), "b": 2 * (zone == "b")}


def test_won_claims_that_nobody_has_started_for_a_while_are_due_to_confirm_to_be_confirmed() -> (
    None
):
    core = make()
    see(core, 0, [node("n", 4)], 4)
    queue = Queue(core)

    def win(order: int) -> None:
        queue.add("work slots=1", 1, order).tell()
        judge(core, queue.turn(), ClaimOutcome.HELD)

    win(1)
    assert core.won.due == []
    core.won.confirmed(0)
    win(2)
    assert [place.task for place in core.won.due] == ["t1"]
    assert core.taken == {"t1", "t2"}, "until that is done"
    core.won.confirmed(1)
    assert core.taken == {"t2"}
    assert [place.task for place in core.plan().confirm] == ["t2"], "who leaves confirms everything"
    assert core.won.due == []


def test_a_scheduler_is_at_rest_while_it_has_no_tasks_and_none_could_find_a_seat() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    queue = Queue(core)
    core.on_wake()
    assert not core.at_rest, "it looks at the queue"
    queue.tell()
    assert core.at_rest
    queue.add("work slots=1", 2)
    core.on_wake()
    queue.tell()
    assert not core.at_rest, "there is a seat"
    plan = queue.turn()
    assert not core.at_rest, "its claim is not judged"
    judge(core, plan, ClaimOutcome.HELD)
    assert core.at_rest, "the other one has no seat"


def test_quality_first_takes_the_best_slots_whatever_their_age() -> None:
    core = make(2, Strategy.QUALITY)
    see(core, 0, [node("good", 4, 99.0)], 4, now_s=1.0)
    see(core, 1, [node("poor", 4, 1.0)], 4, now_s=2.0)
    plan = waiting(core, 4).turn()
    assert {claim.node for claims in plan.commit.values() for claim in claims} == {"good"}


def test_a_tasks_own_strategy_goes_first() -> None:
    core = make(2, Strategy.QUALITY)
    see(core, 0, [node("good", 4, 99.0)], 4, now_s=1.0)
    see(core, 1, [node("poor", 4, 1.0)], 4, now_s=2.0)
    assert claims_of(waiting(core, 1, strategy="latency").turn())[0].startswith("poor")


# -- what is taken ---------------------------------------------------------------------------------


def test_a_scheduler_takes_exactly_as_many_tasks_as_it_has_seats() -> None:
    core = make()
    see(core, 0, [node("n", 80)], 50)
    queue = waiting(core, 100)
    plan = core.plan()
    assert takes(plan) == [("work slots=1", 50)]
    assert not plan.commit
    assert plan.ask == {0}, "the others have no seat: it wants to hear of a freed slot"
    queue.answer(plan)
    plan = core.plan()
    assert len(claims_of(plan)) == 50
    assert not takes(plan)


def test_seats_of_tasks_that_another_scheduler_took_are_free_again() -> None:
    core = make()
    see(core, 0, [node("n", 4)], 4)
    queue = waiting(core, 4)
    plan = core.plan()
    assert takes(plan) == [("work slots=1", 4)]
    assert core.view.free_count == 0
    queue.waiting["work slots=1"] = queue.waiting["work slots=1"][:1]
    queue.answer(plan)
    assert len(claims_of(core.plan())) == 1
    assert core.view.free_count == 3
    queue.add("other slots=1", 9, 10).tell()
    assert takes(core.plan()) == [("other slots=1", 3)]


def test_a_partition_that_is_read_meanwhile_does_not_free_what_is_reserved() -> None:
    core = make()
    see(core, 0, [node("n", 4)], 4)
    queue = waiting(core, 2)
    plan = core.plan()
    core.on_snapshot(Snapshot(0, 2, 1, bitmap(4), {}), 1.0)
    assert core.view.free_count == 2
    queue.add("other slots=1", 9, 10).answer(plan)
    plan = core.plan()
    taken = {claim.slots for claim in plan.commit[0]}
    assert takes(plan) == [("other slots=1", 2)]
    queue.answer(plan)
    assert taken.isdisjoint(claim.slots for claim in core.plan().commit[0])


def test_a_task_whose_reserved_seat_was_lost_meanwhile_gets_another_seat() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 1)
    queue = waiting(core, 1)
    plan = core.plan()
    core.on_snapshot(Snapshot(0, 2, 1, np.packbits([False, True]).tobytes(), {}), 1.0)
    queue.answer(plan)
    assert claims_of(core.plan()) == ["n/1"]


def test_amounts_and_several_slots_are_reserved_and_put_back() -> None:
    core = make()
    # name, state, incarnation, drain, first bit, slots, score, offer
    core.on_nodes(0, [Node("n", "up", 1, False, 0, 8, 1.0, Resources.of(8, {"mem": 100}))], 1)
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(8), {"n": "mem=100"}), 0.0)
    queue = waiting(core, 9, "slots=2 mem=40")
    plan = core.plan()
    assert takes(plan) == [("work slots=2 mem=40", 2)]
    queue.waiting["work slots=2 mem=40"] = []
    queue.answer(plan)
    queue.add("big slots=8 mem=100", 1, 20).tell()
    assert takes(core.plan()) == [("big slots=8 mem=100", 1)]


def test_one_round_trip_takes_a_batch_and_then_another_scheduler_is_woken_for_the_rest() -> None:
    core = make()
    see(core, 0, [node("n", 2 * MAX_BATCH)], 2 * MAX_BATCH)
    queue = waiting(core, MAX_BATCH + 7)
    plan = core.plan()
    assert plan.shard_looks == {0: ShardLook([("work slots=1", MAX_BATCH)], "1", "wake")}
    queue.answer(plan)
    plan = core.plan()
    assert plan.shard_looks == {0: ShardLook([("work slots=1", 7)], "1", "wait")}
    assert len(plan.commit[0]) == MAX_BATCH, "what it took before is claimed in the same request"


# -- kinds -----------------------------------------------------------------------------------------


def test_a_kind_without_a_seat_keeps_no_other_waiting_and_is_tried_when_a_partition_changes() -> (
    None
):
    core = make()
    see(core, 0, [node("n", 2)], 2)
    queue = Queue(core).add("gpu slots=1 gpu_model:a100", 50_000).add("cpu slots=1", 1, 99_999)
    queue.tell()
    core.on_tick(0)
    plan = core.plan()
    assert takes(plan) == [("cpu slots=1", 1)]
    assert reasons(plan) == [
        (
            "gpu slots=1 gpu_model:a100",
            "no node fits: no node has label gpu_model:a100; there are no labels",
        )
    ]
    queue.answer(plan)
    judge(core, core.plan(), ClaimOutcome.HELD)
    core.on_tick(1)
    assert reasons(core.plan()) == [], "it was written, and nothing changed"
    core.on_nodes(0, [node("g", 1, gpu_model="a100")], 1)
    core.on_snapshot(Snapshot(0, 3, 1, bitmap(1), {}), 1.0)
    assert takes(core.plan()) == [("gpu slots=1 gpu_model:a100", 1)]


def test_blocked_kinds_cost_nothing_until_a_partition_changes_in_which_they_may_fit() -> None:
    core = make(2)
    for p in range(2):
        core.on_nodes(
            p, [Node(f"n{p}", "up", 1, False, 0, 4, 1.0, Resources.of(4, {"mem": 100}))], 1
        )
        core.on_snapshot(Snapshot(p, 1, 1, bitmap(4), {f"n{p}": "mem=50"}), 0.0)
    queue = Queue(core)
    for mem in range(51, 100):
        queue.add(f"work slots=1 mem={mem}", 1, mem)
    queue.tell()
    assert not takes(core.plan())
    assert len(core.queue.blocked) == 49
    assert not core.queue.any_open
    core.on_snapshot(Snapshot(1, 2, 1, bitmap(4), {"n1": "mem=52"}), 1.0)
    assert takes(core.plan()) == [("work slots=1 mem=51", 1)], (
        "of two that fit by themselves the older gets the seat"
    )
    assert len(core.queue.blocked) == 48


def test_seats_that_kinds_share_go_to_the_oldest_tasks() -> None:
    core = make()
    see(core, 0, [node("n", 1, gpu_model="a100")], 0)
    queue = (
        Queue(core)
        .add("any slots=1", 1, 1)
        .add("rare slots=1 gpu_model:a100", 1, 2, "r")
        .add("any slots=1", 1, 3)
    )
    queue.tell()
    ran = []
    for version in range(2, 5):
        core.on_snapshot(Snapshot(0, version, 1, bitmap(1), {}), float(version))
        plan = queue.turn()
        ran += tasks_of(plan)
        judge(core, plan, ClaimOutcome.HELD)
    assert ran == ["t1", "r2", "t3"]


def test_many_seats_are_shared_in_the_order_of_the_tasks_too() -> None:
    core = make()
    see(core, 0, [node("n", 100)], 40)
    queue = Queue(core).add("old slots=1", 30, 1).add("young slots=1", 30, 31)
    queue.tell()
    assert dict(takes(core.plan())) == {"old slots=1": 30, "young slots=1": 10}
    core = make()
    see(core, 0, [node("n", 100)], 40)
    queue = Queue(core)
    for order in range(1, 61, 2):
        queue.add("odd slots=1", 1, order).add("even slots=1", 1, order + 1)
    queue.tell()
    shares = dict(takes(core.plan()))
    assert abs(shares["odd slots=1"] - shares["even slots=1"]) <= 3


def test_a_changed_node_is_read_again_before_it_is_claimed_again() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2)
    judge(core, waiting(core, 1).turn(), ClaimOutcome.CHANGED)
    assert core.due, "what was claimed by is old"
    plan = core.plan()
    assert (plan.read_nodes, plan.read, plan.give_back) == ([0], [0], []), (
        "the task waits for this one round trip"
    )
    core.on_nodes(0, [replace(node("n", 2), inc=2)], 2)
    core.on_snapshot(Snapshot(0, 3, 2, bitmap(2), {}), 1.0)
    ((claim,),) = core.plan().commit.values()
    assert (claim.task, claim.inc, claim.epoch) == ("t1", 2, 2)


def test_a_task_whose_partition_has_changed_goes_to_another_at_once_or_back_if_none_has_a_seat() -> (
    None
):
    core = make(2)
    see(core, 0, [node("n", 2)], 2)
    queue = waiting(core, 1)
    plan = queue.turn()
    see(core, 1, [node("m", 2)], 1)
    judge(core, plan, ClaimOutcome.CHANGED)
    plan = core.plan()
    assert (plan.read_nodes, claims_of(plan)) == ([0], ["m/0"])
    judge(core, plan, ClaimOutcome.CONFLICT)
    core.on_nodes(0, [], 2)
    core.on_snapshot(Snapshot(0, 3, 2, b"", {}), 1.0)
    core.on_snapshot(Snapshot(1, 3, 1, b"", {}), 1.0)
    assert [task for task, _, _ in after_a_gap(core).give_back] == ["t1"]


def test_a_claim_names_its_bits_by_the_epoch_of_the_copy() -> None:
    core = make()
    see(core, 0, [replace(node("n", 2), first=3)], 0)
    core.on_snapshot(Snapshot(0, 9, 1, b"\xff", {}), 1.0)
    ((claim,),) = waiting(core, 1, "slots=2").turn().commit.values()
    assert (claim.slots, claim.first, claim.epoch, claim.text) == (
        (0, 1),
        3,
        1,
        "t1 1@1 p0 n/0,1 inc=1",
    )
    assert Place.of(f"{claim.text} since=5") == claim.won(5)


def test_a_snapshot_of_another_epoch_is_not_believed() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 0)
    core.on_snapshot(Snapshot(0, 9, 2, bitmap(2), {}), 1.0)
    assert core.view.free_count == 0
    assert core.plan().read_nodes == [0]


def test_a_woken_scheduler_reads_the_queue_and_each_tick_is_the_turn_of_one_scheduler() -> None:
    cores = [make() for _ in range(4)]
    for ordinal, core in enumerate(cores):
        core.on_members(ordinal, 4)
        see(core, 0, [node("n", 2)], 2)
        Queue(core).tell()
        core.plan()
        assert core.at_rest
    cores[2].on_wake()
    assert [bool(core.plan().shard_looks) for core in cores] == [False, False, True, False]
    for core in cores:
        core.on_tick(1)
    assert [bool(core.plan().shard_looks) for core in cores] == [False, False, False, True]


def test_a_queue_with_more_changes_than_one_look_returns_is_looked_at_again() -> None:
    core = make()
    core.on_took(Took("1", 0, more=True))
    assert core.plan().shard_looks
    core.on_took(Took("2", 0))
    assert not core.plan().shard_looks


def test_with_tasks_and_no_seat_each_partition_is_asked_once_a_gap_to_tell_of_a_freed_slot() -> (
    None
):
    core = make(4)
    for p in range(3):
        see(core, p, [node("n", 1)], 0)
    core.on_members(0, 2)
    waiting(core, 5)
    assert core.plan().ask == {0, 1, 2}, "a partition without nodes has nothing to tell"
    assert not core.plan().ask
    core.on_freed(1)
    assert core.plan().ask == {1}, "who was told asks again while it sees no seat"
    core.on_tick(0)
    assert core.plan().ask == {0, 2}, "what is due is asked again, with the same read"
    core.on_tick(1)
    assert core.plan().ask == {1}


def test_another_policy_of_turns_order_and_asking_can_be_given() -> None:
    last_only = {Strategy.QUALITY: lambda known: [[p for p in known if p.number == 2]]}
    core = Core(
        "s1",
        3,
        Strategy.QUALITY,
        1.5,
        np.random.default_rng(1),
        turn_rule=lambda ordinal, members, tick, partitions: [tick % partitions],
        orders=last_only,
        asks=False,
    )
    for p in range(3):
        see(core, p, [node("n", 2)], 2)
    core.on_tick(7)
    queue = waiting(core, 9)
    assert takes(core.plan()) == [("work slots=1", 2)]
    core.on_tick(7)
    queue.answer(core.plan())
    core.on_tick(7)
    plan = core.plan()
    assert plan.read == [1]
    assert not plan.ask


def test_the_same_dice_make_the_same_decisions() -> None:
    def decide(seed: int) -> list[str]:
        core = make(seed=seed)
        see(core, 0, [node("n", 50)], 50)
        return claims_of(waiting(core, 20).turn())

    assert decide(7) == decide(7)
    assert decide(7) != decide(8)


def test_after_an_outage_the_core_reads_everything_and_has_nothing_in_flight() -> None:
    core = make(3)
    see(core, 0, [node("n", 2)], 2)
    waiting(core, 5)
    core.plan()
    core.forget()
    plan = core.plan()
    assert core.in_flight == 0
    assert plan.read_nodes == [0, 1, 2]
    assert plan.shard_looks == {0: ShardLook([], "0", "wait")}


# -- which nodes know the name of a task -----------------------------------------------------------

OLD = KnownTasks.of({"kept": None, "old": None})
NEW = KnownTasks.of({"kept": None, "new": None})


def knowing(name: str, tasks: KnownTasks, first: int) -> Node:
    return Node(name, "up", 1, False, first, 2, 1.0, offer_with(Resources.of(2), tasks))


def names_wait(core: Core, *names: str) -> Queue:
    queue = Queue(core)
    for order, name in enumerate(names):
        queue.add(f"{name} slots=1", 1, order)
    queue.tell()
    return queue


def test_a_task_is_placed_only_where_its_name_is_known() -> None:
    core = make(1)
    see(core, 0, [knowing("n1", OLD, 0), knowing("n2", NEW, 2)], 4)
    for known in (OLD, NEW):
        core.on_names(known.digest, known.declared)
    plan = names_wait(core, "new", "old", "new", "gone").turn()
    claims = [claim for some in plan.commit.values() for claim in some]
    assert {claim.task: claim.node for claim in claims} == {"t0": "n2", "t1": "n1", "t2": "n2"}


def test_no_task_is_placed_on_a_node_whose_names_are_unread() -> None:
    core = make(1)
    see(core, 0, [knowing("n1", OLD, 0)], 2)
    queue = names_wait(core, "old")
    assert not takes(core.plan())
    assert core.view.unread() == {OLD.digest}
    core.on_names(OLD.digest, OLD.declared)
    assert claims_of(queue.turn())
    assert core.view.unread() == set()


def test_kinds_are_grouped_anew_once_nodes_have_changed() -> None:
    core = make(1)
    see(core, 0, [knowing("n1", OLD, 0), knowing("n2", NEW, 2)], 0)
    for known in (OLD, NEW):
        core.on_names(known.digest, known.declared)
    queue = names_wait(core, "old", "new", "kept", "old", "new")
    core.plan()
    assert len(core.queue.blocked) == 3
    both = KnownTasks.of({"kept": None, "old": None, "new": None})
    core.on_nodes(0, [Node("n3", "up", 1, False, 0, 8, 1.0, offer_with(Resources.of(8), both))], 2)
    core.on_names(both.digest, both.declared)
    core.on_snapshot(Snapshot(0, 2, 2, bitmap(8), {}), 1.0)
    assert sorted(tasks_of(queue.turn())) == ["t0", "t1", "t2", "t3", "t4"]


def test_a_partition_whose_reserved_seats_got_no_task_is_sent_no_commit() -> None:
    core = make(partitions=2)
    for p in range(2):
        see(core, p, [node(f"n{p}", 2)], 2)
    waiting(core, 4)
    assert takes(core.plan(confirm=False)) == [("work slots=1", 4)]
    core.on_took(Took("2", 0, tasks=[Taken("t1", "1@1", Kind("work", "slots=1"), 0)]))
    plan = core.plan(place=False, confirm=False)
    assert [len(claims) for claims in plan.commit.values()] == [1]
