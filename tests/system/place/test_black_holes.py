"""A node on which tasks fail at once does not swallow the queue: it becomes suspect, and recovers
by a trial.
"""

from collections.abc import Callable

import pytest

from tests.kit.rig import Rig

pytestmark = pytest.mark.serial
TASKS = 200
MOST_FAILED = 10
LEASE_S = 10.0


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with three nodes of a slot each."""
    rig = new_rig()
    rig.schedulers(1, lease_s=LEASE_S)
    for node in ("n1", "n2", "n3"):
        rig.worker(node, up=False, slots=1)
    rig.until_up("n1", "n2", "n3")
    return rig


def test_a_broken_node_of_three_fails_few_of_200_tasks(rig: Rig):
    rig.redis.sadd("test:broken", "n2")
    results = [rig.tasks.fragile.delay(0.5) for _ in range(TASKS)]
    ids = [str(result.id) for result in results]
    rig.until(lambda: rig.node("n2").state == "suspect", "n2 is suspect")
    assert "tasks of tests.kit.apps.marks.fragile in a row" in rig.node("n2").note
    rig.until(
        lambda: all(status.state.final for status in rig.client.statuses(ids)),
        "all tasks have ended",
    )
    failed = [status for status in rig.client.statuses(ids) if status.state == "failed"]
    print(f"{len(failed)} of {TASKS} tasks failed")
    assert {status.node for status in failed} == {"n2"}
    assert len(failed) <= MOST_FAILED
    assert [rig.node(name).state for name in ("n1", "n3")] == ["up", "up"]
