"""The client and the listings against a real server, with nodes that are only records."""

import json
import threading
from collections import Counter

import pytest
from typer.testing import CliRunner

from parsync_redis.cli import app
from parsync_redis.client import ParsyncClient
from parsync_redis.errors import (
    ClusterMismatch,
    Infeasible,
    InvalidInput,
    ServerUnfit,
    ServerUnreachable,
    UnknownTask,
)
from parsync_redis.model.apps import KnownTasks, offer_with
from parsync_redis.model.claim import Claim
from parsync_redis.model.needs import parse_needs, parse_resources
from parsync_redis.model.task import TaskState
from parsync_redis.settings import Settings
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.reads.cancel import find_purgeable, purge_tasks
from parsync_redis.store.reads.schedulers import read_schedulers
from parsync_redis.store.reads.tasks import ANY, list_tasks
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.wire.envelope import open_envelope
from tests.kit.driver import Driver
from tests.kit.servers import PRIMARIES
from tests.kit.waiting import ended, joined

OFFERS = {
    "n1": (0, 9.0, "slots=4 mem=4096 gpu_model:a100"),
    "n2": (1, 1.0, "slots=8 gpu_model:t4"),
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("URL", "CLUSTER", "PARTITIONS", "CONFIG"):
        monkeypatch.delenv(f"PARSYNC_{name}", raising=False)


@pytest.fixture
def settings(store):
    scheme = "redis+cluster" if PRIMARIES else "redis"
    return Settings.load(url=f"{scheme}://{store.address}", cluster=store.keys.cluster)


TASKS = KnownTasks.of({"proj.add": None, "proj.mul": None})


@pytest.fixture
def client(settings):
    with ParsyncClient(settings) as client:
        yield client


@pytest.fixture
def cluster(client, store):
    """Return the client of a cluster of two partitions with a node in each, whose workers know
    proj.add and proj.mul.
    """
    join_cluster(store, client.settings.model_copy(update={"partitions": 2}), create=True)
    for name, (partition, score, offer) in OFFERS.items():
        labels = " ".join(word for word in offer.split() if ":" in word)
        slots = int(offer.split()[0].partition("=")[2])
        store.run(store.commands.deal_node(name, 2, labels, slots, score))
        known = offer_with(parse_resources(offer), TASKS).text
        store.run(store.commands.register_node(partition, name, 0, score, known))
        store.run(store.commands.offer(name, known, TASKS))
    return client


def place(store, id, node="n1", slot=0):
    """Take the pending tasks and commit one to a slot."""
    taken = {task.id: task for task in Driver(store).take_tasks()}
    amounts = parse_needs(taken[id].kind.needs).asked
    p = OFFERS[node][0]
    first = store.nodes(p)[node].first
    epoch = store.run(store.commands.read_partition(p)).epoch
    claim = Claim(id, taken[id].attempt, p, node, (slot,), 1, amounts, first, epoch)
    return store.run(store.commands.commit(p, [claim]))


# -- submit ----------------------------------------------------------------------------------------


def test_the_same_id_twice_is_one_task(cluster, store):
    assert cluster.submit("proj.add", (1, 2), id="t1") == "t1"
    assert cluster.submit("proj.mul", (5,), id="t1") == "t1"
    assert cluster.status("t1").name == "proj.add"
    assert len(Driver(store).index("pending")) == 1


def test_options_reach_the_task(cluster):
    id = cluster.submit(
        "proj.add",
        slots=2,
        resources={"mem": "1k"},
        require={"gpu_model": "a100"},
        priority=5,
        strategy="quality",
    )
    status = cluster.status(id)
    assert (status.needs, status.priority, status.strategy) == (
        "slots=2 mem=1000 gpu_model:a100",
        5,
        "quality",
    )
    assert status.state is TaskState.WAITING


def test_a_countdown_keeps_a_task_from_being_taken(cluster, store):
    id = cluster.submit("proj.add", countdown=3600)
    assert Driver(store).take() == {}
    times = cluster.status(id).times
    assert times["ready"] - times["submitted"] == 3_600_000


def test_many_are_submitted_in_order_from_a_generator(cluster, store):
    ids = cluster.submit_many(
        {"name": "proj.add", "args": (i,), "id": f"t{i}"} for i in range(1203)
    )
    assert ids == [f"t{i}" for i in range(1203)]
    shards = store.keys.by_shard(ids, str)
    assert store.keys.by_shard(Driver(store).index("pending"), str) == shards
    assert list(Driver(store).take(limit=3)) == [id for _, mine in shards for id in mine[:3]]
    assert len(Driver(store).index("pending")) == 1203 - 3 * len(shards)


def test_tuples_and_mappings_may_be_mixed(cluster):
    ids = cluster.submit_many(
        [("proj.add",), ("proj.add", (1,)), ("proj.add", [1], {"k": 2}), {"name": "proj.mul"}]
    )
    assert [status.name for status in cluster.statuses(ids)] == ["proj.add"] * 3 + ["proj.mul"]


def test_a_bad_task_keeps_its_whole_batch_from_being_sent(cluster, store):
    tasks: list[tuple[str, tuple[object, ...]]] = [("proj.add", (i,)) for i in range(700)]
    tasks[600] = ("proj.add", ({1},))
    with pytest.raises(
        InvalidInput, match=r"^task 600: argument args\[0\] of task proj.add cannot be packed"
    ):
        cluster.submit_many(tasks)
    assert len(Driver(store).index("pending")) == 500


def test_no_further_batch_is_sent_after_a_refused_task(cluster, store):
    tasks = [{"name": "proj.add", "slots": 64 if i == 3 else 1} for i in range(700)]
    with pytest.raises(
        Infeasible, match=r"^task 3: task needs slots=64; the largest node has 8 \(n2\)"
    ):
        cluster.submit_many(tasks)
    assert len(Driver(store).index("pending")) == 499


@pytest.mark.parametrize(
    "item",
    [
        "proj.add",
        5,
        (),
        ("proj.add", (), {}, "id"),
        {"args": (1,)},
        {"name": "proj.add", "nope": 1},
    ],
)
def test_a_malformed_task_is_refused(cluster, store, item):
    with pytest.raises(InvalidInput, match=r"^task 0: "):
        cluster.submit_many([item])
    assert len(Driver(store).index("pending")) == 0


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            {"name": "proj.ad"},
            UnknownTask,
            "no node knows a task 'proj.ad'; did you mean proj.add or proj.mul?",
        ),
        ({"slots": 64}, Infeasible, "task needs slots=64; the largest node has 8 (n2)"),
        ({"resources": {"mem": "1GiB"}}, Infeasible, "task needs mem=1GiB; the most is 4096 (n1)"),
        ({"resources": {"gpu": 1}}, Infeasible, "no node declares gpu; there are resources mem"),
        (
            {"require": {"gpu_model": "h100"}},
            Infeasible,
            "no node has label gpu_model:h100; there are gpu_model: a100",
        ),
        (
            {"slots": 5, "require": {"gpu_model": "a100"}},
            Infeasible,
            "n1 comes closest: it lacks slots=5 (has 4)",
        ),
        (
            {"require": {"gpu_model": ["h100", "v100"]}},
            Infeasible,
            "no node has gpu_model in h100, v100; there are gpu_model: a100",
        ),
        (
            {"require": {"vram_gb": {">=": 24}}},
            Infeasible,
            "no node has vram_gb >= 24; there are labels gpu_model",
        ),
        (
            {"require": {"gpu_model": {"like": "a"}}},
            InvalidInput,
            "unknown operator 'like': known are = in not exists >=",
        ),
        ({"slots": 0}, InvalidInput, "slots=0 is not valid"),
        ({"priority": -1}, InvalidInput, "priority=-1 is not valid"),
        (
            {"id": ""},
            InvalidInput,
            "task id '' is not valid: it must be a text of 1 to 255 characters",
        ),
        ({"name": "proj add"}, InvalidInput, "task name 'proj add' is not valid"),
        ({"countdown": -5}, InvalidInput, "countdown=-5 is not valid"),
        ({"countdown": "soon"}, InvalidInput, "countdown='soon' is not valid"),
        (
            {"slot": 1},
            InvalidInput,
            "unknown option 'slot': known are id, countdown, queue, slots, resources, require",
        ),
        ({"require": "gpu"}, InvalidInput, "require='gpu' is not valid: it must be a mapping"),
    ],
)
def test_a_bad_task_is_refused_and_nothing_is_written(cluster, store, options, error, says):
    before = sorted(store.client.keys())
    with pytest.raises(error) as caught:
        cluster.submit(**{"name": "proj.add", **options})
    assert says in str(caught.value)
    assert sorted(store.client.keys()) == before


