"""The guard by itself: it keeps the lease whatever its worker does; when it must end, the runs die with it."""

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from parsync_redis.model.node import NO_SIGN
from parsync_redis.model.place import Place
from parsync_redis.store import Store
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.worker.celery.isolated_pool import run_isolated
from parsync_redis.worker.isolation import guard_process
from parsync_redis.worker.isolation.locks import CAN_ISOLATE, lock_file
from parsync_redis.worker.isolation.tie import RunIsolation, tied
from parsync_redis.worker.isolation.timer import KILL_AFTER, now_s
from tests.kit import REPO
from tests.kit.driver import Driver
from tests.kit.guards import GuardedNode, ended_by, forked
from tests.kit.waiting import child_ended, read_some, until

pytestmark = pytest.mark.skipif(not CAN_ISOLATE, reason="isolation needs Linux")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return lock_file(tmp_path, "127.0.0.1_6379_0", "parsync", "n1")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the log file of the worker."""
    log = tmp_path / "worker.log"
    monkeypatch.setattr("parsync_redis.worker.isolation.machine.log_file", lambda: str(log))
    return log


@pytest.fixture
def make(server: EmbeddedServer, file: Path, log: Path) -> Iterator[Callable[..., GuardedNode]]:
    made: list[GuardedNode] = []

    def make(**options: Any) -> GuardedNode:
        made.append(GuardedNode(server.url, file, **options))
        return made[-1]

    yield make
    for guarded in made:
        guarded.close()


@pytest.fixture
def guarded(make: Callable[..., GuardedNode]) -> GuardedNode:
    return make()


def spinning(own: RunIsolation) -> int:
    """Start a pool process that runs a task without end, which lets no other thread of the process
    run; return its process id.
    """
    begun = Path(f"{own.lock_file}.begun")

    def task() -> None:
        begun.touch()
        while True:
            pass

    def work() -> None:
        sys.setswitchinterval(3600)
        run_isolated(own, {}, task)

    pid = forked(work)
    until(begun.exists, "the function has begun: its locks are held earlier than it is tied")
    return pid


def lives(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG) == (0, 0)


# -- the lease -------------------------------------------------------------------------------------


def test_a_lease_is_kept_and_a_run_lives_though_its_worker_gives_no_sign_of_life(
    guarded: GuardedNode,
) -> None:
    pid = spinning(guarded.renewed(2.0))
    before_s = now_s()
    until(lambda: now_s() > before_s + 3 * 2.0, "three leases without a sign of life are over")
    assert lives(pid)
    assert guarded.isolation.hindrance((1,)) == ""
    os.kill(pid, signal.SIGKILL)
    assert ended_by(pid) == signal.SIGKILL


@pytest.mark.parametrize("how", ["lapsed", "superseded", "unreachable"])
def test_a_run_is_killed_when_the_lease_cannot_be_renewed_and_the_log_says_why(
    guarded: GuardedNode, log: Path, server: EmbeddedServer, how: str
) -> None:
    """Nobody reads what the guard tells: the interpreter of its worker is held."""
    lease_s = 6.0  # the guard has a fiftieth of it to say why
    own = guarded.renewed(lease_s)
    pid = spinning(own)
    before_s = now_s()
    if how == "lapsed":
        guarded.give_up()
    elif how == "superseded":
        guarded.store.run(guarded.store.commands.register_node(0, "n1", 0, 1.0, "slots=4", 0))
    else:
        guarded.store.client.execute_command("CLIENT PAUSE", 60_000, "WRITE")
    assert ended_by(pid) == signal.SIGKILL
    guarded.store.client.execute_command("CLIENT UNPAUSE")
    assert now_s() - before_s >= (KILL_AFTER - 0.2) * lease_s - 0.5, (
        "the last renewal was up to 0.2 leases before"
    )
    why = {
        "lapsed": "has given the node up",
        "superseded": "another worker has registered",
        "unreachable": "no answer from the server",
    }
    text = log.read_text()
    assert f"node n1: its lease was not renewed for {KILL_AFTER * lease_s:g} s (" in text
    assert why[how] in text
    assert "CRITICAL" in text
    assert why[how] in guarded.isolation.why_lost(own.guard), (
        "the story of a task of a pool process, too"
    )


def test_a_run_and_a_guard_that_are_stopped_are_killed_all_the_same(guarded: GuardedNode) -> None:
    pid = spinning(guarded.renewed(10.0))
    for stopped in (pid, guarded.pid):
        os.kill(stopped, signal.SIGSTOP)
    assert ended_by(pid) == signal.SIGKILL, "without a SIGCONT"


def test_a_guard_that_died_gets_a_successor_which_keeps_the_lease(guarded: GuardedNode) -> None:
    assert (
        guarded.isolation.hindrance((0,)) == "the guard does not keep the lease of the node yet"
    ), "never yet"
    first = guarded.renewed()
    os.kill(guarded.pid, signal.SIGKILL)
    until(lambda: not Path(first.guard).exists(), "it is gone")
    assert "no run could be isolated: [Errno 2]" in guarded.isolation.hindrance((0,))
    until(
        lambda: guarded.isolation.why_lost(first.guard) == "its guard was killed",
        "the worker knows why a run is lost",
    )
    assert guarded.isolation.why_lost("/proc/1/fd/9") == ""
    with tied(guarded.renewed().guard):
        assert guarded.isolation.hindrance((0,)) == ""
    assert guarded.isolation.why_lost(first.guard) == "its guard was killed"


def test_after_leave_the_counter_moves_no_more_and_runs_are_tied_still(
    guarded: GuardedNode,
) -> None:
    own = guarded.renewed(2.0)
    guarded.isolation.leave(60)
    before = guarded.counter
    with open(own.guard, "wb", buffering=0):  # noqa: PTH123
        until(
            lambda: not Path(own.guard).exists(), "it has ended 0.8 leases after its last renewal"
        )
    assert guarded.counter == before


# -- a worker that stands still --------------------------------------------------------------------


def placed(guarded: GuardedNode, id: str, slot: int) -> Place:
    """Place a task that holds a slot of n1, and has not begun; return its place."""
    drive = Driver(guarded.store)
    drive.submit(id)
    place = drive.held(id, drive.take()[id], slots=(slot,))
    assert drive.confirm(place) == "placed"
    return place


@pytest.mark.parametrize("shards", [1, 16])
def test_a_worker_that_stands_still_is_suspect_and_returns_unstarted_tasks_until_it_is_trusted_again(
    make: Callable[..., GuardedNode], log: Path, shards: int
) -> None:
    guarded = make(shards=shards)
    drive = Driver(guarded.store)
    assert shards == 1 or guarded.store.keys.shard_of("waits"), "not the first"
    guarded.renewed()  # the node is not suspect before all tasks are placed
    runs = placed(guarded, "runs", 0)
    waits = placed(guarded, "waits", 1)
    assert drive.start(runs) == "ok"
    guarded.give_sign(2.0)
    until(lambda: guarded.state == "suspect", "no sign came")
    assert drive.hash("notes")["n1"].startswith(NO_SIGN)
    until(lambda: drive.state("waits") == "pending", "it goes back")
    assert drive.status("waits").why.startswith(NO_SIGN)
    assert drive.bits(4) == "0000", "nothing is placed here"
    assert drive.state("runs") == "running"
    assert drive.start(waits) == "refused"
    before = guarded.counter
    until(lambda: guarded.counter > before + 2, "its lease is kept")
    guarded.give_sign(2.0)
    until(
        lambda: (guarded.state, drive.bits(4)) == ("up", "0111"),
        "it gives a sign of life, and gets tasks",
    )
    assert "n1" not in drive.hash("notes")
    until(lambda: "gives signs of life again" in log.read_text(), "the log says so")
    assert drive.finish(runs) == "ok"


def test_a_worker_that_stands_still_past_the_limit_is_ended_with_its_runs_and_the_log_says_why(
    make: Callable[..., GuardedNode], log: Path
) -> None:
    guarded = make(standstill_s=4.0)
    pid = spinning(guarded.renewed(2.0))
    began_s = now_s()
    assert ended_by(pid) == signal.SIGKILL
    assert now_s() - began_s >= 4.0 - 0.5
    assert f"CRITICAL/Guard] node n1: {NO_SIGN} for 4 s" in log.read_text()
    assert guarded.state == "suspect", "the leader says why it was lost"
    assert "after 4 s it is ended" in Driver(guarded.store).hash("notes")["n1"]


def test_a_guard_that_takes_over_trusts_a_node_that_an_earlier_one_has_marked(
    guarded: GuardedNode,
) -> None:
    guarded.store.run(
        guarded.store.commands.set_node(0, "n1", "suspect", guarded.inc, f"{NO_SIGN}: x")
    )
    guarded.renewed()
    until(lambda: guarded.state == "up", "its worker gives signs of life")


def test_a_node_is_trusted_again_though_the_server_has_lost_the_write_that_trusted_it(
    guarded: GuardedNode,
) -> None:
    guarded.renewed(2.0)
    until(
        lambda: guarded.give_sign(2.0) and "n1" not in Driver(guarded.store).hash("notes"),
        "nothing is unsure",
    )
    guarded.store.run(
        guarded.store.commands.set_node(0, "n1", "suspect", guarded.inc, f"{NO_SIGN}: x")
    )
    until(
        lambda: (guarded.give_sign(2.0), guarded.state)[1] == "up", "its worker gives signs of life"
    )


def test_a_guard_does_not_trust_a_node_that_the_leader_suspects(guarded: GuardedNode) -> None:
    guarded.renewed(2.0)
    guarded.store.run(
        guarded.store.commands.set_node(
            0, "n1", "suspect", guarded.inc, "three tasks were lost in a row"
        )
    )
    before = guarded.counter
    until(lambda: (guarded.give_sign(2.0), guarded.counter)[1] > before + 3, "its lease is kept")
    assert guarded.state == "suspect"


def test_a_new_guard_does_not_trust_a_node_that_the_leader_suspects(guarded: GuardedNode) -> None:
    guarded.store.run(
        guarded.store.commands.set_node(
            0, "n1", "suspect", guarded.inc, "three tasks were lost in a row"
        )
    )
    before = guarded.counter
    guarded.renewed(2.0)
    until(lambda: (guarded.give_sign(2.0), guarded.counter)[1] > before + 3, "its lease is kept")
    assert guarded.state == "suspect"


def test_a_worker_with_more_descriptors_than_select_takes_has_a_guard(
    make: Callable[..., GuardedNode],
) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most[1]), most[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert make().renewed(2.0).guard
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_a_node_is_suspect_while_its_worker_reports_a_still_event_loop(
    guarded: GuardedNode,
) -> None:
    guarded.give_sign(still="its event loop stands still; it waits in x.y")
    until(lambda: guarded.state == "suspect", "it says so")
    guarded.give_sign()
    until(lambda: guarded.state == "up", "it turns")


# -- nothing holds it up ---------------------------------------------------------------------------


def test_a_guard_needs_no_file_after_its_start(
    server: EmbeddedServer, file: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade may replace the package; and a lease is not to wait for scripts."""
    package = tmp_path / "package"
    for name in ("parsync_redis", "lua"):
        shutil.copytree(REPO / name, package / name)
    paths = [str(package), *(path for path in guard_process._paths() if path != str(REPO))]
    monkeypatch.setattr(guard_process, "_paths", lambda: paths)
    guarded = GuardedNode(server.url, file)
    try:
        guarded.isolation.begin()
        shutil.rmtree(package)
        guarded.renewed(6.0)
        until(lambda: guarded.state == "suspect", "the guard renews, and judges the worker")
        alive = guarded.store.keys.partition(0, "alive")
        guarded.store.client.set(alive, "of another type")
        until(lambda: guarded.store.client.type(alive) != b"string", "the guard repairs damage")
    finally:
        guarded.close()


