"""Children of a worker beside its forks: no start hangs, no forked process keeps a pipe, no wait is
without a limit.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from subprocess import PIPE

import pytest
from celery import Celery
from kombu.utils.objects import cached_property as kombu_cached_property

import parsync_redis.worker
from parsync_redis.client import ParsyncClient
from parsync_redis.integration.app import Parsync
from parsync_redis.settings import Settings
from parsync_redis.worker.children import no_fork, start_child
from parsync_redis.worker.isolation import guard_process
from parsync_redis.worker.isolation.guard_process import DEAF, GuardProcess
from parsync_redis.worker.isolation.guarding import Guarded
from parsync_redis.worker.isolation.locks import CAN_ISOLATE
from parsync_redis.worker.node.lease import Order
from tests.kit.guards import forked
from tests.kit.waiting import child_ended, ended, happened, joined, run

WORKER = Path(parsync_redis.worker.__file__).parent
isolates = pytest.mark.skipif(not CAN_ISOLATE, reason="isolation needs Linux")


@pytest.fixture
def guard() -> Iterator[GuardProcess]:
    """Yield a guard whose server is away."""
    guard = GuardProcess(guarded())
    yield guard
    if guard._process.returncode is None:
        os.kill(guard.pid, signal.SIGKILL)
        guard.end()


def guarded() -> Guarded:
    return Guarded("n1", "redis://127.0.0.1:1/0", "cluster", 60, 3, 60.0, worker=os.getpid())


@isolates
def test_no_start_of_a_process_hangs_beside_a_forking_pool() -> None:
    command = [sys.executable, "-m", "tests.kit.fork_race", "--starts", "300", "--guards", "3"]
    done = run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_worker_starts_processes_by_one_function_only() -> None:
    """The search for devices runs before there is a thread or a pool."""
    starts = re.compile(
        r"\bPopen\(|subprocess\.(run|call|check_\w+)\(|posix_spawn|os\.popen|os\.fork\("
    )
    found = {file.name for file in WORKER.rglob("*.py") if starts.search(file.read_text())}
    assert found == {"children.py", "nvidia.py"}


def test_a_forked_process_keeps_no_pipe_of_a_child() -> None:
    child = start_child(["/bin/cat"], stdin=PIPE, stdout=PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    pool = forked(signal.pause)
    try:
        child.stdin.close()
        ended(child, "cat reads the end of its input, as no other process has the writing end")
    finally:
        os.kill(pool, signal.SIGKILL)
        child_ended(pool)
        child.stdout.close()


def test_a_thread_that_forbids_forks_may_fork_and_its_child_may_fork() -> None:
    def fork_and_start() -> None:
        with no_fork():
            pid = forked(lambda: os._exit(ended(start_child(["/bin/true"])) + 7))
        os._exit(os.waitstatus_to_exitcode(child_ended(pid)))

    def fork() -> None:
        with no_fork():
            pid = forked(fork_and_start)
        os._exit(os.waitstatus_to_exitcode(child_ended(pid)))

    assert os.waitstatus_to_exitcode(child_ended(forked(fork))) == 7


def test_a_child_may_fork_and_start_though_a_signal_interrupted_the_wait_of_its_fork() -> None:
    """CPython forks all the same, while another thread of the parent has the lock."""

    def interrupt(*_: object) -> None:
        raise InterruptedError("by a signal")

    def fork() -> None:
        locked = threading.Event()
        go_on = threading.Event()

        def start_slowly() -> None:
            with no_fork():
                locked.set()
                happened(go_on, "the parent has forked")

        thread = threading.Thread(target=start_slowly)
        thread.start()
        happened(locked, "another thread lets nobody fork")
        # what the signal handler raised, and the lock that was not held
        sys.unraisablehook = lambda _: None
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        pid = forked(
            lambda: os._exit(
                ended(start_child(["/bin/true"])) + os.WEXITSTATUS(child_ended(forked(seven)))
            )
        )
        go_on.set()
        joined(thread)
        with no_fork():
            os._exit(os.waitstatus_to_exitcode(child_ended(pid)))

    def seven() -> None:
        os._exit(7)

    assert os.waitstatus_to_exitcode(child_ended(forked(fork))) == 7


class Shared:
    """Objects with values that are made once: a thread makes them, and so does a forked process."""

    def __init__(self, make: Callable[[], int]) -> None:
        self.make = make

    @cached_property
    def of_python(self) -> int:
        """Make a value once; a lock of all instances is held meanwhile (Python 3.11)."""
        return self.make()

    @kombu_cached_property
    def of_kombu(self) -> int:
        """Make a value once; a lock of all instances is held then and at each later reading."""
        return self.make()


@pytest.mark.parametrize("name", ["of_python", "of_kombu"])
def test_a_pool_process_reads_a_property_that_a_thread_was_making_at_its_fork(name: str) -> None:
    making = threading.Event()
    go_on = threading.Event()

    def make_slowly() -> int:
        making.set()
        happened(go_on, "the parent has forked")
        return 1

    thread = threading.Thread(target=getattr, args=(Shared(make_slowly), name))
    thread.start()
    happened(making, "a thread makes the value")
    pid = forked(lambda: os._exit(getattr(Shared(lambda: 7), name)))
    go_on.set()
    joined(thread)
    assert os.waitstatus_to_exitcode(child_ended(pid)) == 7


@pytest.mark.parametrize("name", ["of_python", "of_kombu"])
def test_a_thread_that_forks_while_it_makes_a_property_goes_on_in_both_processes(name: str) -> None:
    def make() -> int:
        pid = os.fork()
        return 7 if pid == 0 else os.waitstatus_to_exitcode(child_ended(pid))

    pid = forked(lambda: os._exit(getattr(Shared(make), name)))
    assert os.waitstatus_to_exitcode(child_ended(pid)) == 7


def test_a_pool_process_makes_a_client_of_its_app_while_a_thread_was_making_one_at_its_fork() -> (
    None
):
    parent = os.getpid()
    making = threading.Event()
    go_on = threading.Event()

    class SlowParsync(Parsync):
        def settings(self) -> Settings:
            if os.getpid() == parent:
                making.set()
                happened(go_on, "the parent has forked")
            return super().settings()

    parsync = SlowParsync(Celery("slow"), url="redis://127.0.0.1:1/0")
    thread = threading.Thread(target=lambda: parsync.client)
    thread.start()
    happened(making, "a thread makes the client")
    pid = forked(lambda: os._exit(7 if isinstance(parsync.client, ParsyncClient) else 8))
    go_on.set()
    joined(thread)
    assert os.waitstatus_to_exitcode(child_ended(pid)) == 7


@isolates
def test_a_guard_that_reads_nothing_is_killed_before_its_worker_waits_for_it(
    guard: GuardProcess,
) -> None:
    os.kill(guard.pid, signal.SIGSTOP)
    order = Order(0, 1, 10.0)
    for _ in range(100_000):
        if guard.ended:
            break
        guard.send(order)
    assert guard.words == DEAF


@isolates
def test_the_end_of_a_guard_that_does_not_end_is_not_waited_for(
    guard: GuardProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_process, "GUARD_END_S", 0.1)
    os.kill(guard.pid, signal.SIGSTOP)
    guard.end()
    assert guard._process.returncode == -signal.SIGKILL


@isolates
def test_a_guard_that_is_not_ready_in_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_process, "GUARD_START_S", 0.0)
    before = children_of(os.getpid())
    with pytest.raises(OSError, match="did not start: it was not ready after 0 s"):
        GuardProcess(guarded())
    assert children_of(os.getpid()) == before


def children_of(pid: int) -> set[str]:
    return {
        child
        for file in Path(f"/proc/{pid}/task").glob("*/children")
        for child in file.read_text().split()
    }
