"""The survey: the cluster as it was read at one moment, always by the same few requests."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ..inspect.tenancy import Tenancy, read_tenancy
from ..model.kind import split_kind
from ..model.octaves import TOP_NAMES, TimeHistogram
from ..model.views import KindView, NameView, NodeView, PartitionView
from ..store.reads.accounts import WarmKey, read_warm_keys
from ..store.reads.cancel import server_ms
from ..store.reads.demand import Counts, count_tasks, demand_of, read_lines, read_oldest
from ..store.reads.schedulers import Refusal, SchedulerView, read_refusals, read_schedulers
from ..store.reads.times import names_of, read_times, runs_of
from ..store.reads.views import ViewReader, read_all_views, read_holds
from ..store.store import Store

OTHER_GROUP: Final = "other"


def top(sizes: Mapping[str, float], most: int) -> Callable[[str], str]:
    """Return the function word -> group.

    The `most` words with the largest sizes are their own groups; all other words are `other`.
    """
    largest = frozenset(sorted(sizes, key=lambda word: (-sizes[word], word))[:most])
    return lambda word: word if word in largest else OTHER_GROUP


@dataclass(frozen=True, slots=True)
class Survey:
    """The cluster as it was read. Times are the server's, in ms.

    kinds: the kinds of waiting tasks, in the order in which schedulers take them.
    oldest_ms: task name, or `other` -> since when the oldest waiting task can be taken.
    refusals: the servers that take no writes.
    runs: task name -> histogram of its run times.
    held_back: how many names nodes hold back, each node counted by itself; as old as `runs`.
    tenancy: the tenants and limits; as old as `oldest_ms`.
    idle_since_ms: since when each node that holds nothing has been seen so.
    warm_keys: the keys of the rule `warm` to which tasks count; as old as `runs`.
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
    tenancy: Tenancy = field(default_factory=Tenancy)
    idle_since_ms: Mapping[str, int] = field(default_factory=dict)
    warm_keys: Sequence[WarmKey] = ()


def group_names(kinds: Sequence[KindView]) -> Callable[[str], str]:
    """Return the function name -> group.

    The names with most waiting tasks are their own groups; all other names are in the group
    `other`.
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
    idle_before: Mapping[str, int] = MappingProxyType({}),
) -> Survey:
    """Read the cluster as it is now. Raises ParsyncError.

    reader: keeps the views of the last survey.
    times_of, oldest_of: an earlier survey, whose run times and keys, or whose oldest tasks are used
        again; None to read them.
    idle_before: since when nodes were idle, by the last survey.
    """
    damaged: list[str] = []
    partitions, nodes = read_all_views(store, reader.read)
    schedulers = read_schedulers(store)
    lines = list(read_lines(store, damaged))
    kinds = demand_of(lines, damaged)
    now_ms = server_ms(store)
    if oldest_of and kinds:
        oldest_ms = oldest_of.oldest_ms
        tenancy = oldest_of.tenancy
    else:
        tenancy = read_tenancy(store, lines, nodes)
        group_of = group_names(kinds)
        oldest_ms = read_oldest(store, lines, lambda kind: group_of(split_kind(kind).name))
    if times_of:
        names = times_of.names
        runs = times_of.runs
        held_back = times_of.held_back
        warm_keys = times_of.warm_keys
    else:
        learnt = read_times(store)
        names = names_of(learnt)
        runs = runs_of(learnt)
        held_back = sum(map(len, read_holds(store).values()))
        warm_keys = read_warm_keys(store)
    return Survey(
        now_ms,
        partitions,
        nodes,
        schedulers,
        kinds,
        names,
        oldest_ms,
        count_tasks(store),
        read_refusals(store),
        runs,
        held_back,
        tenancy,
        {
            node.name: idle_before.get(node.name, now_ms)
            for node in nodes
            if not (node.held or node.waiting)
        },
        warm_keys,
    )
