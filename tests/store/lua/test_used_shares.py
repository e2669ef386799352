"""Used shares: `note_shares`, the leader's duty, what schedulers and people read, and damage."""

from typing import Any

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.inspect.explanation import explain_task
from parsync_redis.inspect.tenancy import read_tenants
from parsync_redis.model.limits import MAX_BATCH
from parsync_redis.model.options import TaskOptions
from parsync_redis.model.policy_reader import read_policy
from parsync_redis.model.task import Submission
from parsync_redis.model.times import MIN_CLASS_RUNS, RunTimes
from parsync_redis.model.used_share import MAX_HELD_MS, SharesByTenant, UsedShare
from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.scheduler.leader.used_shares import UsedShareDuty
from parsync_redis.scheduler.process import run_time_reader
from parsync_redis.scheduler.process.run_time_reader import FastReader, RunTimeReader
from parsync_redis.store import Store
from parsync_redis.store.repair.lost_leases import now_ms
from parsync_redis.store.repair.repair_all import repair_all
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit
from tests.store.lua.test_tenants import Scheduled

HALF_LIFE_S = 1800.0
HALF_LIFE_MS = 1_800_000
FAIR = '[tenants."*"]\nhalf_life = "30m"\n'


def key_of(drive: Driver) -> str:
    return drive.keys.shared("shares")


def noted(drive: Driver) -> dict[str, UsedShare]:
    """Return what was noted of each tenant; every field must be readable."""
    shares = SharesByTenant.of(drive.store.read("hgetall", key_of(drive)))
    assert not shares.unreadable
    return dict(shares.noted)


def let_pass(drive: Driver, ms: int) -> None:
    """Let what is noted be so much older."""
    for tenant, share in noted(drive).items():
        older = share._replace(at_ms=share.at_ms - ms)
        drive.store.client.hset(key_of(drive), tenant, older.text)


def note(drive: Driver, *rows: tuple[str, float, float], keep_s: int = 0) -> int:
    """Note (tenant, share, half-life) without work."""
    return drive.run(drive.commands.note_shares([(*row, 1.0) for row in rows], keep_s))


def test_the_script_computes_the_decay_as_the_model_does(drive: Driver) -> None:
    for past_ms in (0, 7, MAX_HELD_MS, MAX_HELD_MS + 1, HALF_LIFE_MS, 40 * HALF_LIFE_MS):
        before = UsedShare(0.4, 0.25, now_ms(drive.store) - past_ms)
        drive.store.client.hset(key_of(drive), "acme", before.text)
        assert note(drive, ("acme", 0.5, HALF_LIFE_S)) == 1
        after = noted(drive)["acme"]
        assert after.share == 0.5
        assert after.used == pytest.approx(before.at(after.at_ms, HALF_LIFE_S), abs=1e-11)


def test_repeated_calls_of_two_leaders_count_no_time_twice(drive: Driver) -> None:
    note(drive, ("acme", 0.5, HALF_LIFE_S))
    began_ms = noted(drive)["acme"].at_ms
    let_pass(drive, 30_000)
    for _ in range(5):
        note(drive, ("acme", 0.5, HALF_LIFE_S))
    after = noted(drive)["acme"]
    once = UsedShare(0.0, 0.5, began_ms - 30_000).at(after.at_ms, HALF_LIFE_S)
    assert after.used == pytest.approx(once, abs=1e-9)


def test_a_tenant_is_kept_while_it_holds_or_has_used_something(drive: Driver) -> None:
    assert note(drive, ("acme", 0.0, HALF_LIFE_S)) == 0
    assert note(drive, ("acme", 0.5, HALF_LIFE_S), ("-", 0.25, HALF_LIFE_S)) == 2
    let_pass(drive, 30_000)
    assert note(drive, ("acme", 0.0, HALF_LIFE_S)) == 2
    let_pass(drive, 50 * HALF_LIFE_MS)
    assert note(drive, ("acme", 0.0, HALF_LIFE_S)) == 1, "it has faded"
    assert note(drive, ("-", 0.25, 0.0)) == 0, "a half-life of 0 forgets it"


def test_the_key_lapses_unless_it_is_noted_again(drive: Driver) -> None:
    client: Any = drive.store.client
    note(drive, ("acme", 0.5, HALF_LIFE_S), keep_s=100)
    assert 98 <= client.ttl(key_of(drive)) <= 100
    note(drive, ("acme", 0.5, HALF_LIFE_S))
    assert 98 <= client.ttl(key_of(drive)) <= 100, "0 leaves it as it is"