@pytest.mark.parametrize(
    "required",
    [
        {"gpu_model": ["a100", "h100"]},
        {"gpu_model": {"exists": True, "not": ["t4"]}, "zone": {"not": "x"}},
        {"rack": {"exists": False}},
    ],
    ids=str,
)
def test_a_task_whose_conditions_a_node_meets_is_accepted(cluster, required):
    id = cluster.submit("proj.add", require=required)
    assert cluster.status(id).state is TaskState.WAITING


def test_a_task_that_no_node_could_hold_may_wait_for_capacity(cluster):
    id = cluster.submit("proj.add", slots=64, wait_for_capacity=True)
    assert cluster.status(id).state is TaskState.WAITING


def test_a_cluster_without_nodes_accepts_and_lists_nothing(client):
    id = client.submit("any.name", slots=64)
    assert client.status(id).state is TaskState.WAITING
    assert (client.nodes(), client.partitions(), client.evenness().slots) == ([], [], None)


# -- wait, cancel ----------------------------------------------------------------------------------


def test_waiting_ends_when_the_last_task_is_final(cluster):
    ids = cluster.submit_many([("proj.add",)] * 1100)
    timer = threading.Timer(0.05, lambda: [cluster.cancel(id) for id in ids])
    timer.start()
    found = cluster.wait([*ids, "nobody"], timeout=180)
    joined(timer)
    assert list(found) == [*ids, "nobody"]
    assert {status.state for status in found.values()} == {TaskState.CANCELLED, TaskState.GONE}


