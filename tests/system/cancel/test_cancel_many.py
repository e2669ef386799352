"""Cancel many tasks at once, by ids or by kind, name and state; list waiting tasks by kind. Nodes are only records."""

import json
import logging
from collections import Counter

import pytest
from typer.testing import CliRunner

from parsync_redis import KindView, ParsyncClient
from parsync_redis.cli import app
from parsync_redis.errors import InvalidInput
from parsync_redis.model.ids import encode_id, id_in_shard
from parsync_redis.model.task import StoredState
from parsync_redis.settings import Settings
from parsync_redis.store.cluster import join_cluster
from parsync_redis.store.reads.cancel import Selection, cancel_tasks, cancel_words, find_selected
from tests.kit.driver import Driver
from tests.kit.servers import PRIMARIES

pytestmark = pytest.mark.unaudited  # tasks are placed without a lease


@pytest.fixture
def drive(store):
    """Return the driver of a cluster on a real server."""
    return Driver(store)


@pytest.fixture
def client(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PARSYNC_URL", f"{'redis+cluster' if PRIMARIES else 'redis'}://{store.address}"
    )
    monkeypatch.setenv("PARSYNC_CLUSTER", store.keys.cluster)
    with ParsyncClient(Settings.load()) as client:
        join_cluster(store, client.settings, create=True)
        yield client


@pytest.fixture
def parsync(client):
    """Run the command line on the cluster."""

    def run(*words, code=0):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    return run


def begin(drive, id, state):
    """Bring the first task of its kind that waits in its shard into a state."""
    (taken,) = drive.run(
        drive.commands.take("s1", [(drive.line(id).kind, 1)], shard=drive.keys.shard_of(id))
    ).tasks
    assert taken.id == id
    place = drive.place(id, taken.attempt)
    if state == StoredState.PLACED:
        drive.confirm(place)
    if state == StoredState.RUNNING:
        drive.start(place)
    return place


@pytest.fixture
def shapes(drive):
    """Submit tasks of the kinds `proj.add slots=1` (a), `proj.add slots=2` (b) and `proj.mul
    slots=1` (m), in all states.

    The digit of an id says its state: 1 waits, 2 is not due, 3 is taken, 4 is placed, 5 runs, 6 has
    ended.
    """
    for letter, name, slots in (("a", "proj.add", 1), ("b", "proj.add", 2), ("m", "proj.mul", 1)):
        for digit, state in (
            ("3", StoredState.TAKEN),
            ("4", StoredState.PLACED),
            ("5", StoredState.RUNNING),
        ):
            drive.submit(letter + digit, {"slots": slots}, name)
            begin(drive, letter + digit, state)
        drive.submit(letter + "6", {"slots": slots}, name)
        drive.finish(begin(drive, letter + "6", StoredState.RUNNING))
        drive.submit(letter + "2", {"slots": slots}, name, delay_ms=3_600_000)
        drive.submit(letter + "1", {"slots": slots}, name)
    return [letter + digit for letter in "abm" for digit in "123456"]


def ended(drive, ids):
    """Return the ids of the tasks that a cancel has reached."""
    return {id for id in ids if drive.state(id) == "cancelled" or drive.status(id).cancel_asked}


# -- by their ids ----------------------------------------------------------------------------------


def test_a_cancel_of_many_ids_returns_a_word_for_each_id(client, drive, shapes):
    found = client.cancel_many(id for id in (*shapes, "a1", "nobody"))
    assert list(found) == [*shapes, "nobody"]
    words = {
        "1": "cancelled",
        "2": "cancelled",
        "3": "cancelled",
        "4": "cancelled",
        "5": "asked",
        "6": "succeeded",
    }
    assert found == {**{id: words[id[1]] for id in shapes}, "nobody": "gone"}
    assert client.cancel_many([]) == {}
    with pytest.raises(InvalidInput, match="task id ''"):
        client.cancel_many(["a1", ""])


def test_five_hundred_are_cancelled_in_a_call(client, drive, store):
    ids = client.submit_many({"name": "proj.add", "id": f"a b {n}"} for n in range(2_101))
    client.cancel("nobody")
    before = calls(store)
    assert client.cancel_many(ids) == dict.fromkeys(ids, "cancelled")
    assert calls(store) - before == 5 * drive.keys.shards
    assert drive.kinds() == {}
    assert client.cancel_many(ids[:3]) == dict.fromkeys(ids[:3], "cancelled"), "its repeat"


