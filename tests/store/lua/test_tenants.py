"""Schedulers and accounts: a scheduler reads the policy while tenants wait, and obeys ceilings."""

import numpy as np
import pytest

from parsync_redis.model.options import Strategy, TaskOptions
from parsync_redis.model.task import Submission
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.process.plan_runner import PlanRunner
from parsync_redis.scheduler.process.policy_reader import PolicyReader
from parsync_redis.store.policy import change_policy
from tests.kit.driver import Driver


class Scheduled:
    """A node of 10 slots, and a scheduler that carries out its plans when a test says so."""

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        drive.run(
            drive.commands.configure(
                {"partitions": 1, "shards": 1, "gap_ms": 500, "lease_ms": 10000}
            )
        )
        drive.node(slots=10)
        self.core = Core("s1", 1, Strategy.QUALITY, 1.5, np.random.default_rng(1))
        self.core.on_nodes(0, drive.store.nodes(0).values(), 1)
        self.runner = PlanRunner(drive.store, self.core)
        self.policy = PolicyReader(drive.store, self.core)

    def apply(self, document: str) -> None:
        """Apply a document of the policy."""
        change_policy(self.drive.store, lambda _: document, "maria")

    def submit(self, count: int, tenant: str = "", limits: str = "") -> None:
        """Submit tasks of a tenant, or under a limit."""
        options = TaskOptions(tenant=tenant, limits=limits)
        tasks = [
            Submission(f"{tenant or limits}{number}", "work", b"", options)
            for number in range(count)
        ]
        words = self.drive.run(self.drive.commands.submit(tasks))
        assert set(words) == {"submitted"}

    def turns(self) -> list[str]:
        """Let the scheduler look and place what it can; return the tasks that it has placed."""
        before = {place.task for place in self.core.won.unconfirmed}
        self.core.on_stale()
        while plan := self.core.plan(confirm=False):
            self.runner.carry_out(plan, lambda: 0.0)
        return sorted({place.task for place in self.core.won.unconfirmed} - before)


@pytest.fixture
def scheduled(drive: Driver) -> Scheduled:
    """Return a scheduler with a node."""
    return Scheduled(drive)


def test_a_scheduler_places_as_many_tasks_of_a_limit_as_it_allows(scheduled: Scheduled) -> None:
    scheduled.apply("[limits.stripe]\nat_once = 2\n")
    scheduled.submit(5, limits="stripe")
    assert scheduled.turns() == ["stripe0", "stripe1"]
    assert not scheduled.turns()
    assert scheduled.core.at_rest
    place = scheduled.core.won.unconfirmed[0]
    assert scheduled.drive.start(place) == "ok"
    assert scheduled.drive.finish(place) == "ok"
    assert scheduled.turns() == ["stripe2"]


def test_a_scheduler_is_woken_when_a_limit_that_it_filled_has_room(scheduled: Scheduled) -> None:
    scheduled.apply("[limits.stripe]\nat_once = 2\n")
    scheduled.submit(1, limits="stripe")
    scheduled.turns()
    options = TaskOptions(limits="stripe")
    tasks = [Submission(f"x{number}", "work", b"", options) for number in range(3)]
    scheduled.drive.run(scheduled.drive.commands.submit(tasks))
    # the core knows that the limit has room for one, and asks for two
    assert len(scheduled.turns()) == 1
    place = scheduled.core.won.unconfirmed[0]
    scheduled.drive.start(place)
    channel = f"{scheduled.drive.keys.wakes()}:s1"
    assert scheduled.drive.heard(lambda: scheduled.drive.finish(place), channel)


def test_a_scheduler_places_the_next_task_when_a_token_comes(scheduled: Scheduled) -> None:
    scheduled.apply('[limits.mail]\nrate = "1/h"\nburst = 1\n')
    scheduled.submit(3, limits="mail")
    assert len(scheduled.turns()) == 1
    assert not scheduled.turns()
    assert scheduled.runner.due_s == pytest.approx(3600, abs=5)
    scheduled.runner.wake_if_due(3590.0)
    assert scheduled.core.at_rest
    scheduled.runner.wake_if_due(3610.0)
    assert not scheduled.core.at_rest, "the scheduler asks for the task"


def test_a_scheduler_shares_by_the_policy_that_counts_now(scheduled: Scheduled) -> None:
    scheduled.apply("[tenants.b]\nweight = 4\n")
    scheduled.policy.work()
    assert scheduled.core.queue.tree is None, "without tenants nothing is read"
    scheduled.submit(20, tenant="a")
    scheduled.submit(20, tenant="b")
    scheduled.core.on_took(scheduled.drive.run(scheduled.drive.commands.take("s1")))
    scheduled.policy.work()
    placed = scheduled.turns()
    assert [task[0] for task in placed] == ["a"] * 2 + ["b"] * 8


@pytest.mark.unaudited  # the leader deletes the key
def test_a_damaged_policy_leaves_the_shares_as_they_were(scheduled: Scheduled) -> None:
    scheduled.apply("[tenants.b]\nweight = 4\n")
    scheduled.submit(20, tenant="a")
    scheduled.submit(20, tenant="b")
    scheduled.core.on_took(scheduled.drive.run(scheduled.drive.commands.take("s1")))
    scheduled.policy.work()
    key = scheduled.drive.store.keys.shared("policy")
    scheduled.drive.store.client.hset(key, mapping={"version": "9", "text": "["})
    scheduled.policy.work()
    scheduled.drive.store.client.set(key, "x")
    scheduled.policy.work()
    assert [task[0] for task in scheduled.turns()] == ["a"] * 2 + ["b"] * 8
