"""A slot runs one thing at a time, and a run whose lease is not renewed is dead before the lease is
over: promise 2, 7.

Workers are stopped past their lease and go on (F9), with a successor of the same name at work
meanwhile (F10), are cut off from the server (F15), and tasks leave processes behind (F27). The
locks and the guard each hold by themselves; a slot that has neither shows that the tests would see
two runs.
"""

import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.rig import LEASE_S as RIG_LEASE_S
from tests.kit.rig import Rig
from tests.kit.servers import PRIMARIES

LEASE_S = 3 * RIG_LEASE_S
"""A test pauses a worker for a third of it, and a busy machine for longer.

The last renewal may be a fifth of a lease old by then; nothing is killed as long as one succeeds in
every 0.6 leases.
"""

pytestmark = pytest.mark.serial
APP = "tests.kit.apps.isolation"


class Tick(NamedTuple):
    """A moment in which a run lived."""

    node: str
    slot: int
    attempt: str
    pid: int
    at_s: float


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("isolation")


@pytest.fixture(scope="module")
def rig(new_rig: Callable[..., Rig], folder: Path) -> Rig:
    rig = new_rig(TEST_ISOLATION_FOLDER=str(folder), PARSYNC_LOCK_DIR=str(folder / "machine"))
    rig.schedulers(1, lease_s=LEASE_S)
    return rig


def start(
    rig: Rig, node: str, slots: int = 1, pool: str = "prefork", *flags: str, **env: str
) -> None:
    """Start a worker as this node, with a label of that name, and flags and variables
    of its own.
    """
    command = [
        "env",
        *(f"{name}={value}" for name, value in env.items()),
        sys.executable,
        "-m",
        "celery",
        "-A",
        APP,
        "worker",
        "-P",
        pool,
        "-c",
        str(slots),
        "--parsync-node",
        node,
        "--parsync-slots",
        str(slots),
        "--parsync-label",
        f"kind={node}",
        "-n",
        f"{node}@%h",
        "-l",
        "info",
        "--without-mingle",
        "--without-gossip",
        "--without-heartbeat",
        *flags,
    ]
    rig.stack.start(node, command)


def submit(rig: Rig, node: str, task: str, *args: Any) -> str:
    return rig.client.submit(f"{APP}.{task}", args, require={"kind": node})


