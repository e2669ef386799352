"""The CPUs and the memory that this process may use.

The machine, the affinity (cpuset) and the control groups of the process set the limits.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from ...model.amount import THOUSANDTHS, shown_amount
from ...model.needs import Resources

log = logging.getLogger("parsync.agent")

CPUS: Final = ("cpu", "cpus")
MEMORY: Final = ("mem", "memory")
"""The names of resources that are taken for CPUs, and for bytes of memory."""


@dataclass(frozen=True, slots=True, order=True)
class Limit:
    """A limit of CPUs or of bytes, in thousandths. source: what sets the limit, for the log."""

    thousandths: int
    source: str


def cpu_limit(root: Path = Path("/")) -> Limit:
    """Return how many CPUs this process may use; the limit may be a part of a CPU.

    root: where proc and sys are mounted.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    limits = [Limit(cpus * THOUSANDTHS, "its affinity")]
    for group in _control_groups(root):
        quota, period = _numbers(group / "cpu.max") or (
            *(_numbers(group / "cpu.cfs_quota_us") or [-1]),
            *(_numbers(group / "cpu.cfs_period_us") or [0]),
        )
        if quota > 0 and period > 0:
            limits.append(
                Limit(quota * THOUSANDTHS // period, f"the CPU quota of its control group, {group}")
            )
    return min(limits)


def memory_limit(root: Path = Path("/")) -> Limit:
    """Return how many bytes of memory this process may use.

    root: where proc and sys are mounted.
    """
    limits = [
        Limit(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * THOUSANDTHS,
            "the machine's memory",
        )
    ]
    for group in _control_groups(root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [
                Limit(size * THOUSANDTHS, f"the limit of its control group, {group}")
                for size in _numbers(group / name)
            ]
    return min(limits)


def limits_text(root: Path = Path("/")) -> str:
    """Return what this process may use as the text of a capacity: 'slots=2 mem=4294967296'.

    A slot is a whole CPU, and a process that may use less than one CPU has a slot.
    root: where proc and sys are mounted.
    """
    slots = max(1, cpu_limit(root).thousandths // THOUSANDTHS)
    return f"slots={slots} mem={memory_limit(root).thousandths // THOUSANDTHS}"


def warn_of_limits(offer: Resources, root: Path = Path("/")) -> None:
    """Warn of each amount of an offer that is more than this process may use.

    Slots are compared if they are no more than the machine's CPUs: more of them are for tasks that
    wait. root: where proc and sys are mounted.
    """
    cpus = cpu_limit(root)
    memory = memory_limit(root)
    fit = max(1, math.ceil(cpus.thousandths / THOUSANDTHS))
    machine = os.cpu_count() or 1
    if fit < offer.slots <= machine:
        log.warning(
            "this node offers %d slots, but may use %s of the machine's %d CPUs (%s): "
            "--concurrency %d fits",
            *(offer.slots, shown_amount(cpus.thousandths), machine, cpus.source, fit),
        )
    limits = dict.fromkeys(CPUS, cpus) | dict.fromkeys(MEMORY, memory)
    for name, amount in offer.amounts:
        limit = limits.get(name)
        if limit and amount > limit.thousandths:
            log.warning(
                "this node offers %s=%s, but may use %s (%s)",
                *(name, shown_amount(amount), shown_amount(limit.thousandths), limit.source),
            )


def _control_groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups, and the folders around them.

    There is a folder for each hierarchy.

    In a container /proc may name a group of the host's, of which only the folders around it exist.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        group_path = PurePosixPath(path)
        for group in (group_path, *group_path.parents):
            yield root / "sys/fs/cgroup" / controllers / str(group).lstrip("/")


def _numbers(file: Path) -> list[int]:
    """Return the numbers of a control group's file; [] for no file, and for no limit (max)."""
    try:
        words = file.read_text(encoding="utf-8").split()
        return [int(word) for word in words]
    except (OSError, ValueError):
        return []