def fill(pipe: int) -> None:
    """Fill a pipe, so that it takes not one more byte."""
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b"\n")
    os.set_blocking(pipe, True)


def test_a_guard_renews_while_its_reports_are_unread_and_its_log_is_full(
    server: EmbeddedServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parsync_redis.worker.isolation.machine.log_file", lambda: "")
    reading, writing = os.pipe()
    fill(writing)
    stderr = os.dup(2)
    os.dup2(writing, 2)
    guarded = GuardedNode(server.url, file)
    try:
        guarded.isolation.begin()
    finally:
        os.dup2(stderr, 2)
    try:
        guarded.renewed(6.0)  # a busy machine may hold up the guard for seconds
        reports = os.open(f"/proc/{guarded.pid}/fd/1", os.O_WRONLY)
        fill(reports)
        os.close(reports)
        until(lambda: guarded.state == "suspect", "it has something to log")
        before = guarded.counter
        until(lambda: guarded.counter > before + 3, "it renews after both pipes are full")
        assert guarded.isolation.hindrance((0,)) == ""
    finally:
        guarded.close()
        for descriptor in (reading, writing, stderr):
            os.close(descriptor)


# -- its own life ----------------------------------------------------------------------------------


def test_the_guard_ends_with_its_worker_and_not_by_signals_that_are_for_the_worker(
    server: EmbeddedServer, file: Path
) -> None:
    """A child of the worker has inherited the pipe, and lives on."""

    def work() -> None:
        guarded = GuardedNode(server.url, file)
        guarded.renewed()
        child = forked(signal.pause)
        os.write(writing, f"{guarded.pid} {child}".encode())
        signal.pause()

    reading, writing = os.pipe()
    worker = forked(work)
    guard, child = (
        int(word) for word in read_some(reading, 100, "the guard and a child are there").split()
    )
    for name in ("INT", "TERM", "HUP", "QUIT", "TSTP"):
        os.kill(guard, getattr(signal, f"SIG{name}"))
    os.close(writing)
    os.close(reading)
    assert Path(f"/proc/{guard}/cmdline").read_bytes()
    os.kill(worker, signal.SIGKILL)
    child_ended(worker, "the killed worker")
    cmdline = Path(f"/proc/{guard}/cmdline")
    until(lambda: not cmdline.exists() or not cmdline.read_bytes(), "the guard is gone")
    os.kill(child, signal.SIGKILL)


def test_a_process_whose_run_has_ended_outlives_the_guard(guarded: GuardedNode) -> None:
    tie = guarded.renewed().guard

    def work() -> None:
        with tied(tie):
            child = forked(signal.pause)  # the child has inherited the tie
        os.kill(guarded.pid, signal.SIGKILL)
        until(lambda: not os.path.exists(tie), "the guard is gone")  # noqa: PTH110
        os.kill(child, signal.SIGKILL)
        os._exit(7)

    assert (
        os.waitstatus_to_exitcode(child_ended(forked(work), "a run that outlives its guard")) == 7
    )


def test_the_guard_shows_no_secret_and_runs_no_code_of_the_app(
    server: EmbeddedServer, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "redis", "queue", "sitecustomize", "parsync_redis"):
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/ran', 'a').write('{name}')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    with Store.from_url(server.url, "x").client as client:
        client.execute_command("ACL SETUSER guarded on >pass-phrase ~* &* +@all")
    guarded = GuardedNode(server.url.replace("redis://", "redis://guarded:pass-phrase@"), file)
    try:
        guarded.renewed()
        told = (
            Path(f"/proc/{guarded.pid}/cmdline").read_bytes()
            + Path(f"/proc/{guarded.pid}/environ").read_bytes()
        )
        assert b"guard.py" in told
        assert b"pass-phrase" not in told
        assert not (tmp_path / "ran").exists()
    finally:
        guarded.close()
