"""A cluster whose lease is shorter than its workers stall: row F37 of docs/failure-modes.md."""

import signal
from collections.abc import Callable

import pytest

from tests.kit.rig import APP, Rig

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    """Return a rig with two schedulers."""
    rig = new_rig()
    rig.schedulers(2)
    return rig


def test_a_lease_shorter_than_a_stall_costs_runs_and_no_task(rig: Rig) -> None:
    for node in ("s1", "s2"):
        rig.stack.worker(APP, node, pool="prefork", slots=2, extra=("-l", "info"))
    rig.until_up("s1", "s2")
    ids = rig.client.submit_many(
        {"name": "tests.kit.apps.marks.noted", "args": [f"short-{i}", 0.5], "id": f"short-{i}"}
        for i in range(100)
    )
    for node in ("s1", "s2"):
        rig.until(
            lambda node=node: [x for x in rig.leases() if x.place.node == node],  # type: ignore[misc]
            f"{node} runs tasks",
        )
        rig.signal_all(node, signal.SIGSTOP)
        rig.until(lambda node=node: rig.node(node).state == "down", f"{node} stood still")  # type: ignore[misc]
        rig.signal_all(node, signal.SIGCONT)
    assert {status.state for status in rig.client.wait(ids, timeout=600).values()} == {"succeeded"}
    ended = rig.counts("end")
    assert all(ended[id] >= 1 for id in ids)
    rig.until_idle()
    rig.until_clean()