def calls(store):
    """Return the number of scripts that the servers have run."""
    told = [stats for (stats,) in store.ask_servers([("info", "commandstats")]).values()]
    return sum(stats.get("cmdstat_evalsha", {"calls": 0})["calls"] for stats in told)


# -- by kind, name and state -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "letters", "digits", "told"),
    [
        ({}, "abm", "123", {"cancelled": 9}),
        ({"name": "proj.a*"}, "ab", "123", {"cancelled": 6}),
        ({"kind": "proj.add slots=2"}, "b", "123", {"cancelled": 3}),
        ({"kind": "proj.add slots=2", "name": "proj.mul"}, "", "", {}),
        ({"kind": "proj.add slots=3"}, "", "", {}),
        ({"state": "placed"}, "abm", "4", {"cancelled": 3}),
        ({"state": "placed", "name": "proj.mul"}, "m", "4", {"cancelled": 1}),
        ({"state": "running"}, "abm", "5", {"asked": 3}),
        ({"state": "running", "kind": "proj.add slots=1"}, "a", "5", {"asked": 1}),
    ],
    ids=str,
)
def test_a_cancel_reaches_only_the_selected_tasks(
    client, drive, shapes, chosen, letters, digits, told
):
    assert client.cancel_where(**chosen) == told
    assert ended(drive, shapes) == {letter + digit for letter in letters for digit in digits}


@pytest.mark.parametrize(
    ("state", "before", "after", "told"),
    [
        ("waiting", None, StoredState.PLACED, "placed"),
        ("waiting", None, StoredState.RUNNING, "running"),
        ("placed", StoredState.PLACED, StoredState.RUNNING, "running"),
    ],
)
def test_a_task_that_gets_further_meanwhile_is_left_alone(drive, store, state, before, after, told):
    drive.submit("a")
    place = begin(drive, "a", before) if before else None
    chosen = Selection(state)
    assert find_selected(store, chosen) == ["a"]
    if place is None:
        begin(drive, "a", after)
    else:
        drive.start(place)
    assert cancel_words(cancel_tasks(store, ["a"], how=chosen.how)) == [told]
    assert ended(drive, ["a"]) == set()


def test_a_running_task_that_waits_again_meanwhile_is_cancelled(drive, store):
    drive.submit("a")
    place = begin(drive, "a", StoredState.RUNNING)
    chosen = Selection("running")
    assert find_selected(store, chosen) == ["a"]
    assert drive.requeue(place) == "pending"
    assert cancel_words(cancel_tasks(store, ["a"], how=chosen.how)) == ["cancelled"]
    assert drive.state("a") == "cancelled"


def test_a_list_of_a_long_queue_is_complete_while_tasks_are_taken(
    client, drive, store, monkeypatch
):
    shards = drive.keys.shards
    ids = client.submit_many(
        {"name": "proj.add", "id": id_in_shard(0, shards)} for _ in range(3_000)
    )
    client.submit_many({"name": "proj.mul", "id": encode_id(f"m {n}")} for n in range(3))
    ask = store.pipe
    reads = []

    def pipe(commands):  # between any two pages a scheduler takes some tasks
        reads.append(commands[0][0])
        drive.run(drive.commands.take("s1", [("proj.add slots=1", 100)]))
        return ask(commands)

    monkeypatch.setattr(store, "pipe", pipe)
    selected = find_selected(store, Selection(kind="proj.add slots=1"))
    monkeypatch.undo()
    assert reads.count("zscan") > 3
    assert sorted(selected) == sorted(ids)
    assert client.cancel_where(name="proj.add") == {"cancelled": 3_000}
    assert Counter(kind.name for kind in client.demand()) == {"proj.mul": 1}


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (
            {"state": "succeeded"},
            "state='succeeded' cannot be cancelled: it must be one of waiting, placed, running",
        ),
        (
            {"kind": "proj.add"},
            "kind='proj.add' is not valid: it must be as `parsync kinds` shows it",
        ),
    ],
)
def test_a_cancel_without_a_selection_is_refused(client, chosen, says):
    with pytest.raises(InvalidInput, match=says):
        client.cancel_where(**chosen)


# -- the command line ------------------------------------------------------------------------------


