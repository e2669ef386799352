"""The reader of `parsync serve` shows each change as a first reading does, and parses only what has
changed.
"""

import pytest

from parsync_redis.model.node import drain_terms
from parsync_redis.store.reads.views import ViewReader, read_all_views
from tests.kit.driver import Driver


@pytest.mark.unaudited
def test_the_reader_shows_each_change_like_a_first_read(drive: Driver):
    reader = ViewReader()
    commands = drive.commands

    def check(of: str) -> None:
        assert read_all_views(drive.store, reader.read) == read_all_views(drive.store), of

    check("a cluster without partitions")
    drive.run(commands.configure({"partitions": 2}))
    check("partitions without nodes")
    for name, partition in (("n2", 0), ("n1", 0), ("n3", 1)):
        drive.node(name, 3, {"gpu": 2}, {"zone": "a"}, p=partition)
        check(f"node {name} came")
    drive.submit("a", {"resources": {"gpu": 1}})
    place = drive.held("a", drive.take()["a"], needs="slots=1 gpu=1")
    check("a slot and a resource are held")
    drive.start(place)
    check("a task runs")
    for word in ("drain", "over", "undrain", "suspect", "undrain", "leaving"):
        drive.run(
            commands.set_node(
                0, "n2", word, None, drain_terms(60, "a disk") if word in ("drain", "over") else ""
            )
        )
        check(f"n2 is told {word}")
    drive.finish(place)
    drive.release(place)
    check("the slot is free")
    drive.run(commands.renew(0, "n1", 1))
    check("a node renewed")
    drive.lose("n3", p=1)
    check("a node is down")
    drive.run(commands.register_node(0, "n1", 1, 2.0, "slots=5 zone:b"))
    check("a node offers something else")
    drive.store.client.hset(
        drive.store.keys.partition(0, "nodes"), mapping={"n1": "odd", "\xff": "odd"}
    )
    check("records are damaged")
    drive.store.client.hdel(drive.store.keys.partition(0, "nodes"), "n1")
    check("a node is gone")


def test_the_reader_keeps_the_view_of_an_unchanged_node(drive: Driver):
    drive.run(drive.commands.configure({"partitions": 1}))
    for name in ("n1", "n2"):
        drive.node(name, 8)
    reader = ViewReader()
    before = read_all_views(drive.store, reader.read)[1]
    drive.run(drive.commands.renew(0, "n2", 2))
    drive.start(drive.held("a", drive.taken("a")))
    now = read_all_views(drive.store, reader.read)[1]
    assert (now[0] is before[0], now[0].held, now[1] is before[1]) == (False, 1, True)
