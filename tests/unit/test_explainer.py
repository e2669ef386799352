"""The explainer looks in each gap at groups that have a kind without a reason, and at some others
by turns.
"""

from parsync_redis.model.kind import KindLine
from parsync_redis.model.needs import Resources
from parsync_redis.model.node import Node
from parsync_redis.model.replies import Took
from parsync_redis.scheduler.core.wait_reasons import EXPLAINED_AGAIN
from tests.kit.core_rig import Queue, make, see

# name, state, incarnation, drain, first bit, slots, score, offer
NODES = [Node("n", "up", 1, False, 0, 4, 1.0, Resources.of(4, {"mem": 1000}))]


def blocked(count):
    """Return a core that knows of so many kinds without a seat, each with its reason, and its
    queue.
    """
    core = make()
    see(core, 0, NODES, 4)
    queue = Queue(core)
    for mem in range(1, count + 1):
        queue.add(f"work slots=1 mem={mem}", 1, mem)
    queue.tell()
    assert len(gap(core)) == count
    return core, queue


def gap(core):
    """Return the reasons that the core writes in a gap, by kind."""
    core.on_tick(0)
    found: dict[str, str] = {}
    plan = core.plan(confirm=False)
    while plan.reasons:
        found |= dict(plan.reasons[0])
        plan = core.plan(confirm=False)
    return found


def test_a_kind_that_joins_an_explained_group_has_its_reason_by_the_next_gap():
    core, queue = blocked(3 * EXPLAINED_AGAIN)
    other = f"work slots=1 mem={3 * EXPLAINED_AGAIN} quality"
    queue.add(other, 1, 10**6)
    queue.tell()
    assert gap(core) == {
        other: f"only node n fits: it is short of mem: the task needs {3 * EXPLAINED_AGAIN}"
    }


def test_a_reason_that_the_line_has_is_not_written_again():
    core, _ = blocked(2)
    why = "only node n fits: it is short of mem: the task needs 2"
    core.on_took(Took("2", 0, changes=[("work slots=1 mem=2", str(KindLine(5, 2, 9, why)))]))
    assert gap(core) == {}


def test_a_gap_looks_at_some_groups_again_and_at_each_in_its_turn():
    core, _ = blocked(3 * EXPLAINED_AGAIN)
    blocked_groups = core.queue.blocked
    for _ in range(4):
        oldest = list(blocked_groups.explained)[:EXPLAINED_AGAIN]
        gap(core)
        assert list(blocked_groups.explained)[-EXPLAINED_AGAIN:] == oldest
        assert not blocked_groups.unexplained


def test_the_explainer_skips_kinds_of_which_no_task_waits():
    core, queue = blocked(3)
    core.on_took(Took("2", 0, changes=[(text, "") for text in queue.waiting]))
    assert not core.queue.blocked.explained
    assert not core.queue.blocked.unexplained
    assert gap(core) == {}
