"""The scheduler's core, driven by events: no server, no clock, dice with a seed."""

import numpy as np
import pytest

from parsync_redis.model.apps import TASKS_LABEL, KnownTasks, offer_with
from parsync_redis.model.claim import ClaimOutcome, Verdict
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.replies import Judged, Snapshot, Took
from parsync_redis.model.task import Strategy, Taken
from parsync_redis.scheduler.core import AHEAD, HOLD, Core, Plan


def make(partitions: int = 1, strategy: Strategy = Strategy.QUALITY, seed: int = 1) -> Core:
    return Core("s1", partitions, strategy, 1.5, np.random.default_rng(seed))


def node(name: str, slots: int, score: float = 1.0, **labels: str) -> Node:
    return Node(name, "up", 1, False, 0, slots, score, Resources.of(slots, labels=labels))


def bitmap(count: int) -> bytes:
    return np.packbits(np.ones(count, dtype=bool)).tobytes()


def see(core: Core, p: int, nodes: list[Node], free: int, now_s: float = 0.0, version: int = 1) -> None:
    """The core has read a partition with `free` free slots from the first bit on."""
    core.on_nodes(p, nodes, 1)
    core.on_snapshot(Snapshot(p, version, 1, bitmap(free), {}), now_s)
    core.plan()


def tasks(count: int, needs: str = "slots=1", strategy: str = "") -> list[Taken]:
    return [Taken(f"t{i}", f"1@{i}", needs, strategy, 0) for i in range(count)]


def claims_of(plan: Plan) -> list[str]:
    return [f"{c.node}/{c.slots[0]}" for some in plan.commit.values() for c in some]


def judge(core: Core, plan: Plan, word: ClaimOutcome) -> None:
    for p, claims in plan.commit.items():
        core.on_judged(
            Judged(p, 2, 1000, claims, [Verdict(word, "1000" if word is ClaimOutcome.HELD else "x")] * len(claims))
        )


@pytest.mark.parametrize(("members", "partitions"), [(1, 4), (3, 8), (4, 4), (5, 3), (20, 20), (7, 20)])
def test_in_each_round_the_reads_are_disjoint_and_n_rounds_cover_everything(members: int, partitions: int) -> None:
    cores = [make(partitions) for _ in range(members)]
    for ordinal, core in enumerate(cores):
        core.on_members(ordinal, members)
        for p in range(partitions):
            see(core, p, [node("n", 1)], 1)
    seen: list[set[int]] = [set() for _ in cores]
    for tick in range(members):
        reads = []
        for core, mine in zip(cores, seen, strict=True):
            core.on_tick(tick)
            turn = set(core.plan().read)
            mine |= turn
            reads += list(turn)
        assert sorted(reads) == list(range(partitions)), "each partition is read once, by one scheduler"
    assert all(mine == set(range(partitions)) for mine in seen)


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


def test_latency_first_takes_the_freshest_partition_whatever_its_scores() -> None:
    core = make(2, Strategy.LATENCY)
    see(core, 0, [node("good", 4, 99.0)], 4, now_s=1.0)
    see(core, 1, [node("poor", 4, 1.0)], 4, now_s=2.0)
    core.on_took(Took(0, 0, tasks(5)))
    assert [claim.partition for claims in core.plan().commit.values() for claim in claims] == [1, 1, 1, 1, 0]


def test_ticks_that_are_heard_late_leave_the_last_turn_the_freshest() -> None:
    core = make(3, Strategy.LATENCY)
    core.on_members(0, 3)
    for p in range(3):
        see(core, p, [node("n", 2)], 2)
    for tick in (1, 2):
        core.on_tick(tick)
    assert core.due, "what was freshest may be another's by now"
    assert core.plan(place=False).read == [1, 2]
    assert not core.due
    for p in (1, 2):
        core.on_snapshot(Snapshot(p, 2, 1, bitmap(2), {}), 5.0)
    core.on_took(Took(0, 0, tasks(5)))
    plan = core.plan()
    assert [claim.partition for claims in plan.commit.values() for claim in claims] == [2, 2, 1, 1]
    assert plan.read == [0], "another's turn has come there: it is read anew before anything is placed in it"
    core.on_snapshot(Snapshot(0, 2, 1, bitmap(2), {}), 6.0)
    assert [claim.partition for claim in core.plan().commit[0]] == [0]


