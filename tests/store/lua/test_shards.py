"""Several shards: each task is in the shard that its id tells, and calls, lists and repairs go to
all of them.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Any

import pytest

from parsync_redis import ParsyncClient
from parsync_redis.errors import BrokenContract, ClusterMismatch, ServerUnreachable
from parsync_redis.model.ids import id_in_shard, shard_of
from parsync_redis.model.place import Place
from parsync_redis.model.task import Submission, TaskState
from parsync_redis.scheduler.leader.schedulers import SchedulerDuty
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import ClusterConfig, join_cluster, keep_config
from parsync_redis.store.reads.cancel import (
    Selection,
    find_purgeable,
    find_selected,
    purge_tasks,
    server_ms,
)
from parsync_redis.store.reads.demand import read_demand
from parsync_redis.store.reads.tasks import list_tasks
from parsync_redis.store.reads.views import Directory
from parsync_redis.store.scripts.calls import Commands, parts_of
from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.wire.keys import Keys
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit
from tests.kit.waiting import until

SHARDS = 4
IDS = [f"t{number}" for number in range(12)]


@pytest.fixture
def drive(store: Store) -> Driver:
    store.keys.shards = SHARDS
    return Driver(store)


def submit(drive: Driver, *ids: str) -> list[str]:
    words: list[str] = drive.run(
        drive.commands.submit([Submission(id, "work", b"message") for id in ids])
    )
    return words


def take_all(drive: Driver) -> dict[str, str]:
    tooks = [
        drive.run(drive.commands.take("s1", [("work slots=1", 100)], shard=shard))
        for shard in range(SHARDS)
    ]
    assert [took.shard for took in tooks] == [*range(SHARDS)]
    return {task.id: task.attempt for took in tooks for task in took.tasks}


def test_a_task_is_in_the_shard_of_its_id(drive: Driver):
    submit(drive, *IDS)
    for shard in range(SHARDS):
        client: Any = drive.store.client
        there = {id.decode() for id in client.hkeys(drive.keys.queue("tasks", shard))}
        assert there == {id for id in IDS if shard_of(id, SHARDS) == shard} != set()


def test_the_replies_of_all_shards_are_in_the_order_of_the_rows(drive: Driver):
    assert submit(drive, *IDS[::2]) == ["submitted"] * 6
    assert submit(drive, *IDS) == ["exists", "submitted"] * 6
    assert [record.id for record in drive.store.records(reversed(IDS))] == IDS[::-1]
    attempts = take_all(drive)
    assert sorted(attempts) == sorted(IDS)
    places = [drive.place(id, attempts[id]) for id in IDS]
    late = [drive.place("t3", "9@9.s1.0"), *places[:3]]
    assert drive.run(drive.commands.confirm(late)) == ["stale", "placed", "placed", "placed"]
    started = drive.run(drive.commands.start([places[5], late[0], *places[6:]]))
    assert [word for word, _ in started] == ["ok", "refused", *["ok"] * 6]
    assert [place for word, place in started if word == "ok"] == [b"message"] * 7
    outcomes = [(places[5], "succeeded", ""), (late[0], "failed", ""), (places[6], "failed", "why")]
    assert drive.run(drive.commands.finish(outcomes)) == ["ok", "stale", "ok"]
    assert drive.run(
        drive.commands.requeue([(places[7], "lost"), (late[0], ""), (places[8], "lost")])
    ) == [
        "pending",
        "none",
        "pending",
    ]
    assert drive.run(
        drive.commands.give_back("s1", [(id, "", "", "") for id in ("t3", "t0", "t4")])
    ) == [
        "pending",
        "stale",
        "pending",
    ]
    assert drive.run(drive.commands.cancel(["t5", "t3", "t6", "t9", "none"])) == [
        ("none", "succeeded"),
        ("cancelled", ""),
        ("none", "failed"),
        ("asked", ""),
        ("none", "gone"),
    ]
    assert drive.run(drive.commands.purge("failed", ["t5", "t6"])) == ["succeeded", "purged"]
    assert drive.run(drive.commands.revive(["t6", "t5"], "why")) == ["gone", "succeeded"]
    ended = [(drive.place(id, attempts[id]), "cancelled", "") for id in ("t9", "t10", "t11")]
    assert drive.run(drive.commands.finish(ended)) == ["ok"] * 3


def test_a_batch_of_one_shard_is_one_call_and_a_clients_ids_are_of_one_shard(drive: Driver):
    ids = [id_in_shard(2, SHARDS) for _ in range(100)]
    assert len({*ids}) == 100
    assert {shard_of(id, SHARDS) for id in ids} == {2}
    call = drive.commands.submit([Submission(id, "work", b"") for id in ids])
    assert (call.parts, call.keys[0]) == ((), drive.keys.queue("meta", 2))
    assert len(drive.commands.submit([Submission(id, "work", b"") for id in IDS]).parts) == SHARDS


def test_every_shard_has_the_offers_and_names_that_submit_checks(drive: Driver):
    drive.offer("n1", "slots=1", "work")
    for id in IDS:
        assert drive.submit(id) == "submitted"
        assert drive.submit(f"{id}.{id}", name="other") == "unknown"
    apps = Directory(drive.store).read()
    assert len(apps.stamps) == SHARDS
    assert "changing" not in apps.stamps
    tasks = [Submission(f"new{number}", "work", b"") for number in range(12)]
    assert drive.run(drive.commands.submit(tasks, apps.stamps)) == ["submitted"] * 12
    drive.store.client.hset(drive.keys.queue("meta", 1), "apps", "99")
    words = drive.run(
        drive.commands.submit([t._replace(id=f"x{t.id}") for t in tasks], apps.stamps)
    )
    assert words == ["changed" if shard_of(f"x{t.id}", SHARDS) == 1 else "submitted" for t in tasks]
    assert drive.store.run(drive.commands.offer("n1", "")) == 1
    assert not any(drive.store.client.exists(key) for key in drive.keys.queues("shapes"))


def test_lists_and_selections_are_of_all_shards(drive: Driver):
    for priority, id in enumerate([*IDS, "late"]):
        drive.submit(id, {"priority": priority % 2 * 5}, delay_ms=10**8 if id == "late" else None)
    assert [(kind.kind, kind.waiting) for kind in read_demand(drive.store)] == [
        ("work slots=1", 12)
    ]
    first = [task.id for task in list_tasks(drive.store, {TaskState.WAITING}, 6)]
    assert sorted(first) == sorted(IDS[1::2]), "the higher priority, of all shards"
    assert len(list_tasks(drive.store, {TaskState.WAITING}, 100)) == 13
    assert sorted(find_selected(drive.store, Selection(name="work"))) == sorted([*IDS, "late"])
    attempts = take_all(drive)
    assert sorted(task.id for task in list_tasks(drive.store, {TaskState.WAITING}, 100)) == sorted(
        [*IDS, "late"]
    )
    places = [drive.place(id, attempts[id]) for id in IDS]
    drive.run(drive.commands.start(places))
    assert sorted(find_selected(drive.store, Selection("running"))) == sorted(IDS)
    drive.run(drive.commands.finish([(place, "failed", "") for place in places]))
    purgeable = find_purgeable(drive.store, "failed")
    assert (len(purgeable), purge_tasks(drive.store, purgeable)) == (12, 12)
    assert purge_tasks(drive.store, find_purgeable(drive.store)) == 1


def test_expiries_come_in_every_shard(drive: Driver):
    for id in IDS:
        drive.submit(id, expiry_ms=0)
        drive.store.client.zadd(drive.keys.in_shard_of("expires", id), {id: 1})
    assert sorted(drive.run(drive.commands.expire())) == sorted(IDS)
    assert drive.run(drive.commands.rotate()) == 0


def is_past(drive: Driver, moment_ms: int) -> bool:
    """Return whether a moment is over by the server's clock."""
    return server_ms(drive.store) > moment_ms


