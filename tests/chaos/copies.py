"""Compare a scheduler's copies with the server: a copy at the version of the server says what the
server says.

A number by which a copy is judged must name one state for ever, also if the server loses writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from parsync_redis.model.kind import KindLine
from parsync_redis.scheduler.core.core import Core

from .state import State


def named_states(state: State) -> Iterator[tuple[str, str]]:
    """Yield each version and epoch, and the state that the number names."""
    for number, shard in enumerate(state.shards):
        lines = shard.hashes["kinds"]
        for kind, version in shard.versions.items():
            yield (
                f"version {version:.0f} of q{number}",
                f"{kind}: {' '.join(lines.get(kind, '').split()[:3])}",
            )
    for partition in state.partitions:
        if epoch := partition.meta.get("epoch"):
            # open seats make no epoch
            nodes = [replace(node, ahead=None) for node in partition.nodes.values()]
            yield f"epoch {epoch} of p{partition.number}", str(sorted(map(str, nodes)))


def copy_facts(core: Core, state: State, knows: Callable[[str], bool]) -> Iterator[str]:
    """Yield the contradictions between the server and the copies of a scheduler that waits for nothing.

    knows: returns whether the scheduler has heard which server has a shard or partition now, 'q0'
    or 'p1'.
    """
    for number, shard in enumerate(state.shards):
        if knows(f"q{number}") and core.queue.versions[number] == str(shard.version):
            lines = {kind: KindLine.of(line) for kind, line in shard.hashes["kinds"].items()}
            there = {kind: (line.count, line.first, line.last) for kind, line in lines.items()}
            copied = {
                kind: (known.count, known.first, known.last)
                for kind, known in core.queue.kinds[number].items()
            }
            if copied != there:
                yield (
                    f"the copy of the kinds of q{number} at version {shard.version} is {copied}, "
                    f"not {there}"
                )
    for copy, partition in zip(core.view.partitions, state.partitions, strict=True):
        meta = partition.meta
        now = int(meta.get("version", 0)), int(meta.get("epoch", 0))
        if not knows(f"p{partition.number}") or (copy.version, copy.epoch) != now:
            continue
        free = copy.free.copy()
        for reservation in copy.reserved:
            free[reservation.bits] = True
        for claim in core._placer.plan.commit.get(partition.number, ()):
            free[[claim.first + slot for slot in claim.slots]] = True
        bits = np.frombuffer(partition.bits or b"\0", dtype=np.uint8)
        right = np.unpackbits(bits, count=len(free)).view(bool)
        if (free != right).any():
            yield (
                f"the copy of p{partition.number} at version {copy.version} has free {free}, not "
                f"{right}"
            )
