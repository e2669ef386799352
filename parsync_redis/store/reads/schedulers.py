"""Read the schedulers of a cluster for people, and judge which of them are alive."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...errors import AccessDenied, ParsyncError
from ...model.ids import readable
from ...model.text import LEADER
from ...wire.keys import ANY_CONFIG, cluster_of
from ..cluster import DEFAULT_LEASE_S
from ..reader import Reader
from ..server.server_errors import Fault
from ..store import Store
from .views import count_partitions

STATS_KEPT_MS: Final = 3_600_000
"""Time to live of a scheduler's stats, in ms; each renewal sets it anew.

So the remaining time tells when the scheduler renewed last.
"""

_MAX_CLUSTER_SCANS: Final = 50
_CONFIGS_PER_SCAN: Final = 1000


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """A scheduler as people see it.

    ordinal: the rank of the scheduler's name among all names.
    counter: the number that the scheduler moves while it lives.
    stats: the scheduler's own figures.
    silent_s: seconds since the last renewal of the membership, None for more than an hour.
    alive: whether the last renewal is at most one lease ago.
    """

    name: str
    ordinal: int
    leader: bool
    counter: int
    stats: Mapping[str, str]
    silent_s: float | None = None
    alive: bool = False


def read_schedulers(store: Store) -> list[SchedulerView]:
    """Return the schedulers by ordinal, in two round trips.

    A killed scheduler is listed until another scheduler removes it.
    """
    kinds = ("schedulers", "leader", "config")
    counters, leader, config = (
        _text(row) for row in store.pipe([("hgetall", store.keys.shared(k)) for k in kinds])
    )
    names = sorted(name for name in counters if counters[name].isdecimal())
    if not names:
        return []
    keys = [store.keys.stats(name) for name in names]
    replies = store.pipe([(command, key) for key in keys for command in ("hgetall", "pttl")])
    holder = (LEADER.read(leader.get("holder", "")) or {}).get("name")
    lease_s = lease_of(config)
    views = []
    for ordinal, name in enumerate(names):
        stats, left_ms = replies[2 * ordinal : 2 * ordinal + 2]
        silent_s, alive = judge_silence(int(left_ms), lease_s)
        views.append(
            SchedulerView(
                name, ordinal, name == holder, int(counters[name]), _text(stats), silent_s, alive
            )
        )
    return views


def judge_silence(left_ms: int, lease_s: float) -> tuple[float | None, bool]:
    """Return the seconds since a scheduler renewed (None: over an hour), and whether it is alive.

    left_ms: the remaining time to live of its stats.
    """
    if left_ms < 0:
        return None, False
    silent_s = max(0.0, (STATS_KEPT_MS - left_ms) / 1000)
    return silent_s, silent_s < lease_s


def _text(row: Mapping[bytes, bytes]) -> dict[str, str]:
    return {readable(name): readable(value) for name, value in row.items()}


def lease_of(config: Mapping[str, str]) -> float:
    """Return the lease in a cluster's config, in seconds; the default if it has none."""
    text = config.get("lease_ms", "")
    return int(text) / 1000 if text.isdecimal() and len(text) < 10 else DEFAULT_LEASE_S


@dataclass(frozen=True, slots=True)
class Refusal(Fault):
    """A server that takes no writes.

    holds: the shards and partitions that the server has; '' if no other server takes writes.
    silences: whether the server has the keys by which schedulers show that they live; then the
        silence of a scheduler proves nothing.
    """

    address: str = ""
    holds: str = ""
    silences: bool = True

    @property
    def effect(self) -> str:
        """Return what the refusal stops."""
        return f"{self.holds} stand still" if self.holds else "nothing is placed"

    def __str__(self) -> str:
        """Return the fault for people: its cause, the keys that stand still, and the repair.

        The keys are not named if everything stands still.
        """
        return (
            f"{self.why}: {self.effect}: {self.repair}"
            if self.holds
            else f"{self.why}: {self.repair}"
        )