def test_ten_thousand_tenants_have_a_used_share_and_no_more(drive: Driver) -> None:
    for start in range(0, 11_000, MAX_BATCH):
        rows = [(f"t{n}", 0.5, HALF_LIFE_S) for n in range(start, start + MAX_BATCH)]
        kept = note(drive, *rows)
    assert kept == 10_000
    assert note(drive, ("t0", 0.25, HALF_LIFE_S), ("new", 0.25, HALF_LIFE_S)) == 10_000
    assert noted(drive)["t0"].share == 0.25


@pytest.mark.parametrize("share", ["x", "2.0", "-0.5", "1", "0.5 "])
def test_a_share_that_is_no_part_of_the_nodes_is_refused(drive: Driver, share: str) -> None:
    call = drive.commands.note_shares([("acme", 0.5, 60.0, 1.0)])
    call = call._replace(args=[share if arg == "0.500000000" else arg for arg in call.args])
    with pytest.raises(BrokenContract, match="share is a part from 0 to 1"):
        drive.run(call)
    assert not drive.store.client.exists(key_of(drive))


def test_work_is_kept_without_a_half_life_and_the_work_1_is_not(drive: Driver) -> None:
    rows = [("a", 0.5, 0.0, 0.75), ("b", 0.5, 0.0, 1.0), ("c", 0.5, 60.0, 12.5)]
    assert drive.run(drive.commands.note_shares(rows)) == 2
    shares = noted(drive)
    assert {name: share.work for name, share in shares.items()} == {"a": 0.75, "c": 12.5}
    assert shares["a"].used == 0.0
    assert drive.run(drive.commands.note_shares([("a", 0.5, 0.0, 1.0)])) == 1


@pytest.mark.parametrize("work", ["x", "-1.000000", "1", "10000.000000", "1.0"])
def test_a_work_that_is_no_number_is_refused(drive: Driver, work: str) -> None:
    call = drive.commands.note_shares([("acme", 0.5, 60.0, 2.0)])
    call = call._replace(args=[work if arg == "2.000000" else arg for arg in call.args])
    with pytest.raises(BrokenContract, match="work is a number with six decimals"):
        drive.run(call)
    assert not drive.store.client.exists(key_of(drive))


# -- the leader, schedulers and people -------------------------------------------------------------


@pytest.fixture
def scheduled(drive: Driver) -> Scheduled:
    """Return a scheduler with a node of 10 slots."""
    return Scheduled(drive)


def run_tasks(scheduled: Scheduled, count: int, tenant: str) -> None:
    """Let tasks of a tenant run."""
    scheduled.submit(count, tenant)
    assert len(scheduled.turns()) == count
    for place in scheduled.core.won.unconfirmed:
        scheduled.drive.start(place)


def read_policy_and_shares(scheduled: Scheduled) -> None:
    scheduled.core.on_took(scheduled.drive.run(scheduled.drive.commands.take("s1")))
    scheduled.policy.work()
    scheduled.policy.read_shares()


def test_without_a_half_life_nothing_is_read_and_nothing_is_written(store: Store) -> None:
    scheduled = Scheduled(Driver(store))
    scheduled.apply("[tenants.a]\nweight = 2\n")
    run_tasks(scheduled, 4, "a")
    drive = scheduled.drive
    client: Any = drive.store.client
    with client.monitor() as monitor:
        UsedShareDuty(drive.store, 10.0).work(read_policy("[tenants.a]\nweight = 2\n"), 0.0)
        scheduled.submit(1, "b")
        read_policy_and_shares(scheduled)
        read_tenants(drive.store)
        client.echo("over")
        commands = []
        while "over" not in (command := monitor.next_command()["command"]):
            commands.append(command)
    assert not [command for command in commands if "shares" in command]
    assert any("policy" in command for command in commands), "the monitor hears this client"
    assert not client.exists(key_of(drive))


BY_WORK = '[tenants]\ncount = "work"\n'


def learn(drive: Driver, name: str, **by_gpu: float) -> None:
    """Let nodes learn how long (ms) tasks of a name run on nodes of the label `gpu`."""
    times: dict[str, RunTimes] = {}
    for gpu, ms in by_gpu.items():
        for field in (name, f"{name} gpu:{gpu}"):
            for _ in range(MIN_CLASS_RUNS):
                times.setdefault(field, RunTimes()).add(ms)
    drive.run(drive.commands.learn_times(times))