def fetching(count: int) -> Core:
    """One of two schedulers with so many tasks: its own partition is full, the other's is read out of turn."""
    core = make(2, Strategy.LATENCY)
    core.on_members(0, 2)
    for p in range(2):
        see(core, p, [node("n", 2)], 2)
    for tick in (2, 4, 6):
        core.on_tick(tick)
        core.on_snapshot(Snapshot(0, tick, 1, bitmap(0), {}), tick)
    core.plan(place=False)
    core.on_took(Took(0, 0, tasks(count)))
    assert core.plan().read == [1]
    return core


def test_what_is_full_when_it_is_read_anew_is_not_read_without_end() -> None:
    core = fetching(3)
    core.on_snapshot(Snapshot(1, 2, 1, bitmap(0), {}), 7.0)
    plan = core.plan()
    assert not plan.commit
    assert plan.ask == {0, 1}, "now they wait until a slot is freed"
    assert not core.plan()


def test_a_stale_copy_that_is_still_right_is_fresh_once_that_is_known() -> None:
    core = fetching(2)
    core.on_snapshot(Snapshot(1, 1, 1, None, {}), 7.0)
    assert len(core.plan().commit[1]) == 2


@pytest.mark.parametrize("strategy", [Strategy.LATENCY, Strategy.QUALITY])
def test_after_a_lost_claim_a_partition_is_read_before_the_next_claim_there(strategy: Strategy) -> None:
    core = make(1, strategy)
    see(core, 0, [node("n", 4)], 4)
    core.on_took(Took(0, 0, tasks(1)))
    (claims,) = core.plan().commit.values()
    core.on_judged(Judged(0, 2, 0, claims, [Verdict(ClaimOutcome.CONFLICT, "other")]))
    assert core.due
    assert core.plan(place=False).read == [0]


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
    assert core.hands == {"t1", "t2"}, "until that is done"
    core.confirmed(1)
    assert core.hands == {"t2"}
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
    assert plan.note == [("t0", "1@0", "no node fits: no node has label gpu_model:a100; there are no labels")]
    judge(core, plan, ClaimOutcome.HELD)
    assert not core.plan().commit
    core.on_tick(1)
    assert core.plan().note == [], "it was noted, and nothing changed"
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


def test_what_is_due_can_be_read_before_anything_is_placed() -> None:
    core = make(2, Strategy.LATENCY)
    for p in range(2):
        see(core, p, [node("n", 2)], 2)
    core.on_took(Took(0, 0, tasks(1)))
    core.on_tick(1)
    plan = core.plan(place=False)
    assert not plan.commit
    assert plan.read == [0, 1]
    core.on_snapshot(Snapshot(1, 2, 1, bitmap(2), {}), 1.0)
    assert list(core.plan().commit) == [1]


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


@pytest.mark.parametrize(("members", "ticks_a_pass"), [(8, 2), (20, 3), (50, 3), (4, 7)])
def test_a_scheduler_whose_passes_are_slower_than_ticks_places_all_the_same(members: int, ticks_a_pass: int) -> None:
    core = make(members, Strategy.LATENCY)
    core.on_members(0, members)
    for p in range(members):
        see(core, p, [node("n", 4)], 4)
    core.on_took(Took(0, 0, tasks(3)))
    placed, only_read = 0, False
    for tick in range(members):
        core.on_tick(tick)
    for _ in range(12):  # passes, as the loop makes them
        only_read = core.due and not only_read
        plan = core.plan(place=not only_read, confirm=False)
        for p, claims in plan.commit.items():
            placed += len(claims)
            core.on_judged(Judged(p, 2, 1, claims, [Verdict(ClaimOutcome.HELD, "1")] * len(claims)))
        for p in plan.read:
            core.on_snapshot(Snapshot(p, 2, 1, bitmap(4), {}), 1.0)
        for _ in range(ticks_a_pass):
            tick += 1
            core.on_tick(tick)
    assert placed == 3