def test_first_come_first_served_across_shards_whatever_their_numbers_of_submissions(drive: Driver):
    submit(drive, *(id_in_shard(0, SHARDS) for _ in range(40)))
    orders = []
    for id in IDS:
        drive.submit(id)
        orders.append(drive.line(id).order)
        submitted_ms = drive.line(id).submitted_ms
        until(partial(is_past, drive, submitted_ms), "the next millisecond")
    assert orders == sorted(orders)
    assert len({drive.keys.shard_of(id) for id in IDS}) == SHARDS


def test_the_audit_does_not_advise_to_submit_a_task_again_that_may_run_in_a_wrong_shard(
    drive: Driver,
):
    submit(drive, *IDS)
    taken = take_all(drive)
    drive.keys.shards = 3
    advised = [fact for fact in audit(drive.store) if "where nobody looks for it" in fact]
    assert advised, taken
    assert all(fact.endswith("do not submit it again while it may run") for fact in advised), (
        advised
    )
    drive.keys.shards = SHARDS


def test_a_task_in_a_shard_that_is_not_its_own_is_named_by_the_audit_with_the_remedy(drive: Driver):
    submit(drive, *IDS)
    assert audit(drive.store) == []
    drive.keys.shards = 3
    moved = [id for id in IDS if shard_of(id, SHARDS) != shard_of(id, 3)]
    findings = audit(drive.store)
    assert [any(f"task {id} is in shard q" in fact for fact in findings) for id in IDS] == [
        id in moved for id in IDS
    ]
    assert submit(drive, *moved) == ["submitted"] * len(moved)
    for id, fact in zip(sorted(moved), sorted(findings), strict=True):
        assert "; submit it again (the same id is safe), then " in fact
        if shard_of(id, SHARDS) == 3:
            assert fact.endswith("delete the keys of q3, which no process uses")
            for key in drive.store.client.scan_iter(f"{drive.keys.prefix('', 3)}*"):
                drive.store.client.delete(key)
        else:
            for key in re.findall(r"'(\S+)'", fact):
                assert drive.store.client.hdel(key, id) == 1
    take_all(drive)  # a take removes tasks without a line from their queue
    assert audit(drive.store) == []