def read(path: Path) -> list[Tick]:
    """Return the ticks in a file, in their order."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    ticks = [
        Tick(node, int(slot), attempt, int(pid), float(at_s))
        for node, slot, attempt, pid, at_s in rows
    ]
    return sorted(ticks, key=lambda tick: tick.at_s)


def overlaps(ticks: Iterable[Tick]) -> list[Tick]:
    """Return the ticks of runs that were no longer the last to begin in their slot."""
    found = []
    began = dict[tuple[str, int], list[int]]()
    for tick in ticks:
        pids = began.setdefault((tick.node, tick.slot), [])
        if tick.pid not in pids:
            pids.append(tick.pid)
        elif tick.pid != pids[-1]:
            found.append(tick)
    return found


def test_the_checker_sees_two_runs_in_one_slot() -> None:
    fine = [
        Tick("n", 0, "1", 1, 0.0),
        Tick("n", 0, "1", 1, 0.1),
        Tick("n", 1, "3", 3, 0.15),
        Tick("n", 0, "2", 2, 0.2),
    ]
    late = Tick("n", 0, "1", 1, 0.3)
    assert overlaps(fine) == []
    assert overlaps([*fine, late, fine[2]]) == [late]


# -- a paused worker and its successor (F9, F10) ---------------------------------------------------

BOTH, LOCKED, GUARDED, NEITHER = range(4)
"""The slots of a node, by what of the isolation is left to them."""


@pytest.fixture(scope="module")
def zombie(rig: Rig, folder: Path) -> tuple[list[Tick], float, set[int]]:
    """Stop a worker with tasks in four slots past its lease while a successor takes its name, and
    let it go on.

    Return all ticks; when the pool processes of the older worker went on; their ids.
    """
    env = {"TEST_UNLOCKED": f"{GUARDED} {NEITHER}", "TEST_UNGUARDED": f"{LOCKED} {NEITHER}"}
    ids = []

    def running() -> dict[int, int]:
        """Return the process that ticked last in each slot."""
        return {tick.slot: tick.pid for tick in read(folder / "zombie")}

    start(rig, "zombie", slots=4, **env)
    rig.until_up("zombie")
    ids = [submit(rig, "zombie", "ticks", "zombie") for _ in range(4)]
    rig.until(lambda: len(running()) == 4, "all four slots tick")
    old = running()
    inc = rig.node("zombie").inc
    older = rig.stack.processes["older"] = rig.stack.processes.pop("zombie")
    os.killpg(older.popen.pid, signal.SIGSTOP)
    stopped_s = time.monotonic()
    start(rig, "zombie", slots=4, **env)
    rig.until(lambda: rig.node("zombie").inc > inc, "the successor has registered")
    others = (BOTH, GUARDED, NEITHER)
    rig.until(
        lambda: all(running()[slot] != old[slot] for slot in others), "it runs tasks where it may"
    )
    rig.until(lambda: time.monotonic() > stopped_s + 1.2 * LEASE_S, "the lease is over")
    assert running()[LOCKED] == old[LOCKED]
    went_on_s = time.monotonic()
    before = len(read(folder / "zombie"))
    for pid in old.values():
        # the pool processes go on first: the worker would end their runs
        os.kill(pid, signal.SIGCONT)
    rig.until(
        lambda: len([t for t in read(folder / "zombie")[before:] if t.pid in old.values()]) > 4,
        "old runs go on",
    )
    os.killpg(older.popen.pid, signal.SIGCONT)
    rig.until(lambda: not older.alive, "the older has ended")
    rig.until(lambda: running()[LOCKED] != old[LOCKED], "its last slot is run in by the successor")
    (folder / "zombie.end").touch()
    for id in ids:
        rig.until_state(id, "succeeded")
    rig.until_idle()
    rig.stack.terminate("zombie")
    return read(folder / "zombie"), went_on_s, set(old.values())


@pytest.mark.parametrize("slot", [BOTH, GUARDED])
def test_a_run_that_was_paused_past_its_lease_does_not_tick_again(zombie: Any, slot: int) -> None:
    ticks, went_on_s, old = zombie
    assert [
        tick for tick in ticks if tick.slot == slot and tick.pid in old and tick.at_s >= went_on_s
    ] == []
    assert len({tick.pid for tick in ticks if tick.slot == slot}) >= 2, "another ran there"


@pytest.mark.parametrize("slot", [BOTH, LOCKED, GUARDED])
def test_the_locks_or_the_guard_alone_keep_two_runs_out_of_one_slot(zombie: Any, slot: int) -> None:
    ticks, went_on_s, old = zombie
    assert overlaps(tick for tick in ticks if tick.slot == slot) == []
    if slot == LOCKED:
        assert [
            tick
            for tick in ticks
            if tick.slot == slot and tick.pid in old and tick.at_s >= went_on_s
        ]


def test_without_isolation_two_runs_are_seen_in_one_slot(zombie: Any) -> None:
    ticks, _, _ = zombie
    assert overlaps(tick for tick in ticks if tick.slot == NEITHER)


# -- processes that a task leaves behind (F27) -----------------------------------------------------


def test_a_slot_with_a_surviving_program_is_not_given_away_until_the_program_ends(
    rig: Rig, folder: Path
) -> None:
    start(rig, "leaves", slots=2)
    rig.until_up("leaves")
    rig.until_state(submit(rig, "leaves", "leaves", "left"), "succeeded")
    slot, pid = (int(word) for word in (folder / "left").read_text().split())
    assert [lease.slot for lease in rig.leases()] == [slot], (
        "the outcome was not held back, the slot is"
    )
    rig.until(
        lambda: f"(processes [{pid}])" in rig.lines("leaves"),
        "the operator is told, once, what lives there",
    )
    assert rig.until_state(submit(rig, "leaves", "leaves", "other"), "succeeded").slot == 1 - slot
    other = int((folder / "other").read_text().split()[1])
    waits = submit(rig, "leaves", "ticks", "waits")
    rig.stack.kill("leaves")
    start(rig, "leaves", slots=2)
    rig.until(
        lambda: "still lives" in rig.lines("leaves"), "its successor finds both slots occupied"
    )
    assert rig.status(waits).starts == 0
    os.kill(pid, signal.SIGKILL)
    assert rig.until_state(waits, "running").slot == slot
    (folder / "waits.end").touch()
    rig.until_state(waits, "succeeded")
    assert rig.lines("leaves").count("still lives") <= 2, "once a slot"
    os.kill(other, signal.SIGKILL)
    rig.until_idle()
    rig.stack.terminate("leaves")


# -- runs that cannot begin ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(rig: Rig, folder: Path) -> Iterator[Path]:
    """Start a worker of one process; yield its folder of locks."""
    own = folder / "own"
    start(rig, "bare", PARSYNC_LOCK_DIR=str(own))
    rig.until_up("bare")
    yield own
    rig.stack.terminate("bare")


def test_no_run_starts_while_the_folder_of_locks_is_missing_and_cannot_be_created(
    rig: Rig, folder: Path, bare: Path
) -> None:
    shutil.rmtree(bare)
    bare.symlink_to(folder / "nowhere")
    id = submit(rig, "bare", "ticks", "housed")
    rig.until(lambda: "no run could be isolated" in rig.lines("bare"), "its agent sees it")
    assert rig.status(id).starts == 0
    bare.unlink()
    assert rig.until_state(id, "running").starts == 1
    (folder / "housed.end").touch()
    rig.until_state(id, "succeeded")
    assert "could not begin" not in rig.lines("bare")
    rig.until_idle()


def test_a_run_that_could_not_begin_costs_its_task_no_start_and_its_slot_is_shut_for_a_while(
    rig: Rig, folder: Path, bare: Path
) -> None:
    """The hindrance is one that only the pool process can meet."""
    rig.until_state(submit(rig, "bare", "uses_up_descriptors", "used"), "succeeded")
    id = submit(rig, "bare", "ticks", "begins")
    rig.until(lambda: "node bare: it could not begin" in rig.lines("bare"), "the slot is shut")
    status = rig.status(id)
    assert status.starts == 0
    assert any("could not begin: [Errno 24]" in lost.why for lost in status.history), status
    assert rig.lines("bare").count("could not begin ([Errno 24]") == 1
    os.kill(int((folder / "used").read_text()), signal.SIGKILL)
    assert rig.until_state(id, "running").starts == 1
    (folder / "begins.end").touch()
    rig.until_state(id, "succeeded")
    rig.until_idle()


# -- a worker that is cut off (F15), and one that is only slow -------------------------------------


class Wire:
    """A way to the server that can be cut without a word: bytes then go nowhere, in either
    direction.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self.whole = threading.Event()
        self.whole.set()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._socket.accept()  # limit: in a daemon thread
            except OSError:
                return
            theirs = socket.create_connection(("127.0.0.1", self._to))
            for ends in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):  # limit: in a daemon thread, and so is the next
                self.whole.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            sink.close()

    def close(self) -> None:
        self.whole.set()
        self._socket.close()


