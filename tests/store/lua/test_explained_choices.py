"""People read before the start where a task would go, and after the start why it went there: both
answers agree, and the second is what a scheduler noted.
"""

import random

import numpy as np
import pytest

from parsync_redis.inspect.explanation import explain_plan, explain_task
from parsync_redis.model.explanation import Explanation, Outlook
from parsync_redis.model.ids import encode_id
from parsync_redis.model.options import ONE_SLOT, Strategy, TaskOptions
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.plan import Plan
from parsync_redis.scheduler.process.plan_runner import PlanRunner
from parsync_redis.settings import Settings
from parsync_redis.store import Store
from parsync_redis.store.cluster import join_cluster
from tests.kit.driver import Driver


class Told:
    """A cluster of one partition, a scheduler that places when a test says so, and what people read."""

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        store = drive.store
        settings = Settings(
            url=f"redis://{store.address}/0", cluster=store.keys.cluster, partitions=1
        )
        join_cluster(store, settings, create=True)
        drive.run(drive.commands.renew_scheduler("s1", stats={"pid": 1}))
        self.core = Core("s1", 1, Strategy.QUALITY, 1.5, np.random.default_rng(1))
        self.runner = PlanRunner(store, self.core)
        self.now_s = 0.0

    def read(self) -> None:
        """Let the scheduler read the nodes and what waits, and place nothing."""
        self.core.on_nodes(0, self.drive.store.nodes(0).values(), 1)
        self.runner.carry_out(self.core.plan(place=False, confirm=False), lambda: self.now_s)

    def place(self, loses: bool = False) -> None:
        """Let the scheduler place what it can, confirm the places and note its choices.

        loses: its first claims are lost.
        """
        self.core.on_stale()
        while plan := self.core.plan(confirm=False):
            if plan.commit and loses:
                self.lose(plan)
                loses = False
            self.now_s += 0.25
            self.runner.carry_out(plan, lambda: self.now_s)
        for place in self.core.won.unconfirmed:
            assert self.drive.confirm(place) == "placed"
        self.core.on_tick(1)
        self.runner.carry_out(self.core.plan(confirm=False), lambda: self.now_s)

    def lose(self, plan: Plan) -> None:
        """Let another task have the slot of each claim of a plan."""
        for claim in (claim for claims in plan.commit.values() for claim in claims):
            self.hold("rival", claim.node, claim.slots[0])

    def hold(self, id: str, node: str, slot: int) -> None:
        """Let a task hold a slot of a node."""
        inc = self.drive.store.nodes(0)[node].inc
        self.drive.submit(id, name="holder")
        attempt = self.drive.take("s2")[id]
        self.drive.held(id, attempt, node=node, slots=(slot,), inc=inc, needs="slots=1")

    def explain(self, id: str) -> Explanation:
        """Return what people read of a task."""
        return explain_task(self.drive.store, encode_id(id))


@pytest.fixture
def told(store: Store) -> Told:
    """Return a cluster without nodes, on each real server."""
    return Told(Driver(store))


RULES = [
    "pack",
    "spread",
    "spread:zone",
    "cheap",
    "score",
    "zone=a",
    "zone!=b",
    {"zone": {"c": 0, "a": 1}},
    "pack:gpu",
]


@pytest.mark.parametrize("seed", range(8))
def test_the_answer_before_the_start_is_the_choice_that_is_read_after_it(
    told: Told, seed: int
) -> None:
    dice = random.Random(seed)
    drive = told.drive
    for i in range(6):
        labels = {"zone": dice.choice("abc"), "cost": dice.choice(["1", "3"])}
        resources = {"gpu": 2} if dice.random() < 0.4 else None
        drive.node(f"n{i}", 4, resources, labels, score=dice.choice([1.0, 2.0]))
        for slot in range(dice.randrange(5)):
            told.hold(f"n{i}-{slot}", f"n{i}", slot)
    told.read()
    prefer = dice.sample(RULES, dice.randrange(1, 7))
    drive.submit("t", {"prefer": prefer})
    before = told.explain("t")
    candidates = before.candidates
    assert candidates is not None
    assert before.prefer == TaskOptions.of({"prefer": prefer}).prefer
    plan = explain_plan(drive.store, "work", ONE_SLOT, 0, prefer=before.prefer)
    assert plan.candidates == candidates
    assert f"node {candidates.nodes[0].node} has room" in before.why
    told.place()
    after = told.explain("t")
    choice = after.choice
    assert after.outlook is Outlook.PLACED
    assert choice is not None
    assert choice.node == after.node
    assert choice.ranked == candidates.nodes[0].ranked
    assert (choice.fitted, choice.equal) == (candidates.fitted, candidates.equal)
    if candidates.equal == 1:
        assert after.node == candidates.nodes[0].node


def test_the_choice_says_what_was_as_good_what_fitted_how_old_the_view_was_and_what_was_lost(
    told: Told,
) -> None:
    drive = told.drive
    drive.node("a1", 4, labels={"zone": "a"})
    drive.node("a2", 4, labels={"zone": "a"})
    drive.node("b", 4, labels={"zone": "b"})
    told.read()
    drive.submit("t", {"prefer": ["zone=a", "pack"]})
    candidates = told.explain("t").candidates
    assert candidates is not None
    assert candidates.lines(1) == [
        "nodes with room: 3; as good as the best: 2",
        "a1: zone=a 0, pack 3 (75 to 100 % of its scarcest amount is left); score 1",
    ]
    told.place(loses=True)
    choice = told.explain("t").choice
    assert choice is not None
    assert choice.node in ("a1", "a2")
    assert choice.lines()[0] == (
        f"{choice.node}: zone=a 0, pack 2 (50 to 75 % of its scarcest amount is left); "
        "1 node was as good; 3 fitted with room; the view was 750ms old; "
        "1 lost claim before (to rival)"
    )
