"""Waiting seats: their bits behind those of the slots, how they open and shut, and which waiting
task starts.
"""

import pytest

from parsync_redis.errors import BrokenContract
from parsync_redis.inspect.waiting import explain_tasks
from parsync_redis.store import Store
from parsync_redis.store.reads.views import read_views
from tests.kit.driver import Driver
from tests.kit.oracle.audit import audit


def ahead(drive: Driver, seats: int, inc: int | None = 1, node: str = "n1"):
    return drive.run(drive.commands.set_node(0, node, "ahead", inc, str(seats)))


@pytest.fixture
def node(drive: Driver) -> Driver:
    """Return a node with one slot and three waiting seats."""
    drive.run(drive.commands.register_node(0, "n1", 0, 1.0, "slots=1", 3))
    return drive


def test_waiting_seats_are_shut_until_they_are_opened(node: Driver):
    assert node.hash("nodes")["n1"] == "up inc=1 drain=0 first=0 span=4 ahead=0 score=1.0 slots=1"
    assert node.bits() == "10000000"
    before = node.hash("meta")
    assert ahead(node, 2) == ["ok", "up", "0"]
    assert node.bits() == "11100000"
    assert node.hash("nodes")["n1"].split()[5] == "ahead=2"
    after = node.hash("meta")
    assert (after["free"], after["slots"]) == ("3", "1"), "a waiting seat is no slot"
    assert after["epoch"] == before["epoch"], "claims on the node are judged as before"
    assert int(after["version"]) > int(before["version"])
    ahead(node, 0)
    assert node.bits() == "10000000"


def test_a_lease_on_a_waiting_seat_is_as_any(node: Driver):
    ahead(node, 3)
    place = node.held("a", "1@1", slots=(2,))
    assert node.bits() == "11010000"
    assert node.commit("b", "1@2", slots=(2,)).word == "conflict"
    assert node.release(place) == "freed"
    assert node.bits() == "11110000"


def test_a_shut_seat_stays_shut_when_its_lease_is_freed(node: Driver):
    ahead(node, 3)
    place = node.held("a", "1@1", slots=(3,))
    ahead(node, 0)
    assert node.commit("b", "1@2", slots=(1,)).word == "conflict"
    assert node.release(place) == "freed"
    assert node.bits() == "10000000"


@pytest.mark.parametrize("word", ["drain", "suspect", "leaving"])
def test_a_node_that_takes_no_claims_has_no_open_waiting_seats(node: Driver, word: str):
    ahead(node, 3)
    node.run(node.commands.set_node(0, "n1", word))
    assert node.bits().strip("0") == ""
    assert ahead(node, 2) == [
        "ok",
        {"drain": "up"}.get(word, word),
        "1" if word == "drain" else "0",
    ]
    assert node.bits().strip("0") == "", "ahead alone ends neither a drain nor a suspicion"


def test_an_undrained_node_has_its_waiting_seats_again(node: Driver):
    ahead(node, 3)
    node.run(node.commands.set_node(0, "n1", "drain"))
    node.run(node.commands.set_node(0, "n1", "undrain"))
    assert node.bits() == "11110000"


def test_a_lost_node_gives_back_what_waits_too(node: Driver):
    ahead(node, 3)
    node.held("a", "1@1", slots=(0,))
    node.held("b", "1@2", slots=(2,))
    word, lost = node.run(node.commands.reclaim(0, "n1", 1, 0))
    assert (word, [lease.slot for lease in lost]) == ("down", [0, 2])
    assert node.bits().strip("0") == ""


def test_a_process_that_comes_back_has_its_waiting_seats_shut(node: Driver):
    ahead(node, 3)
    node.run(node.commands.register_node(0, "n1", 0, 1.0, "slots=1", 3))
    assert node.bits() == "10000000"


def test_only_the_named_incarnation_opens_its_waiting_seats(node: Driver):
    assert ahead(node, 3, inc=2) == ["gone"]
    assert node.bits() == "10000000"


def test_no_more_seats_are_opened_than_there_are(node: Driver):
    assert ahead(node, 4) == ["gone"], (
        "after lost writes another process has registered with this incarnation"
    )
    assert node.bits() == "10000000"
    with pytest.raises(BrokenContract, match="how many of the waiting seats are open, not many"):
        node.run(node.commands.set_node(0, "n1", "ahead", 1, "many"))


def test_a_node_without_waiting_seats_opens_none(drive: Driver):
    drive.node("n1", 2)
    assert ahead(drive, 0) == ["ok", "up", "0"]
    assert drive.hash("nodes")["n1"] == "up inc=1 drain=0 first=0 span=2 score=1.0 slots=2"


def three(drive: Driver, *priorities: int):
    """Have tasks a, b, c wait, taken and held at seats 1 to 3."""
    found = []
    for life, (id, priority) in enumerate(zip("abc", priorities, strict=True), 1):
        drive.submit(id, {"priority": priority})
        found.append(drive.held(id, drive.take()[id], slots=(life,)))
    return found


