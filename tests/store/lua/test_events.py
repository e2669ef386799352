"""Events: the scripts write down what is out of the ordinary, and a damaged stream stops none of
them.
"""

from typing import Any

import pytest

from parsync_redis.model.booking import Booking
from parsync_redis.model.events import EVENT_IN_WORDS, Event, Wanted
from parsync_redis.model.task import StoredState
from parsync_redis.store.reads.events import Follower, read_events
from tests.kit.driver import Driver

LAST = f"{2**64 - 1}-{2**64 - 1}"


def told(drive: Driver, limit: int = 100, **wanted: Any) -> list[Event]:
    drive.store.client.hset(
        drive.keys.shared("config"), mapping={"partitions": 1, "shards": drive.keys.shards}
    )
    return read_events(drive.store, Wanted(**wanted), limit)


def words(drive: Driver, **wanted: Any) -> list[str]:
    return [event.event for event in told(drive, **wanted)]


def one(drive: Driver, word: str) -> dict[str, str]:
    """Return what the one event of this word says."""
    (event,) = told(drive, events=(word,))
    assert event.text, "each word has a sentence"
    fields = ("task", "name", "node", "scheduler", "why", "by")
    return {name: value for name in fields if (value := getattr(event, name))}


def test_a_task_that_goes_well_makes_no_event(drive: Driver) -> None:
    drive.bring(StoredState.SUCCEEDED)
    assert words(drive) == []


def test_ends_that_are_no_success_are_events_with_where_and_why(drive: Driver) -> None:
    place = drive.bring(StoredState.RUNNING)
    assert drive.finish(place, "failed", "ValueError: x") == "ok"
    assert one(drive, "failed") == {
        "task": "a",
        "name": "work",
        "node": "n1",
        "why": "ValueError: x",
    }
    assert told(drive)[0].attempt == place.attempt
    drive.submit("b")
    drive.cancel("b", "by its owner")
    assert one(drive, "cancelled") == {"task": "b", "name": "work", "why": "by its owner"}
    drive.submit("c", expiry_ms=0)
    assert drive.run(drive.commands.expire(10)) == ["c"]
    assert one(drive, "expired") == {"task": "c", "name": "work"}
    drive.submit("d", expiry_ms=0)
    drive.take()
    assert words(drive, task="d") == ["expired"], "take meets it as well"


def test_lost_attempts_and_what_follows_are_events(drive: Driver) -> None:
    drive.bring(StoredState.DEAD)
    lost = {"task": "a", "name": "work", "node": "n1", "why": "its node was lost"}
    assert one(drive, "dead") == lost
    drive.run(drive.commands.revive(["a"], "once more"))
    assert one(drive, "revived") == {"task": "a", "name": "work", "why": "once more"}
    place = drive.place("a", drive.take()["a"])
    drive.start(place)
    assert drive.requeue(place) == "pending"
    assert one(drive, "requeued") == lost
    place = drive.place("a", drive.take()["a"])
    drive.start(place)
    assert drive.finish(place, "again", "it asked to") == "again"
    assert one(drive, "retried") == {**lost, "why": "it asked to"}
    assert words(drive, task="a") == ["dead", "revived", "requeued", "retried"]


def test_a_task_handed_back_before_its_start_is_no_event(drive: Driver) -> None:
    place = drive.bring(StoredState.PLACED)
    assert drive.requeue(place, "it had not begun", "recalled") == "pending"
    place = drive.place("a", drive.take()["a"])
    drive.start(place)
    assert drive.requeue(place, "its rate limit", "recalled", 5) == "pending"
    assert words(drive) == []


def test_the_life_of_a_node_is_events(drive: Driver) -> None:
    def set_node(word: str, note: str = "") -> None:
        drive.run(drive.commands.set_node(0, "n1", word, None, note))

    drive.node()
    assert one(drive, "registered") == {"node": "n1", "why": "incarnation 1"}
    set_node("drain", "deadline_s=5: a new disk")
    assert one(drive, "drained") == {"node": "n1", "why": "deadline_s=5: a new disk"}
    set_node("over", "deadline_s=5: a new disk")
    set_node("undrain")
    set_node("suspect", "it started nothing")
    assert one(drive, "suspect") == {"node": "n1", "why": "it started nothing"}
    set_node("trust")
    set_node("trust")
    set_node("leaving")
    drive.lose()
    assert one(drive, "down") == {"node": "n1", "why": "it shut down"}
    assert drive.run(drive.commands.forget_node(0, "n1", 1)) == "forgotten"
    assert words(drive, node="n1") == [
        *(
            "registered",
            "drained",
            "drain_over",
            "undrained",
            "suspect",
            "trusted",
            "leaving",
            "down",
            "forgotten",
        )
    ]
    drive.node("n2")
    drive.lose("n2", 2)
    assert [event.why for event in told(drive, node="n2", events=("down",))] == [
        "it did not renew its lease"
    ]


