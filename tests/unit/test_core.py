"""The scheduler's core, driven by events: no server, no clock, dice with a seed."""

import numpy as np

from parsync_redis.model.apps import TASKS_LABEL, KnownTasks, offer_with
from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.options import Strategy
from parsync_redis.model.replies import Judged, Snapshot, Took
from parsync_redis.model.task import Taken
from parsync_redis.scheduler.backlog import HOLD
from parsync_redis.scheduler.core import AHEAD, Core

from .core_rig import bitmap, claims_of, judge, make, node, see, tasks


def test_a_task_goes_to_the_best_slot_and_is_confirmed_there() -> None:
    core = make()
    core.on_nodes(0, [node("slow", 1, 1.0), Node("fast", "up", 4, False, 1, 1, 99.0, Resources.of(1))], 1)
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(2), {}), 0.0)
    core.on_took(Took(0, 0, tasks(1)))
    plan = core.plan()
    assert claims_of(plan) == ["fast/0"]
    assert plan.commit[0][0].inc == 4
    judge(core, plan, ClaimOutcome.HELD)
    (place,) = core.plan().confirm
    assert (place.task, place.node, place.slot, place.inc, place.since_ms) == ("t0", "fast", 0, 4, 1000)
    assert core.in_flight == 0


def test_a_lost_claim_is_tried_elsewhere_and_not_on_the_same_slot() -> None:
    core = make()
    see(core, 0, [node("n", 3)], 3)
    core.on_took(Took(0, 0, tasks(1)))
    tried = []
    for _ in range(3):
        plan = core.plan()
        tried += claims_of(plan)
        judge(core, plan, ClaimOutcome.CONFLICT)
    assert sorted(tried) == ["n/0", "n/1", "n/2"]
    assert not core.plan().commit
    assert core.in_flight == 1
    assert core.counters.conflicts == 3


def test_won_claims_that_nobody_has_started_for_a_while_are_due_to_confirm_to_be_confirmed() -> None:
    core = make()
    see(core, 0, [node("n", 4)], 4)

    def win(id: int) -> None:
        core.on_took(Took(0, 0, [Taken(f"t{id}", f"1@{id}", "slots=1", "", 0)]))
        (claims,) = core.plan(confirm=False).commit.values()
        core.on_judged(Judged(0, 2, 0, claims, [Verdict(ClaimOutcome.HELD, "7") for _ in claims]))

    win(1)
    assert core.due_to_confirm == []
    core.confirmed(0)
    win(2)
    assert [place.task for place in core.due_to_confirm] == ["t1"]
    assert core.taken == {"t1", "t2"}, "until that is done"
    core.confirmed(1)
    assert core.taken == {"t2"}
    assert [place.task for place in core.plan().confirm] == ["t2"], "who leaves confirms everything"
    assert core.due_to_confirm == []


def test_a_scheduler_is_at_rest_while_it_neither_has_tasks_nor_looks_for_any() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    assert not core.at_rest, "it has not looked yet"
    core.on_took(Took(0, 0, []))
    assert core.at_rest
    core.on_wake()
    assert not core.at_rest
    core.on_took(Took(0, 0, tasks(1)))
    assert not core.at_rest
    (claims,) = core.plan().commit.values()
    assert not core.at_rest, "its claim is not judged"
    core.on_judged(Judged(0, 2, 0, claims, [Verdict(ClaimOutcome.HELD, "7")]))
    assert core.at_rest


def test_quality_first_takes_the_best_slots_whatever_their_age() -> None:
    core = make(2, Strategy.QUALITY)
    see(core, 0, [node("good", 4, 99.0)], 4, now_s=1.0)
    see(core, 1, [node("poor", 4, 1.0)], 4, now_s=2.0)
    core.on_took(Took(0, 0, tasks(4)))
    assert {claim.node for claims in core.plan().commit.values() for claim in claims} == {"good"}


def test_a_tasks_own_strategy_goes_first() -> None:
    core = make(2, Strategy.QUALITY)
    see(core, 0, [node("good", 4, 99.0)], 4, now_s=1.0)
    see(core, 1, [node("poor", 4, 1.0)], 4, now_s=2.0)
    core.on_took(Took(0, 0, tasks(1, strategy="latency")))
    assert claims_of(core.plan())[0].startswith("poor")


