"""Helpers that wait for a fact or for the end of a process, never without a limit."""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

PATIENCE_S: Final = 180.0
"""Seconds after which a fact, or the end of a process, counts as never to come."""


def until(fact: Callable[[], T], what: str = "", patience_s: float = PATIENCE_S) -> T:
    """Wait for a fact and return it; fail if it does not come."""
    began_s = time.monotonic()
    asked_s = began_s
    while not (found := fact()):
        now_s = time.monotonic()
        assert now_s < began_s + patience_s, (
            f"not seen within {patience_s:g} s: {what or fact.__doc__ or fact}"
        )
        pause(now_s - began_s, now_s - asked_s)
        asked_s = time.monotonic()
    return found


def pause(waited_s: float, took_s: float) -> None:
    """Wait before the next look at a fact: a twentieth of the time until now, and longer than the
    last look took.

    So a test that waits leaves the processor to what it waits for, and sees a fact that comes at
    once at once.
    """
    time.sleep(min(0.25, max(0.01, waited_s / 20, 3 * took_s)))


def ended(process: "subprocess.Popen[Any]", what: str = "", patience_s: float = PATIENCE_S) -> int:
    """Wait for a program to end and return its exit code; if it does not, kill it and fail."""
    try:
        return process.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(
            _not_ended(process.pid, what or str(process.args), patience_s)
        ) from None


def child_ended(pid: int, what: str = "a child", patience_s: float = PATIENCE_S) -> int:
    """Wait for a child by fork to end and return its status, as os.waitpid does; if it does not,
    kill it and fail.
    """
    deadline_s = time.monotonic() + patience_s
    while (found := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() >= deadline_s:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # limit: SIGKILL ends it
            raise AssertionError(_not_ended(pid, what, patience_s))
        time.sleep(0.002)
    return found[1]


def child_stopped(pid: int, patience_s: float = PATIENCE_S) -> None:
    """Wait until a child by fork is stopped."""
    until(
        lambda: os.waitpid(pid, os.WUNTRACED | os.WNOHANG)[0] == pid,
        f"process {pid} stops",
        patience_s,
    )


def joined(thread: Any, what: str = "", patience_s: float = PATIENCE_S) -> None:
    """Wait for a thread, or a process of multiprocessing, to end; fail if it does not."""
    thread.join(timeout=patience_s)
    assert not thread.is_alive(), f"{what or thread.name} has not ended within {patience_s:g} s"


def happened(event: threading.Event, what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for an event; fail if it does not come."""
    assert event.wait(patience_s), f"not seen within {patience_s:g} s: {what}"


def read_some(descriptor: int, size: int, what: str, patience_s: float = PATIENCE_S) -> bytes:
    """Read from a pipe once something is there or its end was reached; fail if neither comes."""
    ready, _, _ = select.select([descriptor], [], [], patience_s)
    assert ready, f"nothing to read within {patience_s:g} s: {what}"
    return os.read(descriptor, size)  # limit: it is readable


def said(
    process: "subprocess.Popen[str]", what: str = "", patience_s: float = PATIENCE_S
) -> tuple[str, str]:
    """Return what a program writes until it ends; if it does not end, kill it and fail with what it
    wrote.
    """
    try:
        return process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            print(*process.communicate(timeout=5))  # a child of it may hold the pipes
        raise AssertionError(
            _not_ended(process.pid, what or str(process.args), patience_s)
        ) from None


@contextmanager
def limited(
    process: "subprocess.Popen[Any]", what: str, patience_s: float = PATIENCE_S
) -> Iterator[None]:
    """Read from a program's pipes within a limit: then its process group is killed, and the block
    fails.
    """
    late: list[bool] = []

    def kill() -> None:
        late.append(True)
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()

    timer = threading.Timer(patience_s, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        assert not late, (
            f"not read within {patience_s:g} s from process {process.pid}, which was killed: {what}"
        )


def run(
    command: Any, patience_s: float = PATIENCE_S, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """Run a program as subprocess.run does; if it does not end, kill it and fail with what it
    wrote.
    """
    try:
        return subprocess.run(command, timeout=patience_s, **options)
    except subprocess.TimeoutExpired as error:
        wrote = b"".join(
            text if isinstance(text, bytes) else b"" for text in (error.stdout, error.stderr)
        )
        words = (
            f"{command} did not end within {patience_s:g} s; it wrote "
            f"{wrote.decode(errors='replace')[-2000:]!r}"
        )
        raise AssertionError(words) from None


def _not_ended(pid: int, what: str, patience_s: float) -> str:
    return f"process {pid} did not end within {patience_s:g} s, and was killed: {what}"