def test_a_task_taken_from_a_wrong_shard_is_removed_from_that_shard(drive: Driver):
    duty = SchedulerDuty(drive.store, lease_s=1)
    for attempt in (b"x", b"\xff", b"1@1.gone.0"):
        drive.store.client.hset(drive.keys.queue("taken", 1), id_in_shard(2, SHARDS), attempt)
    for now_s in (0.0, 0.4, 0.8, 1.2):
        duty.work(partial(float, now_s), {})
    assert drive.store.hash(drive.keys.queue("taken", 1)) == {}


def test_the_audit_counts_what_a_node_runs_of_all_shards(drive: Driver):
    drive.run(drive.commands.register_node(0, "n1", 0, 1.0, "slots=1", 3))
    drive.run(drive.commands.set_node(0, "n1", "ahead", 1, "3"))
    submit(drive, *IDS)
    attempts = take_all(drive)
    some = [next(id for id in IDS if shard_of(id, SHARDS) == shard) for shard in range(3)]
    places = [drive.held(id, attempts[id], slots=(slot,)) for slot, id in enumerate(some)]
    drive.run(drive.commands.start(places))
    assert audit(drive.store) == ["node n1 has 1 slots, but 3 run tasks"]
    drive.run(drive.commands.finish([(place, "succeeded", "") for place in places]))


# -- how processes learn the number of shards ------------------------------------------------------


def settings_of(server: EmbeddedServer, **more: Any) -> Settings:
    return Settings.load(url=server.url, cluster="sharded", **more)


def store_of(server: EmbeddedServer) -> Store:
    return Store.from_url(server.url, "sharded")


def test_a_process_that_opens_a_cluster_learns_its_number_of_shards(server: EmbeddedServer):
    config = join_cluster(store_of(server), settings_of(server, shards=4), create=True)
    assert config is not None
    assert config.shards == 4
    late = store_of(server)
    twin = late.with_own_connections()
    assert join_cluster(late, settings_of(server), create=False) == config
    assert late.keys.shards == twin.keys.shards == 4, (
        "the threads of a process know what one of them has learnt"
    )
    with pytest.raises(ClusterMismatch, match=r"shards=4 \(you asked for 2\)"):
        join_cluster(store_of(server), settings_of(server, shards=2), create=True)


def test_a_client_from_before_the_cluster_goes_by_the_clusters_shards(server: EmbeddedServer):
    with ParsyncClient(settings_of(server)) as early:
        assert early.status("t1").state == "gone"
        other = store_of(server)
        join_cluster(other, settings_of(server, shards=4), create=True)
        other.run(other.commands.submit([Submission(f"other{n}", "work", b"") for n in range(4)]))
        assert {early.status(f"other{n}").state for n in range(4)} == {"waiting"}
        ids = [early.submit("work", id=id) for id in IDS]
        assert {early.status(id).state for id in ids} == {"waiting"}
        assert audit(early.store) == []
        assert len({shard_of(id, 4) for id in early.submit_many([("work",)] * 50)}) == 1


def test_a_submission_by_another_number_of_shards_changes_nothing_and_is_repeated(
    server: EmbeddedServer,
):
    """Between the client's look at the settings and its submission a scheduler has made the
    cluster.
    """
    store = store_of(server)
    early = store_of(server)
    join_cluster(store, settings_of(server, shards=4), create=True)
    call = early.commands.submit([Submission("t1", "work", b""), Submission("t2", "work", b"")])
    assert early.run(call) == ["elsewhere", "elsewhere"]
    assert store.states(["t1", "t2"]) == early.states(["t1", "t2"]) == ["", ""]
    with ParsyncClient(settings_of(server), retry_for_s=0.0) as client:
        client.requests._joined = True
        with pytest.raises(ServerUnreachable, match="is being set up"):
            client.submit("work", id="t1")
        assert client.submit("work", id="t1") == "t1", "it has read the settings again"
        assert client.status("t1").state == "waiting"


def test_a_scheduler_refuses_a_number_of_shards_that_leaves_tasks_unread(server: EmbeddedServer):
    with ParsyncClient(settings_of(server)) as early:
        early.submit("work", id="t1")
        with pytest.raises(
            ClusterMismatch, match=r"were submitted with shards=1 \(you asked for 4\)"
        ):
            join_cluster(store_of(server), settings_of(server, shards=4), create=True)
        assert store_of(server).config() == {}
        config = join_cluster(store_of(server), settings_of(server), create=True)
        assert config is not None
        assert config.shards == 1
        assert early.status("t1").state == "waiting"