def test_waiting_in_vain_names_how_many_are_not_final(cluster):
    ids = cluster.submit_many([("proj.add",)] * 1100)
    cluster.cancel(ids[0])
    cluster.cancel(ids[-1])
    with pytest.raises(
        TimeoutError, match=r"^1098 of 1100 tasks are not final after 0\.01 s: .*, \.\.\.$"
    ):
        cluster.wait(ids, timeout=0.01)


def test_a_cancel_returns_its_outcome(cluster):
    id = cluster.submit("proj.add")
    assert cluster.cancel(id) == "cancelled"
    assert cluster.cancel(id) == "cancelled"
    assert cluster.cancel("nobody") == "gone"
    with pytest.raises(InvalidInput, match="task id ''"):
        cluster.cancel("")


@pytest.mark.unaudited  # the claim is never confirmed
def test_a_cancel_of_a_running_task_asks_its_node(cluster, store):
    id = cluster.submit("proj.add")
    judged = place(store, id)
    ((word, message),) = store.run(store.commands.start([judged.claims[0].won(judged.now_ms)]))
    assert (word, open_envelope(message)["headers"]["id"]) == ("ok", id)
    assert cluster.cancel(id) == "asked"
    status = cluster.status(id)
    assert (status.state, status.cancel_asked, status.node, status.slot) == (
        TaskState.RUNNING,
        True,
        "n1",
        0,
    )


# -- the cluster -----------------------------------------------------------------------------------


