"""Notices of nodes that leave: where tasks may go until then, and what people read."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsync_redis.errors import InvalidInput
from parsync_redis.model.booking import Booking
from parsync_redis.model.human import read_future
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import TRANSIENT_LABEL, Resources
from parsync_redis.model.node import Notice, leaving_time
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.times import LearntTimes
from parsync_redis.placement.backfill import by_lack
from parsync_redis.placement.facts import NodeFacts
from parsync_redis.placement.now import LEAVES_NOW, before_they_end, leaves_in
from parsync_redis.placement.preferences.marks import StablePreference
from parsync_redis.placement.ranked_nodes import nodes_now
from parsync_redis.placement.reasons import explain_waiting, reason_class
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.reservations import Bar, BarredNodes
from tests.kit.core_rig import Queue, claims_of, make, node, reasons, see, waiting

NOW_MS = 1_795_806_395_000
LEASE_S = 10.0
NOTICE = Notice(NOW_MS + 30_000)


def core_with_notice(notice: Notice | None = NOTICE) -> Core:
    """Return a core that has read n1, which leaves, and n2, with three slots each."""
    core = make(2)
    see(core, 0, [replace(node("n1", 3), notice=notice)], 3)
    see(core, 1, [node("n2", 3)], 3)
    return core


def judged(run_ms: float | None, notice: Notice = NOTICE) -> BarredNodes:
    return BarredNodes((), lambda *_: run_ms, NOW_MS, None, {"n1": notice}, LEASE_S)


def test_run_times_are_looked_up_once_for_each_name_and_node_class() -> None:
    notices = {f"n{index}": Notice(NOW_MS + 1000 * index) for index in range(100)}
    classes = {node: "gpu:v100" if node < "n5" else "gpu:k80" for node in notices}
    asked = list[tuple[str, str]]()

    def p95_ms(name: str, node_class: str) -> float | None:
        asked.append((name, node_class))
        return {"gpu:v100": 20_000.0}.get(node_class)

    barred = BarredNodes((), p95_ms, NOW_MS, None, notices, LEASE_S, classes)
    assert not asked
    goes = {node for node in notices if node not in barred.of(Kind("work", "slots=1"))}
    expected = {
        node
        for node, notice in notices.items()
        if classes[node] == "gpu:v100" and notice.end_ms(LEASE_S) >= NOW_MS + 20_000
    }
    assert goes == expected
    assert expected
    assert sorted(asked) == [("work", "gpu:k80"), ("work", "gpu:v100")]


def placed(core: Core, tasks: int = 6) -> Counter[str]:
    """Return how many of these tasks each node gets."""
    claims = claims_of(waiting(core, tasks).turn())
    return Counter(claim.partition("/")[0] for claim in claims)


def test_a_node_with_a_new_notice_gets_nothing_before_its_time_is_judged() -> None:
    core = core_with_notice()
    assert placed(core) == {"n2": 3}


@pytest.mark.parametrize(
    ("run_ms", "tasks"), [(None, 0), (22_499.0, 3), (22_500.0, 3), (22_501.0, 0)]
)
def test_only_tasks_that_end_before_go_to_a_node_that_leaves(
    run_ms: float | None, tasks: int
) -> None:
    """The runs that remain are ended 0.55 leases and 2 s before the node leaves."""
    core = core_with_notice()
    core.on_barred(judged(run_ms))
    assert placed(core)["n1"] == tasks


def test_a_reason_names_what_bars_the_node_and_not_its_notice_far_ahead() -> None:
    core = make()
    see(core, 0, [replace(node("n1", 3), notice=NOTICE)], 3)

    def p95_ms(name: str, node_class: str) -> float | None:
        return 1.0 if name == "work" else None

    holds = {"work": frozenset({"n1"})}
    notices = {"n1": NOTICE}
    held_back = BarredNodes((), p95_ms, NOW_MS, holds, notices, LEASE_S)
    assert held_back.bars(Kind("work", "slots=1")) == {"n1": Bar(held_back=True)}
    needs = Resources.of(1)
    explain = core.view.explain
    assert explain(needs, None, held_back.bars(Kind("work", "slots=1"))) == (
        "only node n1 fits: it holds such tasks back, because they fail there"
    )
    unknown = BarredNodes((), lambda name, node_class: None, NOW_MS, holds, notices, LEASE_S)
    assert "before such tasks end" in explain(needs, None, unknown.bars(Kind("work", "slots=1")))
    assert unknown.bars(Kind("other", "slots=1")).keys() == {"n1"}
    booking = Booking("n1", "big slots=4", "t", NOW_MS)
    booked = BarredNodes([booking], p95_ms, NOW_MS, holds, notices, LEASE_S)
    assert booked.bars(Kind("work", "slots=1")) == {"n1": Bar(booked="task t (big slots=4)")}
    new = BarredNodes()
    new.see(notices)
    assert new.bars(Kind("work", "slots=1"))["n1"].leaves, "its time is not judged yet"


def test_a_notice_that_changes_is_judged_anew() -> None:
    core = core_with_notice()
    core.on_barred(judged(1.0))
    see(core, 0, [replace(node("n1", 3), notice=Notice(NOW_MS + 5_000))], 3, version=2)
    assert placed(core) == {"n2": 3}


def test_a_node_whose_notice_is_withdrawn_takes_tasks_again() -> None:
    core = core_with_notice()
    core.on_barred(judged(None))
    see(core, 0, [node("n1", 3)], 3, version=2)
    core.on_barred(BarredNodes())
    assert placed(core) == {"n1": 3, "n2": 3}


def test_a_scheduler_writes_when_the_node_leaves() -> None:
    core = make()
    see(core, 0, [replace(node("n1", 3), notice=NOTICE)], 3)
    core.on_barred(judged(None))
    waiting(core, 1)
    core.on_tick(0)
    ((_, why),) = reasons(core.plan())
    assert why == f"only node n1 fits: it {before_they_end(NOTICE.at_ms)}"
    assert reason_class(why) == "leaving"


@given(st.integers(0, 10**15 - 1), st.booleans(), st.booleans())
def test_the_text_of_a_notice_is_read_as_it_was_written(at_ms: int, own: bool, over: bool) -> None:
    notice = Notice(at_ms, own, over)
    assert Notice.of(notice.text) == notice


def facts(leaves: str) -> NodeFacts:
    return NodeFacts("n4", "up", False, Resources.of(2), 2, leaves=leaves)


def test_people_read_how_long_the_node_stays_and_how_long_such_tasks_take() -> None:
    sentence = leaves_in(NOW_MS + 180_000, 540_000.0, NOW_MS)
    why = explain_waiting(Resources.needed(), [facts(sentence)], [])
    assert why == "only node n4 fits: it leaves in 3m: such tasks take up to 9m"
    unknown = leaves_in(NOW_MS + 180_000, None, NOW_MS)
    assert unknown == "leaves in 3m: how long such tasks take is not known yet"
    assert reason_class(explain_waiting(Resources.needed(), [facts(LEAVES_NOW)])) == "leaving"


def test_no_node_that_leaves_is_booked_for_a_large_task() -> None:
    staying = facts("")
    assert by_lack(Resources.needed(2), [facts(LEAVES_NOW)]) == []
    assert by_lack(Resources.needed(2), [staying]) == [staying]


@pytest.mark.parametrize(
    ("text", "ahead_s"), [("30", 30), ("30s", 30), ("+1.5m", 90), ("in 10m", 600), ("2h", 7200)]
)
def test_a_time_ahead_counts_from_now(text: str, ahead_s: int) -> None:
    assert read_future("at", text, NOW_MS) == NOW_MS + ahead_s * 1000


def test_a_time_of_day_is_the_next_one_and_a_date_is_itself() -> None:
    assert 0 < read_future("at", "14:30", NOW_MS) - NOW_MS <= 86_400_000
    assert read_future("at", "2026-11-28T14:30+01:00", NOW_MS) == 1_795_872_600_000


@pytest.mark.parametrize("text", ["", "soon", "-5s", "10 minutes", "25:00"])
def test_a_text_that_is_no_time_ahead_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="it must be a time from now"):
        read_future("at", text, NOW_MS)


@pytest.mark.parametrize("leaves_ms", [NOW_MS, NOW_MS - 1, NOW_MS + 367 * 86_400_000])
def test_a_node_leaves_within_a_year(leaves_ms: int) -> None:
    with pytest.raises(InvalidInput, match="a node cannot leave"):
        leaving_time(leaves_ms, NOW_MS)


# -- transient nodes -------------------------------------------------------------------------------


def test_a_task_that_must_not_be_interrupted_goes_to_no_transient_node() -> None:
    core = make(2)
    see(core, 0, [node("spot", 3, transient="yes")], 3)
    see(core, 1, [node("own", 3)], 3)
    needs = TaskOptions.of({"interruptible": False}).needs
    assert needs.text == "slots=1 transient:!*"
    claims = claims_of(waiting(core, 6, needs.text).turn())
    assert Counter(claim.partition("/")[0] for claim in claims) == {"own": 3}


def test_the_condition_is_there_once_however_it_is_said() -> None:
    required = {"require": {TRANSIENT_LABEL: {"exists": False}}, "interruptible": False}
    assert TaskOptions.of(required).needs == TaskOptions.of({"interruptible": False}).needs
    assert TaskOptions.of({"interruptible": True}).needs == TaskOptions.of(None).needs


def stable_nodes(tasks: int) -> Counter[str]:
    """Return how many of these tasks, which prefer stable nodes, each of three nodes gets."""
    core = make(3)
    see(core, 0, [node("spot", 2, transient="yes")], 2)
    see(core, 1, [replace(node("n1", 2), notice=NOTICE)], 2)
    see(core, 2, [node("own", 2)], 2)
    core.on_barred(judged(1.0))
    queue = Queue(core).add(Kind("work", "slots=1", prefer="stable").text, tasks)
    queue.tell()
    return Counter(claim.partition("/")[0] for claim in claims_of(queue.turn()))


def test_a_task_that_prefers_stable_nodes_goes_to_transient_nodes_and_those_that_leave_last() -> (
    None
):
    assert stable_nodes(6) == {"spot": 2, "n1": 2, "own": 2}
    assert stable_nodes(2) == {"own": 2}


def test_people_are_told_of_the_same_order_as_schedulers_use() -> None:
    nodes = [facts(""), replace(facts(""), name="n5", has_notice=True)]
    needs = Resources.needed()
    buckets = StablePreference().buckets(nodes_now(nodes, needs, LearntTimes(), {}), needs)
    assert buckets.tolist() == [0, 1]
