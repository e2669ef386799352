"""The locks of a node's slots on its own machine.

A node has one file; byte N of the file is the lock of slot N.

The process that runs a task locks the bytes of its slots, by open file description (OFD) locks:
a lock is released when the last process that inherited the open file has ended. A stopped process
keeps its locks. Forked children inherit the file. Programs that a task starts inherit the file as
their standard input, if the task's standard input was the null device.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...errors import InvalidInput

STDIN = 0


def locks_folder(setting: Path | None) -> Path:
    """Return the folder of all nodes' locks, and make it if it does not exist; raises InvalidInput.

    The default is a folder of this user in /tmp, whatever TMPDIR says, because a restarted worker
    must find the same.
    """
    folder = setting or Path(f"/tmp/parsync-{os.getuid()}")  # noqa: S108 - its owner is checked
    problem = f"the folder for the locks of slots, {folder}, will not do ("
    remedy = "): PARSYNC_LOCK_DIR names another"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat() if setting is None else folder.stat()
    except OSError as error:
        raise InvalidInput(f"{problem}{error.strerror}{remedy}") from None
    is_safe = status.st_uid == os.getuid() and not status.st_mode & 0o022
    if not stat.S_ISDIR(status.st_mode) or (setting is None and not is_safe):
        raise InvalidInput(f"{problem}it must be a folder that only you can write to{remedy}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInput(f"{problem}it cannot be written to{remedy}")
    return folder


def lock_file(folder: Path, id: str, cluster: str, node: str) -> Path:
    """Return the path of a node's file of locks.

    id: the cluster's id. A cluster of another server may have the same name.
    """
    return folder / f"{cluster}@{id}" / node


class SlotBusy(Exception):
    """A process of an earlier run still lives in a slot."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"in slot {slot} a process of an earlier run still lives")


def touch(file: Path | str) -> int:
    """Open the file of locks, creating it if needed; return its descriptor. Raises OSError."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        Path(file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):
        os.utime(descriptor)  # programs that clean /tmp go by its time
    return descriptor


def open_locks(file: Path | str, slots: Iterable[int]) -> int:
    """Lock these slots; return the descriptor that holds the locks. Raises SlotBusy or OSError."""
    descriptor = touch(file)
    try:
        for slot in slots:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(slot))
    except OSError as error:
        os.close(descriptor)
        # EAGAIN or EACCES: another process holds the lock
        if isinstance(error, BlockingIOError | PermissionError):
            raise SlotBusy(slot) from None
        raise
    return descriptor


def busy_slots(file: Path, slots: Iterable[int]) -> list[int]:
    """Return the slots among these that a process holds; raises OSError."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        return [
            slot
            for slot in slots
            if struct.unpack_from(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _lock(slot)))[
                0
            ]
            != fcntl.F_UNLCK
        ]
    finally:
        os.close(descriptor)


@contextmanager
def hold(file: str, slots: Iterable[int], to_children: bool) -> Iterator[None]:
    """Hold the locks of these slots until the end of the block. Raises SlotBusy or OSError.

    to_children: make the file the standard input as well, so that programs started meanwhile
    inherit the locks. Children that outlive the block go on holding them.
    """
    descriptor = open_locks(file, slots)
    saved_stdin = -1
    try:
        if to_children and _is_null(STDIN):
            saved_stdin = fcntl.fcntl(STDIN, fcntl.F_DUPFD_CLOEXEC, 3)
            os.dup2(descriptor, STDIN)
        yield
    finally:
        if saved_stdin >= 0:
            os.dup2(saved_stdin, STDIN)
            os.close(saved_stdin)
        os.close(descriptor)


def holders(file: Path, slots: Collection[int]) -> list[int]:
    """Return the ids of the processes that hold one of these slots.

    Processes that we may not inspect are left out.
    """
    with suppress(OSError):
        status = file.stat()
        number = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        return sorted(pid for pid in pids if _holds(pid, number, slots))
    return []


def _holds(pid: int, file: str, slots: Collection[int]) -> bool:
    """Return whether a process has locked one of these bytes of a file.

    The kernel's lines end with FILE FIRST LAST. file: its device and inode, as in these lines.
    """
    is_held = False
    with suppress(OSError):
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            for line in info.read_text().splitlines():
                *_, where, first, last = (
                    ["", *line.split()] if line.startswith("lock:") else ["", "", ""]
                )
                end = int(last) if last.isdecimal() else sys.maxsize  # EOF
                is_held = is_held or (
                    where == file and any(int(first) <= slot <= end for slot in slots)
                )
    return is_held


_FLOCK = "hhqqi0q"
"""struct flock: type, whence, start, length, process; with this machine's padding."""


def _lock(slot: int) -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0)


def _is_null(descriptor: int) -> bool:
    """Return whether a descriptor is the null device; a terminal is never replaced."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL


_NULL = os.stat(os.devnull).st_rdev  # noqa: PTH116 - os.devnull is a name, not a path
CAN_ISOLATE = sys.platform == "linux"
"""True on Linux, which has OFD locks, signals of descriptors and timers that kill."""