@pytest.mark.unaudited  # the claim is never confirmed
def test_nodes_show_their_free_and_held_amounts(cluster, store):
    id = cluster.submit("proj.add", resources={"mem": 96})
    assert place(store, id, "n1", 2).verdicts[0].won
    n1, n2 = cluster.nodes()
    assert (n1.name, n1.partition, n1.score, n1.slots, n1.free, n1.held) == ("n1", 0, 9.0, 4, 3, 1)
    assert (n1.resources, n1.left, n1.labels) == (
        {"mem": 4096},
        {"mem": 4000},
        {"gpu_model": "a100"},
    )
    assert (n2.slots, n2.free, n2.held, n2.state) == (8, 8, 0, "up")
    drained = cluster.drain("n1")
    assert (drained.draining, drained.free, drained.held) == (True, 0, 1)
    restored = cluster.undrain("n1")
    assert (restored.draining, restored.free, restored.held) == (False, 3, 1)


def test_partitions_show_how_uneven_the_deal_is(cluster):
    first, second = cluster.partitions()
    assert (first.nodes, first.slots, first.free, first.mean_score, first.labels) == (
        1,
        4,
        4,
        9.0,
        {"gpu_model:a100": 4},
    )
    assert (second.number, second.slots, second.mean_score) == (1, 8, 1.0)
    evenness = cluster.evenness()
    assert evenness.slots == pytest.approx(4 / 6)
    assert evenness.mean_score == pytest.approx(8 / 5)


def test_a_node_that_is_not_there_cannot_be_drained(cluster):
    with pytest.raises(InvalidInput, match="no node 'n9': there are n1, n2"):
        cluster.drain("n9")


@pytest.mark.unaudited  # the claim is never confirmed
def test_tasks_are_listed_by_state(cluster, store):
    ids = cluster.submit_many([{"name": "proj.add", "id": f"t{i}"} for i in range(3)])
    place(store, ids[0])
    cluster.submit("proj.add", id="p1")
    cluster.submit("proj.add", id="l1", countdown=60)
    cluster.submit("proj.add", id="c1")
    cluster.cancel("c1")

    def listed(states, limit=50):
        return {task.id for task in list_tasks(store, states, limit)}

    assert listed({TaskState.WAITING}) == {*ids, "p1", "l1"}
    assert listed({TaskState.CANCELLED}) == {"c1"}
    assert listed({TaskState.RUNNING}) == set()
    assert listed(ANY) == {*ids, "p1", "l1", "c1"}
    assert len(listed(ANY, 2)) == 2


def test_schedulers_are_listed_with_the_leader(store):
    store.run(store.commands.renew_scheduler("b", stats={"placed": 3}))
    store.run(store.commands.renew_scheduler("a"))
    first, second = read_schedulers(store)
    assert (first.name, first.ordinal, first.leader) == ("a", 0, False)
    assert (second.name, second.ordinal, second.leader, second.stats) == (
        "b",
        1,
        True,
        {"placed": "3"},
    )
    for name in ("a", "b"):
        store.run(store.commands.renew_scheduler(name, stay=False))


# -- servers and settings --------------------------------------------------------------------------


def test_other_settings_than_the_running_clusters_are_refused(cluster, settings):
    with (
        ParsyncClient(settings.model_copy(update={"partitions": 16})) as other,
        pytest.raises(
            ClusterMismatch,
            match=r"runs with partitions=2 \(you asked for 16\): use the running values",
        ),
    ):
        other.submit("proj.add")


def test_a_server_that_evicts_keys_is_refused_and_nothing_is_written(client, store):
    store.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ServerUnfit, match="evicts keys"):
            client.submit("proj.add")
    finally:
        store.client.config_set("maxmemory-policy", "noeviction")
    assert store.client.keys() == []


def test_an_unreachable_server_is_given_up_after_retry_for_s():
    nowhere = Settings.load(url="redis://:secret@127.0.0.1:1/0")
    with (
        ParsyncClient(nowhere, retry_for_s=0.1) as client,
        pytest.raises(ServerUnreachable) as caught,
    ):
        client.submit("proj.add")
    assert "secret" not in str(caught.value)