def test_what_was_freed_is_claimed_as_soon_as_it_is_read_and_behind_what_is_ones_own() -> None:
    core = make(4, Strategy.LATENCY)
    core.on_members(0, 4)
    for p in range(4):
        see(core, p, [node("n", 4)], 4)
    for tick in (1, 2, 3, 4):  # its turns are 1, 2, 3, 0
        core.on_tick(tick)
        (due,) = core.plan(place=False).read
        core.on_snapshot(Snapshot(due, 1 + tick, 1, bitmap(1 if due == 0 else 0), {}), float(tick))
    core.on_freed(2)
    core.plan(place=False)
    core.on_snapshot(Snapshot(2, 9, 1, bitmap(1), {}), 9.0)
    core.on_took(Took(0, 0, tasks(2)))
    assert [claim.partition for claims in core.plan().commit.values() for claim in claims] == [0, 2]


def test_what_was_fetched_is_fresh_for_one_pass() -> None:
    core = make(4, Strategy.LATENCY)
    core.on_members(0, 4)
    for p in range(4):
        see(core, p, [node("n", 4)], 0 if p != 2 else 4)
    for tick in (2, 3, 4):  # turns of 2, 3, 0
        core.on_tick(tick)
    core.plan(place=False)
    core.on_snapshot(Snapshot(2, 2, 1, bitmap(4), {}), 1.0)
    for some in ([Taken("a", "1@1", "slots=1", "", 0)], [Taken("b", "1@2", "slots=1", "", 0)]):
        core.on_took(Took(0, 0, some))
        plan = core.plan(confirm=False)
        assert not plan.commit, "it was read at its turn, or for the task before: others place there now"
        assert plan.read == [2]
        core.on_snapshot(Snapshot(2, 3, 1, bitmap(4), {}), 2.0)
        (claims,) = core.plan(confirm=False).commit.values()
        core.on_judged(Judged(2, 4, 1, claims, [Verdict(ClaimOutcome.HELD, "1")]))


def test_no_more_is_fetched_than_what_is_left_needs() -> None:
    core = make(4, Strategy.LATENCY)
    core.on_members(0, 4)
    for p in range(4):
        see(core, p, [node("n", 4)], 0 if p == 0 else 4)
    for tick in (5, 6, 7, 8):
        core.on_tick(tick)
        core.counters.ticks += 2  # as if others' turns had come since
    core.plan(place=False)
    core.on_took(Took(0, 0, tasks(3)))
    assert len(core.plan().read) == 1, "four seats for three tasks"
    core.on_took(Took(0, 0, [Taken(f"u{i}", f"1@9{i}", "slots=1", "", 0) for i in range(3)]))
    assert len(core.plan().read) == 2


# -- which nodes know the name of a task ----------------------------------------------------------------------

OLD, NEW = KnownTasks.of({"kept": None, "old": None}), KnownTasks.of({"kept": None, "new": None})


def knowing(name: str, tasks: KnownTasks, first: int) -> Node:
    return Node(name, "up", 1, False, first, 2, 1.0, offer_with(Resources.of(2), tasks))


def named(*names: str) -> list[Taken]:
    return [Taken(f"t{i}", f"1@{i}", "slots=1", "", i, name) for i, name in enumerate(names)]


def test_a_task_is_placed_only_where_its_name_is_known_and_the_claim_says_so() -> None:
    core = make(1)
    see(core, 0, [knowing("n1", OLD, 0), knowing("n2", NEW, 2)], 4)
    for tasks in (OLD, NEW):
        core.on_names(tasks.digest, tasks.declared)
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
    for tasks in (OLD, NEW):
        core.on_names(tasks.digest, tasks.declared)
    core.on_took(Took(0, 0, named("old", "new", "kept", "old", "new")))
    core.plan()
    both = KnownTasks.of({"kept": None, "old": None, "new": None})
    core.on_nodes(0, [Node("n3", "up", 1, False, 0, 8, 1.0, offer_with(Resources.of(8), both))], 2)
    core.on_names(both.digest, both.declared)
    core.on_snapshot(Snapshot(0, 2, 2, bitmap(8), {}), 1.0)
    claims = [claim for some in core.plan().commit.values() for claim in some]
    assert [claim.task for claim in claims] == ["t0", "t1", "t2", "t3", "t4"]
