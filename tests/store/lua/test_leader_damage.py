"""Promises 7 and 10: damage does not keep the leader from the rest of its work."""

import threading

import pytest

from parsync_redis.scheduler.leader.janitor import Janitor
from parsync_redis.scheduler.leader.places import PlaceDuty
from tests.kit.driver import Driver

LEASE_S = 10.0


def passes(janitor: Janitor, count: int = 9) -> None:
    """Pass of a leader, a third of a lease apart, while no node renews."""
    now_s = 0.0
    for _ in range(count):
        now_s += LEASE_S / 3
        janitor.work(lambda now_s=now_s: now_s, {})  # type: ignore[misc]


def running(drive: Driver, id: str, node: str) -> None:
    drive.node(node, slots=2)
    place = drive.held(id, drive.taken(id), node=node, inc=drive.store.nodes(0)[node].inc)
    assert drive.confirm(place) == "placed"
    assert drive.start(place) == "ok"


@pytest.mark.unaudited
@pytest.mark.parametrize("kind", ["extra", "expires"])
def test_a_key_of_another_type_keeps_no_lost_node_from_being_repaired(drive: Driver, kind: str):
    running(drive, "a", "n1")
    running(drive, "b", "n2")
    key = drive.keys.extra("a") if kind == "extra" else drive.keys.queue(kind)
    if kind == "extra":
        drive.store.client.hset(drive.keys.queue("tasks"), "a", "+" + drive.record("a").text)
    drive.store.client.delete(key)
    drive.store.client.rpush(key, "damaged")
    passes(Janitor(drive.store, 1, LEASE_S))
    assert drive.store.nodes(0)["n2"].state == "down"
    assert drive.state("b") == "pending"
    assert "n2/0" not in drive.hash("slots")


@pytest.mark.unaudited
def test_a_lead_that_does_not_name_its_own_slot_holds_up_no_leader(drive: Driver):
    running(drive, "a", "n1")
    text = drive.hash("slots")["n1/0"]
    drive.store.client.hset(drive.keys.partition(0, "slots"), "n1/0", text.replace("n1/0", "n1/1"))
    done = threading.Thread(target=passes, args=(Janitor(drive.store, 1, LEASE_S),), daemon=True)
    done.start()
    done.join(timeout=60)
    assert not done.is_alive()
    assert drive.store.nodes(0)["n1"].state == "down"


@pytest.mark.unaudited
def test_tasks_whose_leases_are_all_damaged_keep_their_places(drive: Driver):
    running(drive, "a", "n1")
    running(drive, "b", "n2")
    key = drive.keys.partition(0, "slots")
    client = drive.store.client
    client.delete(key)
    client.rpush(key, "damaged")
    duty = PlaceDuty(drive.store, 1, LEASE_S)
    for _ in range(2):
        duty.work(lambda: 0.0)
    assert sorted(drive.hash("slots")) == ["n1/0", "n2/0"]
    assert [drive.state(id) for id in "ab"] == ["running", "running"]