def test_schedulers_and_the_cluster_make_events(drive: Driver) -> None:
    def renew(name: str, seen: str = "", **more: Any) -> Any:
        return drive.run(drive.commands.renew_scheduler(name, seen, **more))

    renew("s1")
    held = renew("s2").leader
    assert words(drive) == ["joined", "leads", "joined"]
    renew("s2", held)
    assert [event.why for event in told(drive, events=("leads",))] == ["", "in the place of s1"]
    renew("s2", lost=f"s1 {renew('s2').counters['s1']}")
    assert one(drive, "lost") == {"scheduler": "s1", "by": "s2"}
    renew("s2", stay=False)
    assert one(drive, "left") == {"scheduler": "s2"}
    for _ in range(2):
        drive.run(drive.commands.record_loss("s1 submitted=9->3", 60))
        drive.run(drive.commands.quarantine(b"host:1 parsync:{c}:x 3 no node\nabc", 10))
        drive.run(drive.commands.book([Booking("n1", "work slots=2", "a", 5)], 60))
    assert one(drive, "writes_lost") == {"by": "s1", "why": "submitted=9->3"}
    assert one(drive, "damage") == {"by": "host:1", "why": "parsync:{c}:x: no node"}
    assert one(drive, "booked") == {"node": "n1", "task": "a", "name": "work"}


@pytest.mark.unaudited
@pytest.mark.parametrize("damage", ["another type", "the last number", "a later year"])
def test_a_damaged_stream_stops_no_script_and_begins_anew(drive: Driver, damage: str) -> None:
    place = drive.bring(StoredState.RUNNING)
    key = drive.keys.in_shard_of("events", "a")
    client: Any = drive.store.client
    if damage == "another type":
        client.set(key, "x")
    else:
        client.xadd(
            key, {"event": "failed"}, id=LAST if damage == "the last number" else "9999999999999-0"
        )
    assert words(drive) == []
    assert drive.finish(place, "failed", "x") == "ok"
    assert [event.why for event in told(drive)] == ["x"]
    assert drive.state("a") == "failed"


def test_readers_skip_what_no_script_writes(drive: Driver) -> None:
    follower = Follower(drive.store, Wanted())
    assert follower.begin(10) == []
    key = drive.keys.queue("events")
    client = drive.store.client
    fields: Any
    for fields in (
        {"event": "unknown"},
        {"x": "y"},
        {"event": "failed", "x": "y"},
        {"event": "failed", "why": 5000 * "x"},
    ):
        client.xadd(key, fields)
    client.xadd(key, {"event": "failed", "task": "a%2Fb", "why": b"\xff\x1b"})
    (event,) = told(drive)
    assert (event.task, event.why) == ("a/b", "\\xff\x1b")
    assert follower.poll() == [event]
    client.xadd(key, {"event": "failed"}, id="9999999999999-0")
    assert follower.poll() == []
    drive.submit("a")
    drive.cancel("a")
    assert [event.event for event in follower.poll()] == ["cancelled"], (
        "a later year does not hide what comes"
    )


def test_a_reader_pages_and_a_follower_goes_on_where_it_was(drive: Driver) -> None:
    client = drive.store.client
    shards = drive.keys.queues("events")
    with client.pipeline(transaction=False) as pipe:
        for at in range(250):
            pipe.xadd(
                shards[at % len(shards)],
                {"event": "failed", "node": f"n{at % 5}"},
                id=f"{1000 + at}-0",
            )
        pipe.execute()
    assert [event.at_ms for event in told(drive, 3)] == [1247, 1248, 1249]
    assert [event.at_ms for event in told(drive, 1000)] == [*range(1000, 1250)]
    assert [event.at_ms for event in told(drive, node="n0")] == [*range(1000, 1250, 5)]
    assert [event.at_ms for event in told(drive, since_ms=1010, until_ms=1011)] == [1010, 1011]
    follower = Follower(drive.store, Wanted())
    assert follower.begin(0) == []
    assert follower.poll() == [], "they came before it began"
    drive.submit("a")
    drive.cancel("a")
    assert [event.event for event in follower.poll()] == ["cancelled"]
    assert follower.poll() == []


def test_a_stream_is_capped(drive: Driver) -> None:
    key = drive.keys.in_shard_of("events", "a")
    client = drive.store.client
    with client.pipeline(transaction=False) as pipe:
        for at in range(10_200):
            pipe.xadd(key, {"event": "failed"}, id=f"1000-{at}")
        pipe.execute()
    drive.submit("a")
    drive.cancel("a")
    assert client.xlen(key) <= 10_100


def test_each_word_has_a_sentence() -> None:
    for word in EVENT_IN_WORDS:
        assert Event("q0/1-0", 1, word, "a", "work", "n1", "1@1.s1.0", "s1", "why", "s2").text
