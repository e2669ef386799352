"""A worker that stands still keeps its lease and what it runs, gets nothing new, and is ended after
a limit: F9, F47.

PARSYNC_TEST_HELD=60/10 has tasks hold the interpreter for 60 s with a lease of 10 s, instead of 5 s
and 2 s.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from parsync_redis.model.node import NO_SIGN
from tests.kit.rig import Rig
from tests.system.lose_a_node.test_isolation import read, start, submit

pytestmark = pytest.mark.serial

HELD_S, LEASE_S = (float(word) for word in os.environ.get("PARSYNC_TEST_HELD", "5/2").split("/"))
LIMIT_S = 2 * LEASE_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("standstill")


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig], folder: Path) -> Rig:
    rig = new_rig(TEST_ISOLATION_FOLDER=str(folder), PARSYNC_LOCK_DIR=str(folder / "machine"))
    rig.schedulers(1, lease_s=LEASE_S)
    return rig


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_task_that_holds_the_interpreter_for_longer_than_the_lease_succeeds_at_its_first_start(
    rig: Rig, folder: Path, pool: str
) -> None:
    """The tasks that wait behind the run go back meanwhile. There is no other node, so they run here later."""
    held = f"held-{pool}"
    start(rig, pool, slots=1 if pool == "solo" else 2, pool=pool)
    rig.until_up(pool)
    inc = rig.node(pool).inc
    began_s = time.monotonic()
    id = submit(rig, pool, "holds_in_c", held, HELD_S)
    rig.until((folder / held).exists, "it has begun")
    (folder / f"{held}-ticks.end").touch()
    behind = [submit(rig, pool, "ticks", f"{held}-ticks") for _ in range(2)]
    if pool != "prefork":
        rig.until(lambda: rig.node(pool).state == "suspect", "its worker gives no sign of life")
        rig.until(
            lambda: {rig.status(b).state for b in behind} == {"waiting"}, "nothing waits for it"
        )
    status = rig.until_state(id, "succeeded")
    print(
        f"{pool}: held for {HELD_S:g} s with a lease of {LEASE_S:g} s; succeeded at start "
        f"{status.starts}",
        end=" ",
    )
    print(f"after {time.monotonic() - began_s:.1f} s")
    assert (status.starts, status.history) == (1, ())
    rig.until(lambda: rig.node(pool).state == "up", "it gets tasks again")
    assert [rig.until_state(other, "succeeded").starts for other in behind] == [1, 1]
    assert rig.node(pool).inc == inc, "its lease was kept"
    assert "CRITICAL" not in rig.lines(pool)
    assert "its event loop stands still" not in rig.lines(pool), (
        "all of the worker did, and its loop turns again"
    )
    rig.until_idle()
    rig.stack.terminate(pool)


def test_a_task_at_a_waiting_seat_goes_back_while_the_running_task_holds_the_interpreter(
    rig: Rig, folder: Path
) -> None:
    start(rig, "seats", 1, "solo")
    rig.until_up("seats")
    (folder / "seats.end").touch()

    def open_seats() -> int:
        rig.until_state(submit(rig, "seats", "ticks", "seats"), "succeeded")
        return rig.store.nodes(rig.node("seats").partition)["seats"].ahead or 0

    rig.until(open_seats, "its tasks are short")
    id = submit(rig, "seats", "holds_in_c", "seats-held", HELD_S)
    behind = submit(rig, "seats", "ticks", "seats")
    rig.until(
        lambda: rig.status(behind).history, "it waited at a seat, which nobody shut, and went back"
    )
    assert rig.status(id).state == "running"
    (lost,) = rig.status(behind).history
    assert lost.why.startswith(NO_SIGN)
    assert [rig.until_state(task, "succeeded").starts for task in (id, behind)] == [1, 1]
    rig.until_idle()
    rig.stack.terminate("seats")


def test_a_stopped_worker_keeps_its_runs_and_gets_no_new_task(rig: Rig, folder: Path) -> None:
    start(rig, "stopped", slots=2)
    rig.until_up("stopped")
    inc = rig.node("stopped").inc
    id = submit(rig, "stopped", "ticks", "stopped")
    rig.until(lambda: read(folder / "stopped"), "it ticks")
    with rig.paused("stopped"):
        stopped_s = time.monotonic()
        rig.until(lambda: rig.node("stopped").state == "suspect", "it gives no sign of life")
        waits = submit(rig, "stopped", "ticks", "stopped")
        rig.until(lambda: time.monotonic() > stopped_s + 2 * LEASE_S, "two leases are over")
        before = len(read(folder / "stopped"))
        rig.until(lambda: len(read(folder / "stopped")) > before + 3, "what it runs goes on")
        assert rig.node("stopped").state == "suspect"
        assert rig.status(waits).state == "waiting"
        assert "it is suspect" in rig.status(waits).why
    (folder / "stopped.end").touch()
    assert [rig.until_state(task, "succeeded").starts for task in (id, waits)] == [1, 1]
    assert rig.node("stopped").inc == inc
    rig.until_idle()
    rig.stack.terminate("stopped")


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_worker_that_stands_still_past_the_limit_loses_its_runs_and_the_reason_is_shown(
    rig: Rig, folder: Path, pool: str
) -> None:
    """The log file has the reason before the kill, and the task's story has it after."""
    log = folder / f"{pool}.log"
    node = f"limit-{pool}"
    start(rig, node, 1, pool, "--logfile", str(log), PARSYNC_STANDSTILL_S=f"{LIMIT_S}")
    rig.until_up(node)
    if pool == "solo":
        id = submit(rig, node, "holds_in_c", node, 600)
        rig.until((folder / node).exists, "it has begun")
    else:
        id = submit(rig, node, "ticks", node)
        rig.until(lambda: read(folder / node), "it ticks")
        os.kill(rig.pid(node), signal.SIGSTOP)
    rig.until(
        lambda: re.search(
            rf"CRITICAL/Guard\] node {node}: {NO_SIGN} for {LIMIT_S:g} s", log.read_text()
        ),
        "why",
    )
    lost = rig.until_state(id, "waiting").history[-1]
    assert f"did not renew its lease for {LEASE_S:g} s; it was suspect: {NO_SIGN}" in lost.why, lost
    if pool == "solo":
        assert rig.stack.processes[node].popen.wait(60) == -signal.SIGKILL
        rig.client.cancel(id)
        return
    os.kill(rig.pid(node), signal.SIGCONT)
    (folder / f"{node}.end").touch()
    assert rig.until_state(id, "succeeded").starts == 2
    rig.until_idle()
    rig.stack.terminate(node)