def test_a_submit_outlives_a_server_that_restarts():
    with EmbeddedServer() as server, ParsyncClient.from_url(server.url, "demo") as client:
        client.submit("proj.add", id="before")
        server.process.kill()
        ended(server.process)
        again = threading.Timer(0.3, server.restart)
        again.start()
        try:
            assert client.submit_many([("proj.add",)] * 3)
        finally:
            joined(again)


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture
def parsync(cluster, monkeypatch):
    """Run the command line on the cluster."""
    monkeypatch.setenv("PARSYNC_URL", cluster.settings.url)
    monkeypatch.setenv("PARSYNC_CLUSTER", cluster.settings.cluster)

    def run(*words, code=0):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, result.output
        return result.stdout

    return run


def test_each_listing_is_json_with_stable_keys(parsync):
    assert json.loads(parsync("submit", "proj.add", "1", '"x"', "--id", "t1", "--json")) == {
        "id": "t1"
    }
    status = json.loads(parsync("status", "t1", "--json"))
    keys = (
        "id state name attempt starts partition node slot scheduler needs priority strategy why "
        "cancel_asked times"
    )
    assert (
        list(status)
        == f"{keys} expires_ms history max_starts avoid_last tenant limits prefer".split()
    )
    assert json.loads(parsync("tasks", "--json")) == [status]
    keys = (
        "name partition state draining inc score slots free held resources left labels note queues "
        "down_ms waiting "
        "ahead reserved taints capacity capacity_fails leaves_ms"
    )
    assert [list(node) for node in json.loads(parsync("nodes", "--json"))] == [keys.split()] * 2
    partitions = json.loads(parsync("partitions", "--json"))
    assert list(partitions) == ["partitions", "evenness"]
    assert list(partitions["evenness"]) == ["slots", "mean_score", "labels"]
    assert json.loads(parsync("schedulers", "--json")) == []
    assert json.loads(parsync("cancel", "t1", "--json")) == {"t1": "cancelled"}
    assert json.loads(parsync("drain", "n1", "--json"))["draining"] is True
    assert json.loads(parsync("undrain", "n1", "--json"))["draining"] is False


def test_tables_show_what_is_there(parsync):
    parsync("submit", "proj.add", "--id", "t1")
    assert "state:        waiting" in parsync("status", "t1")
    assert "t1  proj.add  waiting" in parsync("tasks", "--state", "waiting")
    assert "gpu_model:a100" in parsync("nodes", "--wide")
    assert "spread, (max - min) / mean: slots 67%, mean score 160%, gpu_model:a100 200%" in parsync(
        "partitions"
    )
    assert parsync("cancel", "t1", "nobody", code=1) == "t1 cancelled\nnobody is gone already\n"
    assert (
        parsync("drain", "n1") == "n1 draining (no deadline): 0 of 4 slots held, 0 open to tasks\n"
    )
    soon = parsync("drain", "n1", "--deadline", "1.5m", "--reason", "a new disk")
    assert soon == "n1 draining (deadline_s=90: a new disk): 0 of 4 slots held, 0 open to tasks\n"
    assert "deadline_s=90: a new disk" in parsync("nodes")
    assert parsync("undrain", "n1") == "n1 up: 0 of 4 slots held, 4 open to tasks\n"


def test_the_doctor_finds_no_scheduler(parsync):
    report = json.loads(parsync("doctor", "--audit", "--json", code=1))
    found = {check["name"]: check["level"] for check in report["checks"]}
    assert found["schedulers"] == "fail"
    assert (found["server"], found["eviction"], found["cluster"], found["audit"]) == ("ok",) * 4


def test_the_doctor_counts_tasks_and_the_kinds_of_those_that_wait(parsync, cluster, store):
    cluster.submit_many([("proj.add",)] * 3)
    cluster.submit("proj.mul", countdown=3600)
    shard = store.keys.shard_of(cluster.submit("proj.mul"))
    store.run(store.commands.take("s1", [("proj.mul slots=1", 1)], shard=shard))
    cluster.submit("proj.add", slots=2)
    report = json.loads(parsync("doctor", "--json", code=1))
    (told,) = [check["text"] for check in report["checks"] if check["name"] == "tasks"]
    assert told == "4 waiting of 2 kinds, 1 not due yet, 1 taken by schedulers, 0 placed or running"