@pytest.fixture(scope="module")
def wire(rig: Rig) -> Iterator[Wire]:
    """Yield a wire, behind which are a worker of processes and one of threads."""
    if PRIMARIES:
        pytest.skip("a wire leads to one server")
    wire = Wire(int(rig.redis.connection_pool.connection_kwargs["port"]))
    url = f"redis://127.0.0.1:{wire.port}/0"
    for pool in POOLS:
        start(rig, pool, slots=2, pool=pool, PARSYNC_URL=url, CELERY_BROKER_URL=url)
    rig.until_up(*POOLS)
    yield wire
    wire.close()


POOLS = ("prefork", "threads")


def test_a_pause_of_a_third_of_a_lease_and_a_task_that_lets_no_thread_run_kill_nothing(
    rig: Rig, folder: Path, wire: Wire
) -> None:
    ids = [submit(rig, pool, "ticks", f"slow-{pool}") for pool in POOLS]
    ids.append(submit(rig, "prefork", "holds_the_interpreter", "held", 2 * LEASE_S))
    rig.until(lambda: all(len(read(folder / f"slow-{pool}")) > 5 for pool in POOLS), "they tick")
    wire.whole.clear()
    time.sleep(LEASE_S / 3)
    wire.whole.set()
    rig.until(lambda: (folder / "held").exists(), "one has held its interpreter for two leases")
    for pool in POOLS:
        (folder / f"slow-{pool}.end").touch()
    assert [rig.until_state(id, "succeeded").starts for id in ids] == [1, 1, 1]
    rig.until_idle()


