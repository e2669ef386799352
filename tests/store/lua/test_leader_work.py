"""The leader's work is apart: its lease and the ticks do not wait for a pass, and a pass ends with
the leadership.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from parsync_redis.scheduler.leader.janitor import LeaderWork, PassOver
from parsync_redis.scheduler.process.membership import Membership
from parsync_redis.store import Store
from parsync_redis.store.cluster import ClusterConfig
from tests.kit.driver import Driver
from tests.kit.waiting import happened, until

LEASE_S = 1.0


class Leads:
    """Says that a scheduler leads, and counts how often it is asked; may be held up, or end."""

    def __init__(self) -> None:
        self.asked = 0
        self.ends_after = 10**9
        self.go = threading.Event()
        self.go.set()

    def __call__(self) -> bool:
        self.asked += 1
        happened(self.go, "the test lets the pass go on")
        return self.asked <= self.ends_after


@pytest.fixture
def member(store: Store) -> Iterator[Membership]:
    """Yield a scheduler's membership that runs, and leads."""
    member = Membership(store.with_own_connections(), "s1", ClusterConfig(1, 0.1, LEASE_S), dict)
    member.enter()
    member.start()
    until(lambda: member.leads, "the only scheduler leads")
    yield member
    member.stop()
    member.store.disconnect()


def test_lease_and_ticks_go_on_while_a_pass_hangs(store: Store, member: Membership) -> None:
    def counter() -> int:
        return int(store.hash(store.keys.shared("schedulers"))["s1"])

    leads = Leads()
    leads.go.clear()
    member._work._leads = leads
    until(lambda: leads.asked, "a pass hangs at its next call")
    seen = counter()
    ticks = member._sequence
    until(
        lambda: counter() > seen + 8 and member._sequence > ticks + 8,
        "a lease of renewals and ticks",
    )
    assert leads.asked == 1, "the pass hangs still"
    leads.go.set()


def test_a_leader_that_comes_to_lead_no_more_writes_nothing_more_of_its_pass(store: Store) -> None:
    interrupted(store, lambda work, leads: setattr(leads, "ends_after", leads.asked + 1))


def test_a_pass_ends_when_everybody_is_to_be_watched_anew(store: Store) -> None:
    interrupted(store, lambda work, leads: work.reset())


def interrupted(store: Store, end: Callable[[LeaderWork, Leads], None]) -> None:
    """End a pass while it requeues the runs of a lost node: the pass makes no later call."""
    drive = Driver(store)
    leads = Leads()
    drive.node(slots=2)
    place = drive.held("a", drive.taken("a"))
    assert drive.start(place) == "ok"
    work = LeaderWork(store, 1, LEASE_S, leads)

    def at_once(now_s: float, counters: Any) -> Any:
        return list(counters)

    look: Any = work._janitor.nodes._up
    look.look = at_once  # all are lost
    store_of_pass: Any = work.store
    forward = store_of_pass._send

    def send(calls: Any, *args: Any, **kwargs: Any) -> Any:
        found = forward(calls, *args, **kwargs)
        if calls[0].script.verb == "reclaim":
            end(work, leads)
        return found

    store_of_pass._send = send
    with pytest.raises(PassOver):
        work.work()
    held = drive.hash("slots")
    assert held, "nothing was freed after the end"
    assert drive.state("a") in ("running", "pending")
    store_of_pass._send = forward
    leads.ends_after = 10**9
    leads.asked = 0
    work.work()
    assert (drive.hash("slots"), drive.state("a")) == ({}, "pending"), (
        "the next leader does the rest"
    )
    work.stop()