class Between(Store):
    """A store of 16 shards that does something else before it sends for the Nth time."""

    sends = 0
    step = 0
    between: Callable[[], object] = staticmethod(lambda: None)

    def _send(self, *args: Any) -> list[Any]:
        self.sends += 1
        if self.sends == self.step + 1:
            self.between()
        return super()._send(*args)


def between(
    server: EmbeddedServer, step: int = 0, do: Callable[[], object] = lambda: None
) -> Between:
    made = Between(connect(server.url), "sharded", shards=16)
    made.step = step
    made.between = do
    return made


def create(store: Store, server: EmbeddedServer, shards: int) -> int:
    """Create the cluster as a scheduler that wants so many shards; return how many it has."""
    try:
        config = join_cluster(store, settings_of(server, shards=shards), create=True)
    except ClusterMismatch:
        config = join_cluster(store, settings_of(server, shards=16), create=True)
    assert config is not None
    return config.shards


@pytest.mark.parametrize("step", range(5))
def test_no_task_is_stranded_by_a_client_that_submits_while_the_cluster_is_made(
    server: EmbeddedServer, step: int
):
    early = between(server)
    words: list[str] = []
    call = early.commands.submit([Submission(id_in_shard(9, 16), "work", b"")])
    shards = create(between(server, step, lambda: words.append(early.run(call)[0])), server, 4)
    words = words or early.run(call)
    assert (words, shards) in ((["submitted"], 16), (["elsewhere"], 4))


@pytest.mark.parametrize("step", range(5))
def test_a_scheduler_that_dies_while_it_makes_the_cluster_strands_no_task(
    server: EmbeddedServer, step: int
):
    def die() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        join_cluster(between(server, step, die), settings_of(server, shards=4), create=True)
    early = between(server)
    words = early.run(early.commands.submit([Submission(id_in_shard(7, 16), "work", b"")]))
    assert (words, create(between(server), server, 4)) in ((["submitted"], 16), (["elsewhere"], 4))


def test_a_cluster_that_is_refused_is_open_to_clients(server: EmbeddedServer):
    early = between(server)
    submit = [
        early.commands.submit([Submission(id_in_shard(shard, 16), "work", b"")]) for shard in (3, 5)
    ]
    assert early.run(submit[0]) == ["submitted"]
    with pytest.raises(ClusterMismatch):
        join_cluster(between(server), settings_of(server, shards=4), create=True)
    assert early.run(submit[1]) == ["submitted"]


@pytest.mark.unaudited  # its settings have more shards than a cluster may have
def test_an_error_that_no_server_explains_is_raised(store: Store):
    with pytest.raises(BrokenContract):
        keep_config(store, ClusterConfig(8, 0.5, 10.0, shards=257))


def test_the_number_that_is_fixed_first_counts(store: Store):
    fix_shards = store.commands.fix_shards
    assert store.run_all([fix_shards(0, 4, 1), fix_shards(0, 2, 1), fix_shards(0, 1, 1)]) == [
        4,
        4,
        4,
    ]
    meta = store.keys.queue("meta")
    assert store.hash(meta) == {"shards": "4"}
    store.client.hset(meta, mapping={"shards": "many", "submitted": 300})
    assert store.run(fix_shards(0, 4, 2)) == 2, "somebody has submitted"
    assert store.run_all([fix_shards(1, 0, 2), fix_shards(1, 0, 2)]) == [0, 0]
    store.client.hset(store.keys.queue("meta", 1), "submitted", 5)
    assert store.run_all([fix_shards(1, 0, 2), fix_shards(1, 4, 4)]) == [2, 4]


class Changing(Keys):
    """Keys whose number of shards another thread changes after each look."""

    numbers: Iterator[int]

    @property
    def shards(self) -> int:
        return next(self.numbers)

    @shards.setter
    def shards(self, shards: int) -> None:
        self.numbers = cycle([shards, 1, 7])


def test_a_call_goes_by_one_number_of_shards():
    def sent(keys: Keys) -> list[Any]:
        commands = Commands(keys)
        if isinstance(keys, Changing):
            keys.shards = 4
        submit = commands.submit([Submission(id, "work", b"") for id in IDS])
        if isinstance(keys, Changing):
            keys.shards = 4
        start = commands.start([Place(id, "1@1.s1.0", 0, "n", (0,), 1, 1) for id in IDS], most=5)
        return [(part.keys, part.args) for part in parts_of([submit, start])]

    assert sent(Changing("c", shards=4)) == sent(Keys("c", shards=4))