def test_with_tasks_and_no_seat_it_asks_each_partition_once_a_gap_to_tell_it_of_a_freed_slot() -> None:
    core = make(4)
    for p in range(3):
        see(core, p, [node("n", 1)], 0)
    core.on_members(0, 2)
    core.on_tick(0)
    plan = core.plan()
    assert plan.ask == {0, 1, 2}, "a partition without nodes has nothing to tell"
    assert not core.plan().ask
    core.on_tick(1)
    assert not core.plan().ask
    core.on_freed(1)
    assert core.plan().ask == {1}, "who was told asks again while it has tasks and sees no seat"
    core.on_tick(2)
    assert core.plan().ask == {0, 1, 2}


def test_a_full_partition_is_asked_also_while_another_has_seats() -> None:
    core = make(2)
    see(core, 0, [node("full", 2)], 0)
    see(core, 1, [node("n", 40)], 40)
    core.on_took(Took(100, 0, tasks(10)))
    plan = core.plan()
    assert set(plan.commit) == {1}
    assert plan.ask == {0}


def test_it_takes_no_more_than_it_has_seats_for_and_a_few_ahead() -> None:
    core = make()
    core.on_nodes(0, [node("n", 80)], 1)
    core.on_snapshot(Snapshot(0, 1, 1, bitmap(50), {}), 0.0)
    assert core.plan().take == 50
    core.on_took(Took(100, 0, tasks(50)))
    plan = core.plan()
    assert len(claims_of(plan)) == 50
    assert plan.take == AHEAD
    assert plan.ask == {0}, "tasks wait and there is no seat: it wants to hear of a freed slot"
    core.on_took(Took(84, 0, [Taken(f"a{i}", "1@1", "slots=1", "", 0) for i in range(AHEAD)]))
    assert core.plan().take == 0


def test_a_task_without_a_seat_blocks_no_other_kind_and_is_tried_when_the_view_changes() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2)
    core.on_took(Took(0, 0, [*tasks(1, "slots=1 gpu_model:a100"), Taken("cpu", "1@9", "slots=1", "", 0)]))
    core.on_tick(0)
    plan = core.plan()
    assert [c.task for c in plan.commit[0]] == ["cpu"]
    assert plan.reasons == [("t0", "1@0", "no node fits: no node has label gpu_model:a100; there are no labels")]
    judge(core, plan, ClaimOutcome.HELD)
    assert not core.plan().commit
    core.on_tick(1)
    assert core.plan().reasons == [], "it was written, and nothing changed"
    core.on_nodes(0, [node("g", 1, gpu_model="a100")], 1)
    core.on_snapshot(Snapshot(0, 3, 1, bitmap(1), {}), 1.0)
    assert claims_of(core.plan()) == ["g/0"]


def test_a_kind_that_never_runs_out_starves_no_other() -> None:
    core = make()
    nodes = [node("n", 1, gpu_model="a100")]
    see(core, 0, nodes, 0)
    waits = Taken("rare", "1@2", "slots=1 gpu_model:a100", "", 2)
    core.on_took(Took(9, 0, [Taken("t1", "1@1", "slots=1", "", 1), waits, Taken("t3", "1@3", "slots=1", "", 3)]))
    ran = []
    for version in range(2, 5):
        core.on_snapshot(Snapshot(0, version, 1, bitmap(1), {}), float(version))
        plan = core.plan()
        ran += [claim.task for claims in plan.commit.values() for claim in claims]
        judge(core, plan, ClaimOutcome.HELD)
        core.on_took(Took(9, 0, [Taken(f"t{version}9", f"1@{version}9", "slots=1", "", version * 10 + 9)]))
    assert ran == ["t1", "rare", "t3"], "whoever waits longest goes first, whatever its kind"


def test_more_blocked_tasks_than_it_may_hold_are_given_back() -> None:
    core = make()
    see(core, 0, [node("n", 1)], 1)
    core.on_took(Took(0, 0, tasks(HOLD + 10, "slots=1 gpu_model:a100")))
    plan = core.plan()
    assert len(plan.give_back) == 10
    assert core.in_flight == HOLD


def test_a_changed_node_is_read_again_before_it_is_claimed_again() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 2)
    core.on_took(Took(0, 0, tasks(1)))
    judge(core, core.plan(), ClaimOutcome.CHANGED)
    assert core.plan().read_nodes == [0]


def test_a_snapshot_of_another_epoch_is_not_believed() -> None:
    core = make()
    see(core, 0, [node("n", 2)], 0)
    core.on_snapshot(Snapshot(0, 9, 2, bitmap(2), {}), 1.0)
    assert core.view.free_count == 0
    assert core.plan().read_nodes == [0]


