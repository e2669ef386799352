"""Isolation by itself: locks that children inherit, a guard that the kernel kills, runs that die
with it.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import Ignore

from parsync_redis import InvalidInput
from parsync_redis.store.server.embedded import EmbeddedServer
from parsync_redis.worker.celery.isolated_pool import IsolatedPool, run_isolated
from parsync_redis.worker.isolation.locks import (
    CAN_ISOLATE,
    SlotBusy,
    busy_slots,
    hold,
    holders,
    lock_file,
    locks_folder,
    open_locks,
)
from parsync_redis.worker.isolation.tie import NotBegun, RunIsolation
from tests.kit.guards import GuardedNode, forked
from tests.kit.waiting import child_ended, child_stopped, until

pytestmark = pytest.mark.skipif(not CAN_ISOLATE, reason="isolation needs Linux")
PATIENCE_S = 180.0
ENDS_S = 60.0
"""The limit for a child that is killed, or that its guard kills after some seconds."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return lock_file(tmp_path, "127.0.0.1_6379_0", "parsync", "n1")


@pytest.fixture
def null_stdin() -> Iterator[None]:
    """Make the standard input of this process the null device, as in a pool process."""
    before = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    yield
    os.dup2(before, 0)
    os.close(before)
    os.close(null)


@pytest.fixture
def guarded(server: EmbeddedServer, file: Path) -> Iterator[GuardedNode]:
    guarded = GuardedNode(server.url, file)
    yield guarded
    guarded.close()


# -- locks -----------------------------------------------------------------------------------------


def test_each_slot_has_its_own_exclusive_lock(file: Path) -> None:
    with hold(str(file), (1, 3), False):
        assert busy_slots(file, range(5)) == [1, 3]
        with pytest.raises(SlotBusy, match="in slot 3 a process of an earlier run still lives"):
            open_locks(file, (2, 3))
        with hold(str(file), (2, 4), False):
            assert busy_slots(file, range(5)) == [1, 2, 3, 4]
    assert busy_slots(file, range(5)) == []


def test_one_descriptor_holds_as_many_slots_as_a_task_may_ask_for(file: Path) -> None:
    with hold(str(file), range(10_000), False):
        assert len(busy_slots(file, range(10_000))) == 10_000


def test_nodes_clusters_and_servers_have_files_of_their_own(tmp_path: Path) -> None:
    names = [
        ("a_6379_0", "c", "n1"),
        ("a_6379_0", "c", "n2"),
        ("a_6379_0", "d", "n1"),
        ("a_6379_1", "c", "n1"),
    ]
    files = [lock_file(tmp_path, *name) for name in names]
    assert len(set(files)) == 4
    descriptors = [open_locks(file, (0,)) for file in files]
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_lock_of_the_whole_file_locks_every_slot(file: Path) -> None:
    file.parent.mkdir(parents=True)
    with file.open("a") as whole:
        fcntl.flock(whole, fcntl.LOCK_EX)
        assert holders(file, (7,)) == [os.getpid()]
    assert holders(file, (7,)) == []


def test_a_stopped_process_holds_its_slots_and_a_killed_one_does_not(file: Path) -> None:
    def work() -> None:
        with hold(str(file), (0,), False):
            signal.pause()

    pid = forked(work)
    until(lambda: busy_slots(file, (0,)), "the child holds it")
    os.kill(pid, signal.SIGSTOP)
    child_stopped(pid)
    assert busy_slots(file, (0,)) == [0]
    assert holders(file, (0,)) == [pid]
    assert holders(file, (1,)) == []
    os.kill(pid, signal.SIGKILL)
    child_ended(pid)
    assert busy_slots(file, (0,)) == []


SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]


class Forked:
    """A child by fork, with the two words of a process that the tests use."""

    def __init__(self) -> None:
        self.pid = forked(lambda: time.sleep(60))

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        child_ended(self.pid, patience_s=timeout)


CHILDREN: dict[str, Callable[[], Any]] = {
    "fork": Forked,
    "subprocess": lambda: subprocess.Popen(SLEEP),
    "subprocess with pipes": lambda: subprocess.Popen(
        SLEEP, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ),
    "subprocess in a session of its own": lambda: subprocess.Popen(SLEEP, start_new_session=True),
    "multiprocessing, forked": lambda: started(
        get_context("fork").Process(target=time.sleep, args=(60,))
    ),
}


def started(process: Any) -> Any:
    process.start()
    process.wait = process.join
    return process


@pytest.mark.parametrize("how", CHILDREN)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_started_by_a_run_holds_the_runs_slots_afterwards(
    file: Path, null_stdin: None, how: str
) -> None:
    with hold(str(file), (1, 2), True):
        child = CHILDREN[how]()
    assert busy_slots(file, range(4)) == [1, 2]
    assert holders(file, (2,)) == [child.pid]
    child.kill()
    child.wait(timeout=ENDS_S)
    assert busy_slots(file, range(4)) == []


