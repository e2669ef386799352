"""Defects that the chaos harness found in schedulers and leaders: late takes, early judgements."""

from dataclasses import replace

from parsync_redis.model.kind import Kind
from parsync_redis.model.replies import Took
from parsync_redis.model.task import Taken
from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.scheduler.process.loop import Scheduler
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import ClusterConfig
from parsync_redis.store.server.server_info import ServerRun
from tests.kit.driver import Driver

CONFIG = ClusterConfig(1, 0.5, 10.0)


class Silence:
    """Listener for a server that has no sockets."""

    def hear(self, timeout_s: float, ticks: bool = True) -> list[list[str]]:
        return []

    def listen(self) -> None:
        pass


def scheduler(store: Store, server: str = "") -> Scheduler:
    made = Scheduler(store, CONFIG, Settings(), "s1")
    made.membership.store.server_runs = lambda keys: dict.fromkeys(keys, ServerRun(server))  # type: ignore[method-assign]
    made.listener = Silence()  # type: ignore[assignment]
    made.enter()
    return made


def hears_of(made: Scheduler, **servers: str) -> None:
    """Have the membership of a scheduler learn which server has what, and let the loop take that in."""
    made.membership.rank = replace(made.membership.rank, servers=servers)
    made._hear(0.0)


def test_a_scheduler_that_comes_back_under_its_name_gives_back_what_the_earlier_process_took(
    fake_store: Store,
) -> None:
    drive = Driver(fake_store)
    drive.taken("a")  # by s1, which is killed then
    scheduler(fake_store).turn()
    assert drive.state("a") == "pending", "s1 lives again: no leader would ever give it back"


def test_a_late_take_that_its_sender_gave_up_is_given_back_within_a_lease(
    fake_store: Store,
) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store)
    made.turn()
    drive.taken("a")  # in the name of s1: its request was on the way when it lost patience
    made.turn()
    assert drive.state("a") == "taken", "it looks once a lease"
    made._duties[1].last_s -= CONFIG.lease_s + 1
    made.turn()
    assert drive.state("a") == "pending"


def test_a_task_in_flight_is_no_stray(fake_store: Store) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store)
    attempt = drive.taken("a")
    made.core.on_took(Took("1", 0, tasks=[Taken("a", attempt, Kind("work", "slots=1"), 0)]))
    made._taken.give_back_strays()
    assert drive.state("a") == "taken", "it is about to get a seat"
    made.turn()
    for number in (1, 2):
        made.turn()
        assert drive.state("a") == "taken", "a slot may be freed within a gap"
        made.core.on_tick(number)
    made.turn()
    made.turn()
    assert drive.state("a") == "pending", "there is none"
    assert drive.status().attempt == 0, "no claim was ever sent"


def test_a_second_take_that_the_core_has_not_heard_of_goes_back_when_the_scheduler_leaves(
    fake_store: Store,
) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store)
    made.turn()
    first = drive.taken("a")
    made.core.on_took(Took("1", 0, tasks=[Taken("a", first, Kind("work", "slots=1"), 0)]))
    # by the leader
    drive.run(drive.commands.give_back("s1", [("a", "", "", "its scheduler was lost")]))
    assert drive.take()["a"] != first
    assert made.core.unclaimed == {"a": first}
    made._taken.give_back_all()
    assert drive.state("a") == "pending"


def test_after_a_restart_nobody_is_named_lost_by_what_was_seen_before(fake_store: Store) -> None:
    member = scheduler(fake_store).membership
    fake_store.client.hset(fake_store.keys.shared("schedulers"), "s2", 7)
    member._leadership.leads = True
    member._runs = {"": ServerRun("before")}
    member._work._lost = ["s2 7"]
    member.store.server_runs = lambda keys: dict.fromkeys(keys, ServerRun("after"))  # type: ignore[method-assign]
    member.beat()
    assert fake_store.hash(fake_store.keys.shared("schedulers"))["s2"] == "7"


def test_copies_from_before_the_first_renewal_are_dropped_if_the_server_is_another_by_then(
    fake_store: Store,
) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store, "before")
    drive.submit("a")
    made.turn()
    assert made.core.queue.kinds[0].keys() == {"work slots=1"}
    made.membership.store.server_runs = lambda keys: dict.fromkeys(keys, ServerRun("after"))  # type: ignore[method-assign]
    made.membership.beat()
    made._hear(0.0)
    assert (made.core.queue.versions, made.core.queue.kinds) == (["0"], [{}])


def test_a_shard_is_read_anew_if_before_the_first_renewal_another_server_has_it(
    fake_store: Store,
) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store, "same")
    drive.submit("a")
    made._plans.carry_out(made.core.plan(), lambda: 0.0)  # before it hears anything
    assert made.core.queue.kinds[0].keys() == {"work slots=1"}
    now = {fake_store.keys.queue("meta", 0): "after"}
    made.membership.store.server_runs = lambda keys: {  # type: ignore[method-assign]
        key: ServerRun(now.get(key, "same")) for key in keys
    }
    made.membership.beat()
    made._hear(0.0)
    assert (made.core.queue.versions, made.core.queue.kinds) == (["0"], [{}])


def test_copies_are_dropped_when_the_first_server_leads_again(fake_store: Store) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store, "before")
    drive.submit("a")
    made.turn()
    for server, joined in (("before", 0), ("after", 1), ("before", 1)):
        made.core.queue.versions = ["5"]
        made._on_rank(replace(made._rank, server=server, joined=joined))
    assert made.core.queue.versions == ["0"]


def test_a_lease_is_counted_from_when_its_counter_had_come_not_from_when_it_was_asked_for(
    fake_store: Store,
) -> None:
    drive = Driver(fake_store)
    drive.node()
    janitor = Janitor(fake_store, 1, 10.0)
    janitor.work(lambda: 5.0, {})  # asked for at 0, the answer took 5 seconds
    janitor.work(lambda: 9.0, {})
    janitor.work(lambda: 12.0, {})
    assert fake_store.nodes(0)["n1"].state == "up", "it has been silent for 7 seconds"
    janitor.work(lambda: 15.0, {})
    assert fake_store.nodes(0)["n1"].state == "down"


def test_a_shard_is_read_anew_if_another_server_has_it(fake_store: Store) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store)
    drive.submit("a")
    hears_of(made, p0="x", q0="before")
    for _ in range(3):
        made.turn()
    version = made.core.queue.versions[0]
    assert version != "0"
    hears_of(made, p0="y", q0="before")
    assert made.core.queue.versions[0] == version
    hears_of(made, p0="y", q0="after")
    assert made.core.queue.versions[0] == "0", "its version may count what that server has lost"
    assert not made.core.queue.kinds[0]
    drive.taken("b")  # by s1, which has given it back; that server has not got it
    made.turn()
    assert drive.state("b") == "pending", "nobody else knows of it"
    made.core.on_wake()
    made.turn()
    assert made.core.queue.versions[0] > version
    assert made.core.queue.kinds[0]


def test_a_partition_is_read_anew_if_another_server_has_it(fake_store: Store) -> None:
    drive = Driver(fake_store)
    made = scheduler(fake_store)
    drive.node()
    hears_of(made, p0="before", q0="x")
    for _ in range(3):
        made.turn()
    version = made.core.view.partitions[0].version
    assert version > 0
    hears_of(made, p0="before", q0="y")
    assert made.core.view.partitions[0].version == version
    hears_of(made, p0="after", q0="y")
    assert made.core.view.partitions[0].version == -1, (
        "its version may count what that server has lost"
    )
