"""The cluster as it was read at one moment, and how it is read: always the same few requests."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.named_times import TOP_NAMES
from ..model.octaves import TimeHistogram
from ..model.times import LearntTimes
from ..model.views import KindView, NameView, NodeView, PartitionView
from ..store.reads.cached_views import ViewReader
from ..store.reads.demand import Counts, count_tasks, demand_of, read_lines
from ..store.reads.oldest_waiting import read_oldest
from ..store.reads.purge import server_ms
from ..store.reads.schedulers import Refusal, SchedulerView, read_refusals, read_schedulers
from ..store.reads.times import names_of, read_times, runs_of
from ..store.reads.views import read_all_views, read_holds
from ..store.store import Store
from .top import top


@dataclass(frozen=True, slots=True)
class Survey:
    """The cluster as it was read. Times are the server's, in ms.

    kinds: of waiting tasks, in the order in which schedulers take them. oldest_ms: by name, or
    `other`, since when the task that was submitted first can be taken. refusals: the servers that
    take no writes. runs: how long they took, by name. held_back: how many names nodes hold back,
    each node counted by itself; as old as runs.
    """

    now_ms: int
    partitions: Sequence[PartitionView]
    nodes: Sequence[NodeView]
    schedulers: Sequence[SchedulerView]
    kinds: Sequence[KindView]
    names: Sequence[NameView]
    oldest_ms: Mapping[str, int]
    counts: Counts
    refusals: Sequence[Refusal]
    runs: Mapping[str, TimeHistogram] = field(default_factory=dict)
    held_back: int = 0


def group_names(kinds: Sequence[KindView]) -> Callable[[str], str]:
    """Return what tells the group of a name: itself if it is one of those of which most tasks wait,
    else `other`.
    """
    waiting = Counter[str]()
    for kind in kinds:
        waiting[kind.name] += kind.waiting
    return top(waiting, TOP_NAMES)


def read_survey(
    store: Store,
    reader: ViewReader,
    times_of: Survey | None = None,
    oldest_of: Survey | None = None,
) -> Survey:
    """Read the cluster as it is now. Raises ParsyncError.

    reader: the one of the survey before. times_of, oldest_of: an earlier survey, if the run times,
    or the oldest tasks, need not be read.
    """
    damaged: list[str] = []
    partitions, nodes = read_all_views(store, reader.read)
    schedulers = read_schedulers(store)
    lines = list(read_lines(store, damaged))
    kinds = demand_of(lines, damaged)
    learnt = LearntTimes() if times_of else read_times(store)
    return Survey(
        server_ms(store),
        partitions,
        nodes,
        schedulers,
        kinds,
        times_of.names if times_of else names_of(learnt),
        oldest_of.oldest_ms
        if oldest_of and kinds
        else read_oldest(store, lines, group_names(kinds)),
        count_tasks(store),
        read_refusals(store),
        times_of.runs if times_of else runs_of(learnt),
        times_of.held_back if times_of else sum(map(len, read_holds(store).values())),
    )