def test_the_command_asks_first_with_the_number(parsync, drive, shapes):
    assert parsync("cancel", "--name", "proj.a*", code=2) == (
        "error: this would cancel 6 waiting tasks: say so with --yes\n"
    )
    assert ended(drive, shapes) == set()
    assert parsync("cancel", "--name", "proj.a*", "--yes") == "6 waiting tasks cancelled\n"
    assert parsync("cancel", "--name", "proj.a*") == "0 waiting tasks cancelled\n", (
        "of nothing it asks nothing"
    )
    assert (
        parsync("cancel", "--state", "running", "--yes")
        == "0 running tasks cancelled, 3 asked to end\n"
    )
    assert json.loads(parsync("cancel", "--kind", "proj.mul slots=1", "--yes", "--json")) == {
        "cancelled": 3
    }
    assert parsync("cancel", "a4", "m6", code=1) == ""
    assert drive.state("a4") == "cancelled"


def test_the_command_reports_tasks_that_it_did_not_cancel(parsync, drive, monkeypatch):
    drive.submit("a")
    drive.submit("b", name="other")

    def find(store, chosen):
        selected = find_selected(store, chosen)
        begin(drive, "b", StoredState.RUNNING)
        return selected

    monkeypatch.setattr("parsync_redis.cli.ending.find_selected", find)
    assert (
        parsync("cancel", "--state", "waiting", "--yes")
        == "1 waiting tasks cancelled; left alone: 1 running\n"
    )


@pytest.mark.parametrize("words", [[], ["a1", "--name", "proj.*"]])
def test_either_ids_or_a_selection(parsync, words):
    output = parsync("cancel", *words, code=2)
    assert output == (
        "error: say which tasks: either ids, or some of --kind, --name, --state and --older-than\n"
    )


# -- demand ----------------------------------------------------------------------------------------


def test_demand_lists_waiting_kinds_in_the_order_of_their_first_tasks(client, drive, parsync):
    assert client.demand() == []
    assert parsync("demand") == "no tasks wait\n"
    drive.submit("l", name="proj.late", delay_ms=3_600_000)
    drive.submit("t", name="proj.taken")
    drive.take()
    for id in ("a1", "a2", "a3"):
        drive.submit(id, {"strategy": "latency"}, "proj.add")
    drive.submit("m1", {"slots": 2, "resources": {"gpu": 1}, "require": {"zone": "a"}}, "proj.mul")
    drive.submit("u1", {"priority": 9}, "proj.urgent")
    drive.run(
        drive.commands.set_reason(
            [("proj.mul slots=2 gpu=1 zone:a", "no node fits: no node is in zone a")]
        )
    )
    assert client.demand() == [
        KindView("proj.urgent slots=1", "proj.urgent", "slots=1", "", 1, 9, ""),
        KindView("proj.add slots=1 latency", "proj.add", "slots=1", "latency", 3, 0, ""),
        KindView(
            "proj.mul slots=2 gpu=1 zone:a",
            "proj.mul",
            "slots=2 gpu=1 zone:a",
            "",
            1,
            0,
            "no node fits: no node is in zone a",
        ),
    ]
    assert [" ".join(line.split()) for line in parsync("demand").splitlines()] == [
        "KIND WAITING PRIORITY WHY",
        "proj.urgent slots=1 1 9 -",
        "proj.add slots=1 latency 3 0 -",
        "proj.mul slots=2 gpu=1 zone:a 1 0 no node fits: no node is in zone a",
    ]
    first = json.loads(parsync("demand", "--json"))[0]
    assert list(first) == ["kind", "name", "needs", "strategy", "waiting", "priority", "why"]
    for kind in client.demand():
        assert client.cancel_where(kind.kind) == {"cancelled": kind.waiting}


def test_a_damaged_line_is_left_out_and_named(client, drive, parsync, caplog):
    drive.submit("a", name="proj.add")
    lines = {
        "no kind": "1 2 3",
        "proj.mul slots=1": "many",
        b"\xff slots=1": b"1 2 \xff",
        "proj.div slots=1": "",
    }
    drive.store.client.hset(drive.keys.queue("kinds"), mapping=lines)
    with caplog.at_level(logging.WARNING):
        assert [kind.kind for kind in client.demand()] == ["proj.add slots=1"]
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "lines of kinds that cannot be read are left out: 4, of 'no kind', "
    )
    assert "proj.add slots=1" in parsync("demand")
    assert client.cancel_where(name="proj.*") == {"cancelled": 1}