def read_refusals(store: Store) -> list[Refusal]:
    """Return the servers that take no writes, those first that silence schedulers."""
    faults = store.why_no_writes()
    if not faults:
        return []
    everywhere = len(faults) >= sum(server is not None for server in store.servers().values())
    home = store.place_of(store.keys.shared("schedulers"))
    refusals = [
        Refusal(
            fault.why,
            fault.repair,
            address,
            "" if everywhere else holdings_of(store, address),
            address == home,
        )
        for address, fault in faults.items()
    ]
    return sorted(refusals, key=lambda refusal: not refusal.silences)


def holdings_of(store: Store, address: str) -> str:
    """Return the shards and partitions that a server has, as text.

    The partitions are not known if the server with the config is away.
    """
    keys = store.keys
    try:
        count = count_partitions(store)
    except ParsyncError:
        count = 0
    partitions = [p for p in range(count) if store.place_of(keys.partition(p, "meta")) == address]
    shards = [q for q, key in enumerate(keys.queues("meta")) if store.place_of(key) == address]
    leads = "; config, leader" if store.place_of(keys.tick) == address else ""
    return (
        f"shards {ranges(shards)}; partitions {ranges(partitions) if count else 'not known'}{leads}"
    )


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in short: '0-2 5 7-8'; 'none' if there are none."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return " ".join(texts) or "none"


def find_fault(
    store: Store, schedulers: Iterable[SchedulerView], refusals: Iterable[Refusal]
) -> Fault | None:
    """Return why no scheduler places tasks; None if a scheduler is alive, which can tell by itself.

    refusals: see `read_refusals`.

    A scheduler is silent too while the server that has the keys of schedulers takes no writes.
    """
    silencing = next((refusal for refusal in refusals if refusal.silences), None)
    return silencing or find_no_scheduler(store, schedulers)


def find_no_scheduler(store: Store, schedulers: Iterable[SchedulerView]) -> Fault | None:
    """Return the fault that no scheduler is alive; None if one is alive.

    The caller knows that the servers take writes, see `find_fault`.
    """
    views = list(schedulers)
    if not views:
        return find_no_cluster(store)
    if any(scheduler.alive for scheduler in views):
        return None
    silent = ", ".join(
        f"{s.name} (silent for {'over an hour' if s.silent_s is None else f'{s.silent_s:.0f} s'})"
        for s in views[:4]
    )
    not_named = f" and {len(views) - 4} more" if len(views) > 4 else ""
    return Fault(f"no scheduler of {_where(store)} is alive: {silent}{not_named}", _start(store))


def look_for_cluster(store: Store) -> Fault | None:
    """Return the fault that the store's cluster does not exist; None if it exists."""
    return None if store.config() else find_no_cluster(store)


def find_no_cluster(store: Store) -> Fault:
    """Return the fault that no scheduler has joined the cluster.

    The cluster's name may be misspelt, so the fault names other clusters.
    """
    other_clusters = [name for name in find_clusters(store) if name != store.keys.cluster]
    hint = f" (other clusters there: {', '.join(other_clusters[:8])})" if other_clusters else ""
    return Fault(f"no scheduler has joined {_where(store)}{hint}", _start(store))


def _where(store: Store) -> str:
    return f"cluster {store.keys.cluster!r} on {store.address}"


def _start(store: Store) -> str:
    return f"parsync scheduler --cluster {store.keys.cluster}"


def find_clusters(store: Store) -> list[str]:
    """Return the clusters on these servers; [] if this login may not scan.

    Scans at most 50,000 keys of each server.
    """
    clusters: set[str] = set()
    try:
        for server in store.servers().values():
            clusters |= _scan(server) if server is not None else set()
    except AccessDenied:
        return []
    return sorted(clusters)


def _scan(server: Reader) -> set[str]:
    clusters: set[str] = set()
    cursor: Any = 0
    for _ in range(_MAX_CLUSTER_SCANS):
        cursor, names = server.pipe([("scan", cursor, ANY_CONFIG, _CONFIGS_PER_SCAN)])[0]
        clusters |= {cluster_of(readable(name)) for name in names}
        if not int(cursor):
            break
    return clusters