def test_the_first_in_the_queues_order_starts_and_the_others_wait(node: Driver):
    ahead(node, 3)
    places = three(node, 0, 0, 5)
    start = node.commands.start
    assert [word for word, _ in node.run(start(places, 1))] == ["wait", "wait", "ok"]
    assert [node.state(id) for id in "abc"] == ["taken", "taken", "running"]
    assert [word for word, _ in node.unchanged_by(start(places, 1))] == ["wait", "wait", "yours"], (
        "it runs"
    )
    node.run(node.commands.finish([(places[2], "succeeded", "")]))
    assert [word for word, _ in node.run(start(places[:2], 1))] == ["ok", "wait"], (
        "in order of submission"
    )
    node.run(node.commands.release(0, places[2:]))


def test_a_refused_start_does_not_use_up_the_turn_of_the_next_task(node: Driver):
    ahead(node, 3)
    places = three(node, 9, 0, 0)
    node.cancel("a")
    assert node.run(node.commands.start(places, 1)) == [
        ("refused", b"cancelled"),
        ("ok", b"message"),
        ("wait", b""),
    ]


def test_no_more_run_than_may_also_if_more_have_started_because_replies_were_lost(node: Driver):
    ahead(node, 3)
    places = three(node, 0, 0, 0)
    for place in places[:2]:
        node.run(node.commands.start([place], 1))
    start = node.commands.start
    assert [word for word, _ in node.unchanged_by(start(places, 1))] == ["yours", "wait", "wait"]
    assert [word for word, _ in node.run(start(places, 2))] == ["yours", "yours", "wait"]
    node.run(node.commands.finish([(place, "succeeded", "") for place in places[:2]]))
    node.run(node.commands.release(0, places))


def test_the_audit_reports_a_node_with_more_runs_than_slots(node: Driver):
    ahead(node, 3)
    places = three(node, 0, 0, 0)
    node.run(node.commands.start(places, 1))
    assert audit(node.store) == []
    node.run(node.commands.start(places, 3))
    assert audit(node.store) == ["node n1 has 1 slots, but 3 run tasks"]
    node.run(node.commands.finish([(place, "succeeded", "") for place in places]))


def test_the_audit_accepts_a_node_with_no_more_runs_than_slots(drive: Driver):
    drive.run(drive.commands.register_node(0, "n1", 0, 1.0, "slots=2"))
    drive.run(drive.commands.register_node(1, "n1", 0, 1.0, "slots=1"))
    drive.submit("a", {"slots": 2})
    drive.run(drive.commands.start([drive.held("a", drive.take()["a"], slots=(0, 1))]))
    assert audit(drive.store) == [], "the node of that name in another partition has one slot"
    drive.run(drive.commands.register_node(0, "n1", 1, 1.0, "slots=1"))
    assert audit(drive.store) == [], (
        "it began with two slots; the leader requeues what an earlier incarnation runs"
    )


def counted(node: Driver) -> tuple[int, int]:
    """Return how many slots and how many waiting seats a person is told to be held."""
    ((_, (view,)),) = [found for found in read_views(node.store) if found[1]]
    return view.held, view.waiting


@pytest.mark.dealt
@pytest.mark.parametrize("word", ["drain", "suspect", "leaving", ""])
@pytest.mark.parametrize("seats", [0, 1, 3])
def test_a_node_in_any_state_shows_its_held_slots_and_its_waiting_tasks(
    node: Driver, word: str, seats: int
):
    node.run(node.commands.configure({"partitions": 1}))
    ahead(node, 3)
    node.held("a", "1@1", slots=(0,))
    node.held("b", "1@2", slots=(2,))
    assert counted(node) == (1, 1)
    ahead(node, seats)
    if word:
        node.run(node.commands.set_node(0, "n1", word))
    assert counted(node) == (1, 1)


def test_a_node_that_shrank_shows_its_held_slots_and_its_waiting_tasks(node: Driver):
    node.run(node.commands.configure({"partitions": 1}))
    ahead(node, 3)
    node.held("a", "1@1", slots=(0,))
    node.held("b", "1@2", slots=(3,))
    node.run(node.commands.register_node(0, "n1", 0, 1.0, "slots=1", 1))
    assert counted(node) == (1, 1)


def test_status_says_that_a_task_waits_at_its_worker(store: Store):
    node = Driver(store)  # on a real server: fakeredis has no INFO
    node.run(node.commands.register_node(0, "n1", 0, 1.0, "slots=1", 3))
    node.run(node.commands.configure({"partitions": 1, "gap_ms": 500, "lease_ms": 10000}))
    ahead(node, 3)
    for task, seat in (("begins", 0), ("waits", 2)):
        node.submit(task)
        node.held(task, node.take()[task], slots=(seat,))
    node.submit("pends")
    why = {
        task.id: task.why
        for task in explain_tasks(node.store, node.store.statuses(["begins", "waits", "pends"]))
    }
    assert (
        why["waits"]
        == "it waits at n1 until a short task there ends; if that takes long, it goes back"
    )
    assert "it waits at n1" not in why["begins"] + why["pends"], why
