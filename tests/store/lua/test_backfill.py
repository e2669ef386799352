"""The leader books nodes by what the server has, tells it with the ticks, and
schedulers read it.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from parsync_redis.inspect.explanation import explain_task
from parsync_redis.inspect.waiting import explain_tasks
from parsync_redis.model.booking import Booking
from parsync_redis.model.kind import Kind
from parsync_redis.model.needs import Resources
from parsync_redis.model.options import Strategy
from parsync_redis.model.times import RunTimes, field_of
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.large_kinds import LargeKind
from parsync_redis.scheduler.leader.backfill import BackfillDuty
from parsync_redis.scheduler.leader.black_holes import BlackHoleDuty
from parsync_redis.scheduler.process.booking_reader import BookingReader
from parsync_redis.scheduler.process.membership import Membership
from parsync_redis.store import Store
from parsync_redis.store.cluster import ClusterConfig
from parsync_redis.store.reads.views import read_booked, read_node_views
from parsync_redis.store.repair.lost_leases import now_ms
from tests.kit.driver import Driver
from tests.kit.waiting import until

LEASE_S = 10.0
BIG = "big slots=2"


def learn(drive: Driver, name: str, ms: float) -> None:
    times = RunTimes()
    times.add(ms)
    drive.run(drive.commands.learn_times({name: times}))


class Waiting:
    """Two slots of n1 are held by `work`, which runs 60 s; a task of `big`, which needs both,
    waits.
    """

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        drive.run(
            drive.commands.configure(
                {"partitions": 1, "shards": 1, "gap_ms": 500, "lease_ms": 10000}
            )
        )
        drive.node()
        for slot in (0, 1):
            drive.submit(f"w{slot}")
            place = drive.held(f"w{slot}", drive.take()[f"w{slot}"], slots=(slot,))
            assert drive.start(place) == "ok"
        drive.submit("b", {"slots": 2}, name="big")
        self.large: Sequence[LargeKind] = [LargeKind(BIG, (0,), int(drive.kinds()[BIG].split()[1]))]
        self.duty = BackfillDuty(drive.store, LEASE_S, lambda: self.large)

    def wait_s(self, seconds: int) -> tuple[Booking, ...]:
        """Let the leader look once a second; return the bookings."""
        for second in range(seconds + 1):
            self.duty.work(float(second))
        return read_booked(self.drive.store)


@pytest.fixture
def waits(drive: Driver) -> Waiting:
    return Waiting(drive)


def test_a_node_is_booked_for_a_kind_that_has_waited_long(drive: Driver, waits: Waiting) -> None:
    learn(drive, "work", 8000.0)
    assert waits.wait_s(1) == ()
    assert not waits.duty.booked
    (booking,) = waits.wait_s(5)
    assert (booking.node, booking.kind, booking.task) == ("n1", BIG, "b")
    assert booking.from_ms - drive.lease("n1/1").since_ms == 8000
    assert waits.duty.booked
    assert 0 < drive.store.client.ttl(drive.keys.shared("bookings")) <= LEASE_S


def test_run_times_on_nodes_of_its_class_count_more(drive: Driver, waits: Waiting) -> None:
    drive.node(labels={"zone": "a"}, known_inc=1)
    learn(drive, "work", 60_000.0)
    learn(drive, "work zone:a", 4000.0)
    (booking,) = waits.wait_s(4)
    assert booking.from_ms - drive.lease("n1/1").since_ms == 4000


@pytest.mark.parametrize(("big_ms", "nodes"), [(5000.0, ["n1"]), (600_000.0, []), (None, [])])
def test_a_node_with_a_notice_is_booked_for_tasks_that_end_before_it_leaves(
    drive: Driver, waits: Waiting, big_ms: float | None, nodes: list[str]
) -> None:
    learn(drive, "work", 4000.0)
    if big_ms is not None:
        learn(drive, "big", big_ms)
    leaves_ms = drive.lease("n1/1").since_ms + 300_000
    drive.run(drive.commands.set_node(0, "n1", "until", note=str(leaves_ms)))
    assert [booking.node for booking in waits.wait_s(5)] == nodes


def test_no_node_is_booked_while_the_ends_of_its_runs_are_unknown(
    drive: Driver, waits: Waiting
) -> None:
    assert waits.wait_s(9) == ()


def test_a_booking_ends_when_its_kind_waits_no_more(drive: Driver, waits: Waiting) -> None:
    learn(drive, "work", 4000.0)
    assert waits.wait_s(5)
    waits.large = ()
    waits.duty.work(6.0)
    assert (read_booked(drive.store), waits.duty.booked) == ((), False)


def test_each_task_of_a_kind_keeps_a_booking_until_a_task_gets_its_node(
    drive: Driver, waits: Waiting
) -> None:
    """The second task waits for a node of its own, not for the end of the first task."""
    learn(drive, "work", 4000.0)
    learn(drive, "big", 5000.0)
    inc = drive.node("n2")
    drive.submit("b2", {"slots": 2}, name="big")
    (booking,) = waits.wait_s(5)
    assert (booking.node, booking.task) == ("n2", "b"), "it is free; of two nodes one may be booked"
    place = drive.held("b", drive.take(limit=1)["b"], node="n2", slots=(0, 1), inc=inc)
    assert drive.start(place) == "ok"
    waits.duty.work(6.0)
    (booking,) = read_booked(drive.store)
    assert (booking.node, booking.task) == ("n1", "b2")


def tenants_large(waits: Waiting, tenant: str, turns: tuple[int, ...]) -> LargeKind:
    """Let two large tasks of a tenant wait; return the kind, whose tasks have these turns."""
    kind = Kind("big", "slots=2", "", tenant).text
    for number in (1, 2):
        waits.drive.submit(f"{tenant}{number}", {"slots": 2, "tenant": tenant}, name="big")
    first = int(waits.drive.kinds()[kind].split()[1])
    return LargeKind(kind, (0,), first, turns)


def test_tasks_of_tenants_get_bookings_in_their_turns(drive: Driver, waits: Waiting) -> None:
    """Older tasks without a turn get none."""
    learn(drive, "work", 4000.0)
    for number in range(2, 9):
        drive.node(f"n{number}")
    waits.large = [
        tenants_large(waits, "l", (1,)),
        tenants_large(waits, "m", (0,)),
        LargeKind(BIG, (0,), 1, ()),
    ]
    assert {booking.task for booking in waits.wait_s(5)} == {"m1", "l1"}
    waits.large = [waits.large[0]]
    waits.duty.work(6.0)
    assert [booking.task for booking in read_booked(drive.store)] == ["l1"], "m has no turn now"
    waits.large = [waits.large[0]._replace(turn_numbers=(0, 1, 2))]
    waits.duty.work(7.0)
    assert {booking.task for booking in read_booked(drive.store)} == {"l1", "l2"}
    drive.run(drive.commands.set_node(0, "n8", "drain"))
    for number in range(4, 8):
        drive.run(drive.commands.set_node(0, f"n{number}", "drain"))
    waits.duty.work(8.0)
    assert len(read_booked(drive.store)) == 1, "of three open nodes one may be booked"


def test_a_node_that_a_large_task_of_the_tenant_holds_is_not_booked_for_the_tenant(
    drive: Driver, waits: Waiting
) -> None:
    """When that task ends, the turn of its tenant gives the node to the next one."""
    learn(drive, "work", 60_000.0)
    learn(drive, "big", 1000.0)
    inc = drive.node("n2")
    kind = tenants_large(waits, "l", (0,))
    place = drive.held("l1", drive.take(limit=1)["l1"], node="n2", slots=(0, 1), inc=inc)
    other = tenants_large(waits, "m", (0,))
    assert drive.start(place) == "ok"
    waits.large = [kind]
    assert [booking.node for booking in waits.wait_s(40)] == ["n1"], "n2 has room earlier"
    waits.large = [other]
    for second in range(41, 45):
        waits.duty.work(float(second))
    assert [booking.node for booking in read_booked(drive.store)] == ["n2"]


def test_a_kind_that_could_not_be_read_is_asked_for_again(drive: Driver, waits: Waiting) -> None:
    learn(drive, "work", 4000.0)
    key = drive.keys.queue("tasks", drive.keys.shard_of("w0"))
    record = cast(bytes, drive.store.client.hget(key, "w0"))
    drive.store.client.hdel(key, "w0")
    found = waits.wait_s(5)
    drive.store.client.hset(key, "w0", record)
    assert found == (), "nobody knows how long w0 runs"
    waits.duty.work(6.0)
    assert [booking.node for booking in read_booked(drive.store)] == ["n1"]


def test_a_new_leader_goes_on_with_the_bookings_of_the_one_before(
    drive: Driver, waits: Waiting
) -> None:
    learn(drive, "work", 4000.0)
    (before,) = waits.wait_s(5)
    other = BackfillDuty(drive.store, LEASE_S, lambda: waits.large)
    other.work(0.0)
    assert read_booked(drive.store) == (before,)


def test_of_a_drained_node_nothing_is_booked(drive: Driver, waits: Waiting) -> None:
    learn(drive, "work", 4000.0)
    assert waits.wait_s(5)
    drive.run(drive.commands.set_node(0, "n1", "drain"))
    waits.duty.work(6.0)
    assert read_booked(drive.store) == ()


def test_a_scheduler_reads_bookings_and_run_times_when_a_tick_says_so(
    drive: Driver, waits: Waiting
) -> None:
    learn(drive, "work", 8000.0)
    waits.wait_s(5)
    drive.submit("w3")
    core = Core("s2", 1, Strategy.QUALITY, 1.5, np.random.default_rng(1))
    core.on_nodes(0, drive.store.nodes(0).values(), 1)
    core.on_took(drive.run(drive.commands.take("s2")))
    backfill = BookingReader(drive.store, core, 0.5, LEASE_S)
    backfill.work(0.0)
    assert not core.queue.barred.bookings, "no tick has said that there are any"
    backfill.heard = True
    backfill.work(0.5)
    work = Kind.of("work slots=1")
    assert core.queue.barred.of(work) == {"n1"}, "it runs too long"
    assert core.queue.barred.of(Kind.of(BIG)) == frozenset()
    drive.run(
        drive.commands.learn_times(
            {"work": RunTimes(10_000, 1e4, RunTimes.of("1 1.000 9:900").bins)}
        )
    )
    backfill.work(1.0)
    assert core.queue.barred.of(work) == {"n1"}, "it reads a run time once in a lease"
    backfill.work(LEASE_S + 1)
    assert core.queue.barred.of(work) == frozenset()
    backfill.heard = False
    backfill.work(LEASE_S + 2)
    assert not core.queue.barred.bookings


def test_a_scheduler_judges_a_node_with_devices_that_leaves(drive: Driver) -> None:
    offer = Resources.of(2, devices={"gpu": ["0", "1"]})
    drive.run(drive.commands.register_node(0, "n1", 0, 1.0, offer.text))
    leaves_ms = now_ms(drive.store) + 100_000
    drive.run(drive.commands.set_node(0, "n1", "until", 1, str(leaves_ms)))
    drive.submit("w1")
    core = Core("s2", 1, Strategy.QUALITY, 1.5, np.random.default_rng(1))
    core.on_nodes(0, drive.store.nodes(0).values(), 1)
    core.on_took(drive.run(drive.commands.take("s2")))
    core.plan()
    backfill = BookingReader(drive.store, core, 0.5, LEASE_S)
    barred = list[frozenset[str]]()
    for number, ms in enumerate((0.0, 1000.0, 3_600_000.0)):
        if ms:
            learn(drive, field_of("work", offer), ms)
        backfill.work(number * (LEASE_S + 1))
        barred.append(core.queue.barred.of(Kind.of("work slots=1")))
    assert barred == [{"n1"}, frozenset(), {"n1"}], "unknown, short and long run times there"


def test_a_scheduler_finds_the_large_kinds_only_when_the_leader_asks(drive: Driver) -> None:
    drive.run(
        drive.commands.configure({"partitions": 1, "shards": 1, "gap_ms": 500, "lease_ms": 10000})
    )
    drive.node(slots=1)
    core = Core("s2", 1, Strategy.QUALITY, 1.5, np.random.default_rng(1))
    core.on_nodes(0, drive.store.nodes(0).values(), 1)
    drive.submit("b1", {"slots": 4, "wait_for_capacity": True}, name="big")
    core.on_took(drive.run(drive.commands.take("s2")))
    core.on_wake()
    core.plan()
    backfill = BookingReader(drive.store, core, 0.5, LEASE_S)
    backfill.work(0.0)
    assert backfill.large() == (), "nobody has asked before"
    backfill.work(0.5)
    assert [kind.kind for kind in backfill.large()] == ["big slots=4"]


def test_schedulers_and_people_learn_which_names_a_node_holds_back(drive: Driver) -> None:
    drive.run(
        drive.commands.configure({"partitions": 1, "shards": 1, "gap_ms": 500, "lease_ms": 10000})
    )
    inc = drive.node()
    core = Core("s2", 1, Strategy.QUALITY, 1.5, np.random.default_rng(1))
    core.on_nodes(0, drive.store.nodes(0).values(), 1)
    backfill = BookingReader(drive.store, core, 0.5, LEASE_S)
    duty = BlackHoleDuty(drive.store, 1, LEASE_S)
    backfill.heard = True
    found = []
    for of, held_ms in ((inc, 60_000), (inc, 0), (inc + 1, 60_000)):
        drive.run(
            drive.commands.report_failures(0, "n1", of, 0, False, [("work", 2, 2, 2, held_ms)])
        )
        duty.work()
        backfill.work(1.0)
        found.append((duty.held, core.queue.barred.of(Kind.of("work slots=1"))))
        assert core.queue.barred.of(Kind.of("other slots=1")) == frozenset()
    assert found == [(True, {"n1"}), (False, frozenset()), (True, frozenset())], (
        "n1 has no such incarnation"
    )


def test_an_explanation_says_that_a_node_holds_a_name_back(store: Store) -> None:
    drive = Driver(store)
    Waiting(drive)
    drive.run(drive.commands.report_failures(0, "n1", 1, 0, False, [("work", 2, 2, 2, 60_000)]))
    drive.submit("w3")
    (some,) = explain_task(drive.store, "w3").classes
    assert [(one.rule, one.why) for one in some.obstacles] == [
        ("held", "holds such tasks back, because they fail there")
    ]


def test_an_explanation_says_for_whom_a_node_is_reserved(store: Store) -> None:
    drive = Driver(store)
    waits = Waiting(drive)
    learn(drive, "work", 60_000.0)
    waits.wait_s(31)
    drive.submit("w3")
    (some,) = explain_task(drive.store, "w3").classes
    assert [(one.rule, one.why) for one in some.obstacles] == [
        ("reserved", "is reserved for task b (big slots=2)")
    ]
    (view,) = read_node_views(drive.store)
    assert view.reserved == "task b (big slots=2)"
    (some,) = explain_task(drive.store, "b").classes
    assert [one.rule for one in some.obstacles] == ["free slots"]


def test_an_explanation_says_for_which_tenants_task_a_node_is_reserved(store: Store) -> None:
    """An equal task of another tenant may not go there, and is told so."""
    drive = Driver(store)
    waits = Waiting(drive)
    learn(drive, "work", 4000.0)
    waits.large = [tenants_large(waits, "l", (0,))]
    tenants_large(waits, "m", ())
    assert waits.wait_s(5)
    reserved = "is reserved for task l1 (big slots=2 for l)"
    (some,) = explain_task(drive.store, "m1").classes
    assert [one.why for one in some.obstacles] == [reserved]
    (some,) = explain_task(drive.store, "l2").classes
    assert [one.rule for one in some.obstacles] == ["free slots"]
    tasks = explain_tasks(drive.store, drive.store.statuses(["l2", "m1"]))
    assert [reserved in task.why for task in tasks] == [False, True]
    (view,) = read_node_views(drive.store)
    assert view.reserved == "task l1 (big slots=2 for l)"


def test_the_leader_tells_with_its_ticks_that_nodes_are_booked(store: Store) -> None:
    drive = Driver(store)
    waits = Waiting(drive)
    learn(drive, "work", 60_000.0)
    drive.run(drive.commands.book([Booking("n1", BIG, "b", 1)], 60))
    config = ClusterConfig(1, 0.1, LEASE_S)
    member = Membership(store.with_own_connections(), "s1", config, dict, large=lambda: waits.large)
    member.enter()
    member.start()
    try:
        until(lambda: member.leads and member._work.booked, "the leader books n1 again")
        messages = drive.heard(lambda: member.tick(), drive.keys.tick)
        assert any(text.endswith(b" booked") for _, text in messages)
    finally:
        member.stop()
        member.store.disconnect()