def test_a_child_that_is_given_another_standard_input_escapes(file: Path, null_stdin: None) -> None:
    with hold(str(file), (1,), True):
        child = subprocess.Popen(SLEEP, stdin=subprocess.DEVNULL)
    assert busy_slots(file, (1,)) == []
    child.kill()
    child.wait(timeout=ENDS_S)


def test_standard_input_is_left_alone_unless_it_is_the_null_device(
    file: Path, null_stdin: None
) -> None:
    reading, writing = os.pipe()
    null = os.dup(0)
    os.dup2(reading, 0)
    with hold(str(file), (1,), True):
        os.write(writing, b"x")
        assert os.read(0, 1) == b"x"  # limit: it was written
    os.dup2(null, 0)
    with hold(str(file), (1,), True):
        # limit: it is a file
        assert os.read(0, 1) == b"", "an empty file, as the null device is"
        assert os.path.sameopenfile(0, null) is False
    assert os.path.sameopenfile(0, null)
    for descriptor in (reading, writing, null):
        os.close(descriptor)


def test_a_folder_of_locks_that_others_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: Any
) -> None:
    mine = tmp_path / "a" / "b"
    assert locks_folder(mine) == mine
    (tmp_path / "file").touch()
    with pytest.raises(
        InvalidInput, match=r"will not do \(File exists\): PARSYNC_LOCK_DIR names another"
    ):
        locks_folder(tmp_path / "file")
    with pytest.raises(InvalidInput, match=r"will not do \(Not a directory\)"):
        locks_folder(tmp_path / "file" / "x")
    default = tmp_path / "default"
    monkeypatch.setattr("parsync_redis.worker.isolation.locks.Path", lambda _: default)
    default.mkdir(mode=0o777)
    default.chmod(0o777)
    with pytest.raises(InvalidInput, match="only you can write to"):
        locks_folder(None)
    default.rmdir()
    default.symlink_to(mine)
    with pytest.raises(InvalidInput, match="only you can write to"):
        locks_folder(None)
    default.unlink()
    assert locks_folder(None) == default
    assert default.stat().st_mode & 0o777 == 0o700


# -- what the pool runs ----------------------------------------------------------------------------


def called(*args: Any) -> tuple[int, Any, float]:
    """Stand in for Celery's trace: return the outcome of a run, as a pool has it."""
    return 0, args, 0.0


def failure_of(
    isolation: RunIsolation | None, trace: Callable[..., object], *args: object
) -> tuple[int, Any, float]:
    """Return the value that a pool gets for a failed run."""
    found: Any = run_isolated(isolation, {}, trace, *args)
    return found


class Pool:
    """A pool that runs what it gets at once."""

    def apply_async(self, target: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> Any:
        return target(*args), options


def test_a_run_is_isolated_while_it_runs_and_not_after(guarded: GuardedNode, file: Path) -> None:
    guarded.renewed()
    isolation = guarded.isolation
    seen: list[list[int]] = []
    isolated: Any = IsolatedPool(Pool(), isolation.of((0, 1)), {})
    result, options = isolated.apply_async(
        lambda *a: (seen.append(busy_slots(file, (0, 1))), called(*a))[1], (1, 2), x=3
    )
    assert (result, options, seen) == ((0, (1, 2), 0.0), {"x": 3}, [[0, 1]])
    failed, error, _ = failure_of(isolation.of((0,)), raising)
    assert (failed, type(error.exception.exc)) == (1, Ignore), (
        "a pool of threads would say nothing of what it raises"
    )
    assert isolation.free((0, 1))


def raising() -> None:
    raise Ignore


def test_a_run_whose_slot_is_occupied_or_whose_guard_is_gone_is_not_called(
    guarded: GuardedNode, file: Path
) -> None:
    guarded.renewed()
    isolation = guarded.isolation
    own = isolation.of((0, 1))
    assert own is not None
    with hold(str(file), (1,), False):
        failed, error, _ = failure_of(own, pytest.fail, "it was called")
    assert (failed, repr(error.exception.exc)) == (
        1,
        repr(NotBegun("in slot 1 a process of an earlier run still lives")),
    )
    assert isolation.hindrance((0, 1)) == ""
    gone = RunIsolation(own.lock_file, own.slots, "/proc/0/fd/3", True)
    failed, error, _ = failure_of(gone, pytest.fail, "it was called")
    assert failed == 1
    assert isinstance(error.exception.exc, NotBegun)
    assert isolation.free((0, 1))