def test_waiting_on_the_command_line_says_that_the_task_goes_on(parsync, cluster):
    result = CliRunner().invoke(
        app, ["submit", "proj.add", "--id", "t1", "--wait", "--timeout", "0.05"]
    )
    assert (result.exit_code, result.stdout) == (2, "")
    assert "task t1 is not final after 0.05 s; it goes on" in result.stderr
    assert cluster.status("t1").state is TaskState.WAITING


def test_cancel_and_purge_ask_first_and_affect_only_the_selected_tasks(parsync, cluster, store):
    cluster.submit_many([{"name": "proj.add", "id": f"a{n}"} for n in range(3)])
    cluster.submit("proj.mul", id="later", countdown=3600)
    cluster.submit("proj.mul", id="m1")
    shard = store.keys.shard_of("a0")
    (taken,) = store.run(store.commands.take("s1", [("proj.add slots=1", 1)], shard=shard)).tasks
    result = CliRunner().invoke(app, ["cancel", "--name", "proj.a*"])
    assert (result.exit_code, result.stderr) == (
        2,
        "error: this would cancel 3 waiting tasks: say so with --yes\n",
    )
    assert parsync("cancel", "--older-than", "1h", "--yes") == "0 waiting tasks cancelled\n"
    assert parsync("cancel", "--name", "proj.a*", "--yes") == "3 waiting tasks cancelled\n"
    assert taken.id == "a0"
    assert {id: cluster.status(id).state for id in ("a0", "later", "m1")} == {
        "a0": "cancelled",
        "later": "waiting",
        "m1": "waiting",
    }
    assert cluster.status("a1").why == "cancelled"
    assert cluster.requeue(["later", "a1"]) == {"later": "waiting", "a1": "cancelled"}
    assert cluster.purge() == 2
    assert cluster.status("m1").why == "purged"
    result = CliRunner().invoke(app, ["purge", "--state", "cancelled"])
    assert result.stderr == (
        "error: this would delete the records of 5 cancelled tasks: say so with --yes\n"
    )
    assert json.loads(parsync("purge", "--state", "cancelled", "--yes", "--json")) == {"purged": 5}
    assert cluster.status("a0").state is TaskState.GONE
    with pytest.raises(
        InvalidInput, match="state='running' cannot be purged: it must be one of waiting, cancelled"
    ):
        cluster.purge("running")


def test_purge_leaves_alone_what_got_a_place_meanwhile(cluster, store):
    cluster.submit("proj.add", id="t1")
    purgeable = find_purgeable(store)
    judged = place(store, "t1")
    store.run(store.commands.confirm([judged.claims[0].won(judged.now_ms)]))
    assert purge_tasks(store, purgeable) == 0
    assert cluster.status("t1").state is TaskState.PLACED


def test_the_client_reads_app_declarations_once_and_again_after_a_change(cluster, store):
    def calls():
        told = [stats for (stats,) in store.ask_servers([("info", "commandstats")]).values()]
        names = Counter[str]()
        for stats in told:
            names.update(
                {
                    name: stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]
                    for name in ("zrevrange", "evalsha")
                }
            )
        return names

    def submit():
        before = calls()
        id = cluster.submit("proj.add")
        after = calls()
        return cluster.status(id).needs, {
            name: after[name] - before[name] for name in ("zrevrange", "evalsha")
        }

    cluster.submit("proj.add")
    assert submit() == ("slots=1", {"zrevrange": 0, "evalsha": 1})
    tasks = KnownTasks.of({"proj.add": {"slots": 2}})
    offer = offer_with(parse_resources("slots=4"), tasks).text
    store.run(store.commands.offer("n1", offer, tasks))
    assert submit() == ("slots=2", {"zrevrange": store.keys.shards, "evalsha": 2})
    assert submit() == ("slots=2", {"zrevrange": 0, "evalsha": 1})