def test_a_worker_cut_off_from_the_server_kills_its_runs_before_its_lease_ends(
    rig: Rig, folder: Path, wire: Wire
) -> None:
    ids = {pool: submit(rig, pool, "ticks", f"cut-{pool}") for pool in POOLS}
    files = {pool: folder / f"cut-{pool}" for pool in POOLS}
    rig.until(lambda: all(len(read(files[pool])) > 5 for pool in POOLS), "they tick")
    wire.whole.clear()
    cut_s = time.monotonic()
    for pool in POOLS:
        rig.until(lambda pool=pool: rig.node(pool).state == "down", "the leader gave the node up")  # type: ignore[misc]
        down_s = time.monotonic()
        last = read(files[pool])[-1]
        print(
            f"{pool}: last tick {last.at_s - cut_s:.2f} s after the cut, given up after "
            f"{down_s - cut_s:.2f} s"
        )
        assert last.at_s < down_s
        assert not lives(last.pid)
    wire.whole.set()
    old = {pool: read(files[pool])[-1].pid for pool in POOLS}
    rig.until(
        lambda: {tick.pid for tick in read(files["prefork"])} > {old["prefork"]}, "it runs again"
    )
    files["prefork"].with_suffix(".end").touch()
    assert rig.until_state(ids["prefork"], "succeeded").starts == 2
    assert rig.stack.processes["threads"].popen.poll() == -signal.SIGKILL, (
        "the worker itself was the run's process"
    )
    assert rig.until_state(ids["threads"], "waiting").starts == 1
    rig.client.cancel(ids["threads"])


def lives(pid: int) -> bool:
    """Return whether a process runs: a killed one for which nobody waited does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def guard_of(worker: int) -> int:
    """Return the process id of a worker's guard."""
    children = Path(f"/proc/{worker}/task").glob("*/children")
    pids = [int(pid) for file in children for pid in file.read_text().split()]
    (guard,) = [pid for pid in pids if b"guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return guard


def test_a_worker_whose_guard_is_killed_reports_its_runs_and_starts_a_new_guard(
    rig: Rig, folder: Path
) -> None:
    start(rig, "bereft")
    rig.until_up("bereft")
    id = submit(rig, "bereft", "ticks", "bereft")
    rig.until(lambda: read(folder / "bereft"), "it ticks")
    os.kill(guard_of(rig.pid("bereft")), signal.SIGKILL)
    rig.until(lambda: rig.status(id).history, "the run died with it")
    assert rig.status(id).history[0].why == "it was killed: its guard was killed"
    rig.until_state(id, "running")
    (folder / "bereft.end").touch()
    assert rig.until_state(id, "succeeded").starts == 2
    rig.until_idle()
    rig.stack.terminate("bereft")