def test_the_leader_notes_the_work_of_slots_and_people_and_schedulers_go_by_it(
    store: Store,
) -> None:
    drive = Driver(store)
    scheduled = Scheduled(drive)
    drive.node("fast", slots=10, labels={"gpu": "v100"})
    drive.node("slow", slots=10, labels={"gpu": "k80"})
    scheduled.core.on_nodes(0, store.nodes(0).values(), 1)
    scheduled.apply(BY_WORK)
    learn(drive, "work", v100=100.0, k80=300.0)
    for tenant, gpu in (("a", "v100"), ("b", "k80")):
        options = TaskOptions.of({"tenant": tenant, "require": {"gpu": gpu}})
        tasks = [Submission(f"{tenant}{n}", "work", b"", options) for n in range(3)]
        assert set(drive.run(drive.commands.submit(tasks))) == {"submitted"}
    assert len(scheduled.turns()) == 6
    duty = UsedShareDuty(store, 10.0)
    duty.work(read_policy(BY_WORK), 0.0)
    shares = noted(drive)
    assert {name: shares[name].work for name in "ab"} == pytest.approx({"a": 1.5, "b": 0.5})
    assert shares["a"].share == pytest.approx(0.15), "3 of 30 slots, at one and a half"
    assert [tenant.share for tenant in read_tenants(store)] == pytest.approx([0.15, 0.05])
    scheduled.submit(1, "c")
    read_policy_and_shares(scheduled)
    assert scheduled.core.queue.work == pytest.approx({"a": 1.5, "a/-": 1.5, "b": 0.5, "b/-": 0.5})
    duty.work(read_policy(""), 0.0)
    assert noted(drive).keys() == shares.keys(), "nothing is written without the policy's wish"


def test_a_scheduler_reads_the_run_times_of_names_that_prefer_fast_nodes_only(
    store: Store,
) -> None:
    drive = Driver(store)
    scheduled = Scheduled(drive)
    drive.node("fast", slots=2, labels={"gpu": "v100"})
    drive.node("slow", slots=2, labels={"gpu": "k80"})
    core = scheduled.core
    core.on_nodes(0, store.nodes(0).values(), 1)
    learn(drive, "work", v100=100.0, k80=300.0)
    learn(drive, "other", v100=100.0, k80=300.0)
    reader = FastReader(store, core, 10.0)
    reader.work(0.0)
    assert core.view.run_times.of("work") == {}, "nobody had asked for it"
    reader.work(0.5)
    assert core.view.run_times.of("work") == {"gpu:v100": 100.0, "gpu:k80": 300.0}
    learn(drive, "work", v100=300.0, k80=300.0)
    reader.work(1.0)
    assert core.view.run_times.of("work")["gpu:v100"] == 100.0, "it is read once in a lease"
    reader.work(11.0)
    assert core.view.run_times.of("work")["gpu:v100"] == 200.0
    assert core.view.run_times.of("other") == {}
    store.client.delete(drive.keys.shared("times"))
    store.client.set(drive.keys.shared("times"), "x")
    reader.work(22.0)
    assert core.view.run_times.of("work")["gpu:v100"] == 200.0, "a damaged key changes nothing"
    store.client.delete(drive.keys.shared("times"))


def test_with_very_many_node_classes_the_run_times_of_the_name_asked_last_are_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_time_reader, "MAX_FIELDS", 4)
    drive = Driver(store)
    core = Scheduled(drive).core
    for index in range(5):
        drive.node(f"n{index}", slots=1, labels={"gpu": f"g{index}"})
    core.on_nodes(0, store.nodes(0).values(), 1)
    for name in ("first", "last"):
        learn(drive, name, **{f"g{index}": 100.0 for index in range(5)})
        core.view.run_times.of(name)
    FastReader(store, core, 10.0).work(0.0)
    assert not core.view.run_times.of("first")
    assert 2 <= len(core.view.run_times.of("last")) <= 4
    reader = RunTimeReader(store, 10.0)
    reader.read((f"{name} gpu:g{index}" for name in ("last", "first") for index in range(5)), 0.0)
    assert reader.learnt.keys() == {f"last gpu:g{index}" for index in range(4)}


def test_a_tenant_that_has_used_much_goes_behind_one_that_has_not(store: Store) -> None:
    scheduled = Scheduled(Driver(store))
    scheduled.apply(FAIR)
    drive = scheduled.drive
    run_tasks(scheduled, 4, "a")
    janitor = Janitor(drive.store, 1, 10.0)
    janitor.work(lambda: 0.0, {})
    assert noted(drive)["a"].share == 0.4
    for place in scheduled.core.won.unconfirmed:
        drive.finish(place)
        drive.release(place)
    for _ in range(40):
        let_pass(drive, MAX_HELD_MS)
        note(drive, ("a", 0.4, HALF_LIFE_S))
    janitor.work(lambda: 0.0, {})
    assert noted(drive)["a"].share == 0.0
    used = noted(drive)["a"].used
    assert 0.2 < used < 0.3
    scheduled.submit(20, "c")
    scheduled.submit(20, "b")
    tasks = [f"a-{number}" for number in range(20)]
    for task in tasks:
        drive.submit(task, {"tenant": "a"})
    read_policy_and_shares(scheduled)
    placed = [task[0] for task in scheduled.turns()]
    # until b and c hold as much as a has used
    assert (placed.count("a"), placed.count("b") + placed.count("c")) == (2, 8)
    (view,) = [view for view in read_tenants(drive.store) if view.name == "a"]
    assert view.used_share == pytest.approx(used, abs=0.01)
    waiting = next(task for task in tasks if drive.status(task).state == "waiting")
    why = explain_task(drive.store, waiting).why
    assert "tenant a holds 20% of the nodes and has used 2" in why
    assert "goes first: it holds 40% and has used 0%" in why


