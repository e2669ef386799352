"""Tell the losses that an outage of a primary explains from those that it does not. Pure.

touched     tasks about which a primary answered just before it was replaced by a replica that lagged: they are exempt
exceeded    limits that were exceeded by runs which no lossy outage explains
untold      lost tasks of which `losses` says nothing
longest     how long the partitions of the living primaries were without a commit
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from parsync_redis.store.repair.losses import Loss
from tests.kit.unit_locks import Units

from .history import Event, Run

REPLICATION_S: Final = 0.1
"""Seconds that a replica may be behind its primary while nothing is wrong."""

_OF_PARTITION: Final = ("commit", "release")


@dataclass(slots=True)
class Outage:
    """A primary that was killed or stopped.

    Times are monotonic seconds, `wall_ms` is the wall clock's.

    cut_s: from when its replica got nothing more; as at_s, if it got all. at_s: when it went away.
    taken_s: when another had its slots. until_s: when it certainly was no primary any more.
    """

    kind: str
    address: str
    shards: frozenset[int]
    partitions: frozenset[int]
    cut_s: float
    at_s: float
    wall_ms: int = 0
    taken_s: float = 0.0
    until_s: float = 0.0

    @property
    def loses(self) -> bool:
        """Return whether acknowledged writes may be lost: the replica lagged, or the primary
        answered after it was replaced.
        """
        return self.kind != "kill"


def touched(
    events: Iterable[Event], outages: Sequence[Outage], shard_of: Callable[[str], int]
) -> set[str]:
    """Return the tasks of which a primary may have lost something that it had acknowledged."""
    lossy = [outage for outage in outages if outage.loses]
    return {event.task for event in events for outage in lossy if _is_of(event, outage, shard_of)}


def _is_of(event: Event, outage: Outage, shard_of: Callable[[str], int]) -> bool:
    if event.call_s > outage.until_s or event.back_s < outage.cut_s:
        return False
    if event.verb in _OF_PARTITION:
        return int(event.item["partition"]) in outage.partitions
    return shard_of(event.task) in outage.shards


def exceeded(
    runs: Iterable[Run], units: Units, outages: Sequence[Outage], again_s: float
) -> list[str]:
    """Return a sentence for each limit that runs exceeded, by their ticks.

    A run does not count if it began between the cut of a lossy outage and again_s seconds after the
    outage: the server may have forgotten its take, or what another server may hold.
    """
    unsure = [
        (outage.cut_s - REPLICATION_S, outage.until_s + again_s)
        for outage in outages
        if outage.loses
    ]
    changes = defaultdict[str, list[tuple[float, int, Run]]](list)
    for run in runs:
        if any(first_s <= run.began_s <= last_s for first_s, last_s in unsure):
            continue
        for name, count in units.of_runs.get((run.task, run.attempt, run.pid), {}).items():
            changes[name] += [(run.began_s, count, run), (run.last_s, -count, run)]
    sentences = []
    for name, changes_of_limit in changes.items():
        units_in_use = 0
        for _, change, run in sorted(changes_of_limit, key=lambda change: change[:2]):
            units_in_use += change
            if change > 0 and units_in_use > units.at_once[name]:
                sentences.append(f"{units_in_use} units of {name} of {units.at_once[name]}: {run}")
    return sentences


def untold(
    lost: Iterable[str],
    outages: Sequence[Outage],
    losses: Iterable[Loss],
    shard_of: Callable[[str], int],
) -> list[str]:
    """Return the lost tasks whose shard is not named by a loss since the first outage of its
    primary.
    """
    told = [
        (name.removeprefix("submitted_").removeprefix("q"), loss.at_ms)
        for loss in losses
        for name in (
            *(number.split()[0] for number in loss.went_back),
            *",".join(loss.taken_over).split(","),
        )
    ]
    missing = []
    for id in sorted(lost):
        shard = shard_of(id)
        since_ms = min((outage.wall_ms for outage in outages if shard in outage.shards), default=0)
        if not any(name == str(shard) and at_ms >= since_ms for name, at_ms in told):
            missing.append(id)
    return missing


def longest(commits: Sequence[float], begin_s: float, end_s: float) -> float:
    """Return the longest time without a commit that touches an interval.

    commits: their times, in order.
    """
    first = bisect_left(commits, begin_s)
    last = bisect_right(commits, end_s)
    inside = [*commits[max(0, first - 1) : last + 1]]
    if not inside or inside[0] > begin_s:
        inside.insert(0, begin_s)
    if inside[-1] < end_s:
        inside.append(end_s)
    return max((after - before for before, after in pairwise(inside)), default=0.0)


def pauses(
    events: Iterable[Event], groups: Iterable[frozenset[int]], spans: Sequence[tuple[float, float]]
) -> list[float]:
    """Return for each span and each group of partitions the longest time without a commit."""
    won = [e for e in events if e.verb == "commit" and e.word == "held"]
    found = []
    for group in groups:
        times = sorted(event.back_s for event in won if int(event.item["partition"]) in group)
        found += [longest(times, *span) for span in spans]
    return found
