"""Ends what a test run has started once the run itself has ended, however that came: also after
SIGKILL.

`watch` gives this process a mark in its environment, which its children inherit, a folder for
temporary files, and a reaper: a program of its own, in a session of its own. The reaper waits until
this process has ended, kills every process with the mark, and removes the folder.

A Redis or Valkey server writes its title over its environment. Its working folder tells the run
instead.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "TEST_RUN"
"""The variable with the id of the run. Tests that start as a user does drop names with PARSYNC_."""
SERVERS = ("redis-server", "valkey-server")
LOOKS = 100
"""A process that is being killed may start another one meanwhile: look again, at most so often."""


def watch() -> None:
    """Mark this process and what it starts from now on; a reaper ends them after it."""
    run = uuid.uuid4().hex
    folder = tempfile.mkdtemp(prefix="tests-")
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), run, folder]
    # an outer run leaves this reaper alone
    env = {name: value for name, value in os.environ.items() if name != MARK}
    subprocess.Popen(command, env=env, cwd="/", stdin=subprocess.DEVNULL, start_new_session=True)
    os.environ[MARK] = run
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    refuse_unmarked()


def marked() -> dict[str, str]:
    """Return what the environment of a test's process has in any case, also of one that shall have
    no other.
    """
    return {name: os.environ[name] for name in (MARK, "TMPDIR")}


def refuse_unmarked() -> None:
    """Refuse from now on to start a program here that no reaper would find."""
    folder = os.environ["TMPDIR"]

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event != "subprocess.Popen":
            return
        _, command, cwd, env = args
        if env is not None and MARK not in env:
            raise RuntimeError(
                f"{command} would outlive the tests: its environment needs tests.kit.reaper.marked()"
            )
        words = [str(word) for word in (*command, cwd)]
        serves = any(word.endswith(SERVERS) for word in words) and "--version" not in words
        if serves and not any(folder in word for word in words[1:]):
            raise RuntimeError(
                f"{command} would outlive the tests: a server needs a folder of the run, as "
                "tmp_path"
            )

    sys.addaudithook(refuse)


def reap(parent: int, run: str, folder: str) -> None:
    """Wait until this process has ended; end its run."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([handle], [], [])
    for _ in range(LOOKS):
        killed = [
            entry
            for entry in Path("/proc").glob("[0-9]*")
            if is_of_run(entry, run, folder) and kill(entry)
        ]
        if not killed:
            break
    shutil.rmtree(folder, ignore_errors=True)


def is_of_run(entry: Path, run: str, folder: str) -> bool:
    """Return whether a process of /proc has the mark of the run, or is a server in its folder."""
    try:
        env = (entry / "environ").read_bytes()
        if b"=" in env:
            return f"{MARK}={run}".encode() in env.split(b"\0")
        return (entry / "cwd").readlink().is_relative_to(folder)
    except OSError:
        return False  # the process has ended, or is another user's


def kill(entry: Path) -> bool:
    """Kill a process, and wait until it has ended; False if it had."""
    try:
        handle = os.pidfd_open(int(entry.name))
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    select.select([handle], [], [], 1)
    os.close(handle)
    return True


if __name__ == "__main__":
    reap(int(sys.argv[1]), *sys.argv[2:])