def test_the_next_leader_goes_on_where_the_last_one_ended(scheduled: Scheduled) -> None:
    scheduled.apply(FAIR)
    drive = scheduled.drive
    run_tasks(scheduled, 5, "a")
    Janitor(drive.store, 1, 10.0).work(lambda: 0.0, {})
    let_pass(drive, MAX_HELD_MS)
    Janitor(drive.store, 1, 10.0).work(lambda: 0.0, {})
    first = noted(drive)["a"]
    assert first.used == pytest.approx(0.5 * (1 - 2 ** (-MAX_HELD_MS / HALF_LIFE_MS)), abs=1e-4)
    let_pass(drive, HALF_LIFE_MS)
    began = noted(drive)["a"]
    Janitor(drive.store, 1, 10.0).work(lambda: 0.0, {})
    after = noted(drive)["a"]
    assert after.used == pytest.approx(began.at(after.at_ms, HALF_LIFE_S), abs=1e-9)
    assert after.used < 0.03, "the pause counts as a minute of holding, and the past has faded"


def test_a_share_is_of_all_shards(drive: Driver) -> None:
    drive.keys.shards = 3
    drive.run(
        drive.commands.configure({"partitions": 1, "shards": 3, "gap_ms": 500, "lease_ms": 10000})
    )
    drive.node(slots=10)
    for number in range(8):
        drive.submit(f"t{number}", {"tenant": "a"})
    for shard in range(drive.keys.shards):
        drive.run(drive.commands.take("s1", [("work slots=1 for=a", 9)], shard=shard))
    UsedShareDuty(drive.store, 10.0).work(read_policy(FAIR), 0.0)
    assert noted(drive)["a"].share == 0.8


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.unaudited  # the test damages the key
def test_a_field_that_cannot_be_read_is_named_and_forgotten(scheduled: Scheduled) -> None:
    drive = scheduled.drive
    client: Any = drive.store.client
    client.hset(
        key_of(drive), mapping={"a": "y", b"\xff": "y", "b": UsedShare(0.5, 0.0, 1000).text}
    )
    faults = [fault for fault in audit(drive.store) if "shares" in fault]
    assert f"{key_of(drive)} a is not the used share of a tenant: 'y'" in faults
    assert len(faults) == 2
    findings = repair_all(drive.store, dry=True)
    assert [(found.where, found.done) for found in findings] == [
        (f"{key_of(drive)} a", ""),
        (f"{key_of(drive)} \\xff", ""),
    ]
    assert client.hget(key_of(drive), "a") == b"y"
    findings = repair_all(drive.store)
    assert {found.done for found in findings} == {"forgotten: past use counts anew"}
    assert [*noted(drive)] == ["b"]
    assert repair_all(drive.store) == []


@pytest.mark.unaudited  # the test damages the key
def test_a_key_of_another_type_begins_anew_and_the_shares_go_on(scheduled: Scheduled) -> None:
    scheduled.apply(FAIR)
    drive = scheduled.drive
    client: Any = drive.store.client
    run_tasks(scheduled, 4, "a")
    client.set(key_of(drive), "x")
    scheduled.submit(20, "b")
    read_policy_and_shares(scheduled)
    assert len(scheduled.turns()) == 6
    janitor = Janitor(drive.store, 1, 10.0)
    janitor.work(lambda: 0.0, {})
    janitor.work(lambda: 0.0, {})
    assert noted(drive)["a"].share == 0.4


@pytest.mark.unaudited  # the test damages the key
def test_the_leader_notes_anew_what_it_cannot_read(scheduled: Scheduled) -> None:
    scheduled.apply(FAIR)
    drive = scheduled.drive
    run_tasks(scheduled, 4, "a")
    drive.store.client.hset(key_of(drive), mapping={"a": "y", "gone": "y"})
    Janitor(drive.store, 1, 10.0).work(lambda: 0.0, {})
    assert {tenant: (s.used, s.share) for tenant, s in noted(drive).items()} == {"a": (0.0, 0.4)}
