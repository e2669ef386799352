"""A task that ends its own process, or is revoked while it runs, ends once and frees its slot, on
every pool.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from billiard.exceptions import WorkerLostError
from celery import group
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from tests.kit.rig import LONG_LEASE_S, Rig

pytestmark = pytest.mark.serial
GET_S = 180


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig]) -> Rig:
    rig = new_rig()
    rig.schedulers(1, lease_s=LONG_LEASE_S)
    for pool, slots in (("prefork", 2), ("threads", 2), ("solo", 1)):
        # tasks of the broker run on prefork only, which has a process for them beside its slots
        words = () if pool == "prefork" else ("-Q", "unused")
        processes = slots + 2 if pool == "prefork" else None
        rig.worker(
            pool,
            *words,
            pool=pool,
            slots=slots,
            concurrency=processes,
            labels={"pool": pool},
            up=False,
        )
    rig.until_up("prefork", "threads", "solo")
    return rig


def on(pool: str) -> dict[str, Any]:
    return {"parsync": {"require": {"pool": pool}}}


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_task_that_exits_fails_once_and_frees_its_slot(rig: Rig, pool: str) -> None:
    ends = {
        "sys.exit": (WorkerLostError, "exitcode 3"),
        "sys.exit(15)": (WorkerLostError, "exitcode 15"),
        "KeyboardInterrupt": (WorkerLostError, "KeyboardInterrupt"),
        "CancelledError": (asyncio.CancelledError, ""),
        "GeneratorExit": (GeneratorExit, ""),
        **(
            {
                "os._exit": (WorkerLostError, "exitcode 3"),
                "os._exit(0)": (WorkerLostError, "exitcode 0"),
            }
            if pool == "prefork"
            else {}
        ),
        **({"WorkerShutdown": (WorkerLostError, "exitcode 0")} if pool == "threads" else {}),
    }
    results = {how: rig.tasks.ends.apply_async((f"{pool}-{how}", how), **on(pool)) for how in ends}
    for how, result in results.items():
        rig.until(result.ready, f"{how} has ended on {pool}")
        kind, text = ends[how]
        assert (result.state, type(result.result)) == ("FAILURE", kind), how
        assert text in str(result.result), how
        status = rig.until_state(result, "failed")
        assert (status.starts, rig.counts("ends")[f"{pool}-{how}"]) == (1, 1), how
    rig.until_idle()
    assert rig.tasks.add.apply_async((1, 2), **on(pool)).get(timeout=GET_S) == 3, "the pool goes on"


def test_results_and_groups_revoke_running_and_waiting_tasks_also_of_the_broker(
    rig: Rig,
) -> None:
    running = rig.tasks.gated.apply_async(("r1",), **on("prefork"))
    both = group(
        rig.tasks.gated.s(f"g{i}").set(countdown=600 * i, **on("prefork")) for i in (0, 1)
    ).apply_async()
    plain = rig.tasks.gated.apply_async(("p",), parsync=False)
    rig.until(
        lambda: {mark[1] for mark in rig.marks("held")} == {"r1", "g0", "p"}, "three tasks run"
    )
    running.revoke(terminate=True)
    both.revoke(terminate=True)
    plain.revoke(terminate=True)
    for result in (running, *both.results, plain):
        with pytest.raises(TaskRevokedError):
            result.get(timeout=GET_S)
    assert [rig.until_state(r, "cancelled").starts for r in (running, *both.results)] == [1, 1, 0]
    rig.until_idle()


def test_control_terminates_and_a_bad_signal_changes_nothing(rig: Rig) -> None:
    running = rig.tasks.gated.apply_async(("t1",), **on("prefork"))
    waiting = rig.tasks.gated.apply_async(("t2",), countdown=600)
    rig.until(lambda: rig.counts("held")["t1"] == 1, "it runs")
    with pytest.raises(ValueError, match="signal='NOPE'"):
        rig.tasks.app.control.terminate(waiting.id, signal="NOPE")
    assert rig.status(waiting).state == "waiting"
    rig.tasks.app.control.terminate([running.id, waiting.id], signal=None)
    assert [rig.until_state(r, "cancelled").starts for r in (running, waiting)] == [1, 0]
    assert [AsyncResult(r.id, app=rig.tasks.app).state for r in (running, waiting)] == [
        "REVOKED",
        "REVOKED",
    ]
