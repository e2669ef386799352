"""Compare a scheduler's copies with the server: a copy at the version of the server says what the server says.

A number by which a copy is judged must name one state for ever, also if the server loses writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parsync_redis.model.kind import KindLine
from parsync_redis.scheduler.core import Core

from .state import State


def named_states(state: State) -> Iterator[tuple[str, str]]:
    """Yield each version and epoch, and what it is the number of."""
    lines = state.hashes["kinds"]
    for kind, version in state.versions.items():
        yield f"version {version:.0f}", f"{kind}: {' '.join(lines.get(kind, '').split()[:3])}"
    for partition in state.partitions:
        if epoch := partition.meta.get("epoch"):
            yield f"epoch {epoch} of p{partition.number}", str(sorted(map(str, partition.nodes.values())))


def copy_facts(core: Core, state: State) -> Iterator[str]:
    """Yield what does not hold of the copies of a scheduler that waits for nothing."""
    if core.queue.version == str(state.version):
        lines = {kind: KindLine.of(line) for kind, line in state.hashes["kinds"].items()}
        there = {kind: (line.count, line.first, line.last) for kind, line in lines.items()}
        copied = {kind: (known.count, known.first, known.last) for kind, known in core.queue.kinds.items()}
        if copied != there:
            yield f"the copy of the kinds at version {state.version} is {copied}, not {there}"
    for copy, partition in zip(core.view.partitions, state.partitions, strict=True):
        meta = partition.meta
        if (copy.version, copy.epoch) != (int(meta.get("version", 0)), int(meta.get("epoch", 0))):
            continue
        free = copy.free.copy()
        for reservation in copy.reserved:
            free[reservation.bits] = True
        for claim in core._placer._ready.get(partition.number, ()):
            free[[claim.first + slot for slot in claim.slots]] = True
        bits = np.frombuffer(partition.bits or b"\0", dtype=np.uint8)
        right = np.unpackbits(bits, count=len(free)).view(bool)
        if (free != right).any():
            yield f"the copy of p{partition.number} at version {copy.version} has free {free}, not {right}"