def test_who_is_woken_looks_for_tasks_and_a_turn_is_for_one_a_tick() -> None:
    cores = [make() for _ in range(4)]
    for ordinal, core in enumerate(cores):
        core.on_members(ordinal, 4)
        see(core, 0, [node("n", 2)], 2)
        core.on_took(Took(0, 0, []))
        core.plan()
        assert core.at_rest
    cores[2].on_wake()
    assert [core.plan().take > 0 for core in cores] == [False, False, True, False]
    for core in cores:
        core.on_took(Took(0, 0, []))
        core.on_tick(1)
    assert [core.plan().take > 0 for core in cores] == [False, False, False, True]


def test_turns_orders_and_asking_can_be_others() -> None:
    last_only = {Strategy.QUALITY: lambda known: [known[-1:]]}
    core = Core(
        "s1",
        3,
        Strategy.QUALITY,
        1.5,
        np.random.default_rng(1),
        turns=lambda ordinal, members, tick, partitions: [tick % partitions],
        orders=last_only,
        asks=False,
    )
    for p in range(3):
        see(core, p, [node("n", 2)], 2)
    core.on_tick(7)
    core.on_took(Took(5, 0, tasks(9)))
    plan = core.plan()
    assert plan.read == [1]
    assert list(plan.commit) == [2]
    assert len(plan.commit[2]) == 2
    assert not plan.ask


def test_the_same_dice_make_the_same_decisions() -> None:
    def decide(seed: int) -> list[str]:
        core = make(seed=seed)
        see(core, 0, [node("n", 50)], 50)
        core.on_took(Took(0, 0, tasks(20)))
        return claims_of(core.plan())

    assert decide(7) == decide(7)
    assert decide(7) != decide(8)


def test_after_an_outage_it_reads_everything_and_has_nothing_in_flight() -> None:
    core = make(3)
    see(core, 0, [node("n", 2)], 2)
    core.on_took(Took(0, 0, tasks(5)))
    core.forget()
    plan = core.plan()
    assert core.in_flight == 0
    assert plan.read_nodes == [0, 1, 2]


# -- which nodes know the name of a task ----------------------------------------------------------------------

OLD, NEW = KnownTasks.of({"kept": None, "old": None}), KnownTasks.of({"kept": None, "new": None})


def knowing(name: str, tasks: KnownTasks, first: int) -> Node:
    return Node(name, "up", 1, False, first, 2, 1.0, offer_with(Resources.of(2), tasks))


def named(*names: str) -> list[Taken]:
    return [Taken(f"t{i}", f"1@{i}", "slots=1", "", i, name) for i, name in enumerate(names)]


def test_a_task_is_placed_only_where_its_name_is_known_and_the_claim_says_so() -> None:
    core = make(1)
    see(core, 0, [knowing("n1", OLD, 0), knowing("n2", NEW, 2)], 4)
    for known in (OLD, NEW):
        core.on_names(known.digest, known.declared)
    core.on_took(Took(0, 0, named("new", "old", "new", "gone")))
    claims = [claim for some in core.plan().commit.values() for claim in some]
    assert {claim.task: claim.node for claim in claims} == {"t0": "n2", "t1": "n1", "t2": "n2"}
    assert {claim.needs for claim in claims} == {f"slots=1 {TASKS_LABEL}:{tasks.digest}" for tasks in (OLD, NEW)}


def test_nothing_is_placed_on_a_node_whose_names_are_not_read_yet() -> None:
    core = make(1)
    see(core, 0, [knowing("n1", OLD, 0)], 2)
    core.on_took(Took(0, 0, named("old")))
    assert not core.plan().commit
    assert core.view.unread() == {OLD.digest}
    core.on_names(OLD.digest, OLD.declared)
    assert claims_of(core.plan())
    assert core.view.unread() == set()


def test_tasks_that_are_of_one_kind_once_nodes_have_changed_keep_their_order() -> None:
    core = make(1)
    see(core, 0, [knowing("n1", OLD, 0), knowing("n2", NEW, 2)], 0)
    for known in (OLD, NEW):
        core.on_names(known.digest, known.declared)
    core.on_took(Took(0, 0, named("old", "new", "kept", "old", "new")))
    core.plan()
    both = KnownTasks.of({"kept": None, "old": None, "new": None})
    core.on_nodes(0, [Node("n3", "up", 1, False, 0, 8, 1.0, offer_with(Resources.of(8), both))], 2)
    core.on_names(both.digest, both.declared)
    core.on_snapshot(Snapshot(0, 2, 2, bitmap(8), {}), 1.0)
    claims = [claim for some in core.plan().commit.values() for claim in some]
    assert [claim.task for claim in claims] == ["t0", "t1", "t2", "t3", "t4"]
