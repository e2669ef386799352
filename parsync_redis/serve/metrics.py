"""The survey as metrics for Prometheus. Pure.

The values of a label are bounded: beyond the largest groups, all count as `other`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ..inspect.tenancy import Tenancy
from ..model.devices import fold
from ..model.human import labels_shown
from ..model.needs import are_needs, parse_needs
from ..model.node import NodeState
from ..model.octaves import BOUNDS_S, TimeHistogram
from ..model.policy import parents_of
from ..model.views import DELAYS, VIEW_AGES, NodeView
from ..placement.reasons import OTHER_REASON, REASON_PATTERNS, reason_class
from ..store.reads.schedulers import SchedulerView
from .counting import SurveyCounts
from .survey import OTHER_GROUP, Survey, group_names, top
from .surveyor import LatestSurvey

TOP_CLASSES: Final = 20
"""The node classes with most slots have figures of their own."""

TOP_RESOURCES: Final = 20
"""The resources that most nodes declare have figures."""

TOP_ACCOUNTS: Final = 50
"""The tenants and the limits with most tasks that hold or wait have figures of their own."""

MOST_SCHEDULERS: Final = 64
"""Maximum number of schedulers with figures of their own."""

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

COUNTERS: Final = (
    ("parsync_claims_total", "Claims of slots that were judged", "claims"),
    (
        "parsync_conflicts_total",
        "Claims that lost because another claim had the slot first",
        "conflicts",
    ),
    (
        "parsync_merged_total",
        "Claims that won although their partition had changed since it was read",
        "merged",
    ),
    (
        "parsync_own_ticks_total",
        "Ticks that schedulers made themselves because they heard none",
        "own_ticks",
    ),
    ("parsync_placed_total", "Tasks that were placed", "placed"),
    ("parsync_lost_attempts_total", "Attempts of tasks that were lost", "lost"),
    ("parsync_died_tasks_total", "Tasks that died: they lost as many starts as they may", "died"),
)
"""Counters: (metric, help, name of the total)."""

SCHEDULER_GAUGES: Final = (
    (
        "parsync_smoothed_delay_seconds",
        "Smoothed time from when a task could be taken to its commit, by which adaptive chooses",
        "delay_ms",
        1000,
    ),
    (
        "parsync_view_age_seconds",
        "Mean age of the scheduler's copies of partitions",
        "view_age_ms",
        1000,
    ),
    (
        "parsync_view_age_max_seconds",
        "Age of the scheduler's oldest copy of a partition",
        "view_age_max_ms",
        1000,
    ),
    (
        "parsync_in_flight_tasks",
        "Tasks that the scheduler has taken and not placed",
        "in_flight",
        1,
    ),
)
"""Metrics of each scheduler: (metric, help, reported figure, divisor of the figure)."""

MOST_CELLS: Final = 2048
"""Maximum number of copies with an age of their own; the first schedulers have them."""

BOUNDS: Final = (*map(str, BOUNDS_S), "+Inf")


def render_metrics(latest: LatestSurvey, failed: int = 0) -> bytes:
    """Return the metrics of the newest survey, in the text format of Prometheus.

    failed: the number of tasks that failed.
    """
    registry = CollectorRegistry()
    registry.register(_SurveyCollector(latest, failed))
    return generate_latest(registry)


class _SurveyCollector(Collector):
    def __init__(self, latest: LatestSurvey, failed: int) -> None:
        self._latest = latest
        self._failed = failed

    def collect(self) -> Iterable[Metric]:
        latest = self._latest
        yield _gauge(
            "parsync_stale",
            "1 if the other metrics are older than 5 seconds, or missing",
            latest.stale,
        )
        yield CounterMetricFamily(
            "parsync_survey_errors_total", "Readings of the cluster that failed", latest.errors
        )
        if latest.survey is None:
            return
        yield _gauge(
            "parsync_survey_age_seconds", "Age of the other metrics", round(latest.age_s or 0, 3)
        )
        yield _gauge(
            "parsync_survey_read_seconds",
            "Time that the last reading took",
            round(latest.took_s, 4),
        )
        for name, help, figure in COUNTERS:
            yield CounterMetricFamily(name, help, latest.counted.totals.get(figure, 0))
        yield CounterMetricFamily("parsync_failed_tasks_total", "Tasks that failed", self._failed)
        about = (
            "Servers that take no writes; keys: cluster if nobody can renew then, other of another "
            "primary"
        )
        silent = sum(refusal.silences for refusal in latest.survey.refusals)
        servers = {"cluster": silent, "other": len(latest.survey.refusals) - silent}
        yield _gauges("parsync_refuses_writes", about, "keys", servers)
        about = (
            "Names that nodes hold back because such tasks fail there in a row, each node counted "
            "by itself"
        )
        yield _gauge("parsync_held_back_names", about, latest.survey.held_back)
        yield from _waiting(latest.survey)
        yield from _nodes(latest.survey.nodes)
        yield from _tenancy(latest.survey.tenancy)
        yield from _schedulers(latest.survey.schedulers)
        alive = [scheduler for scheduler in latest.survey.schedulers if scheduler.alive]
        yield from time_metrics(latest.counted, alive[:MOST_SCHEDULERS])


def _gauge(name: str, help: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help, float(value))


def _gauges(name: str, help: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Return a gauge with a label. values: by the values of the label."""
    family = GaugeMetricFamily(name, help, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family


def _waiting(survey: Survey) -> Iterator[Metric]:
    group_of = group_names(survey.kinds)
    reasons = Counter[str]()
    slots_wanted = Counter[str]()
    names = Counter[str]()
    for kind in survey.kinds:
        why = reason_class(kind.why)
        slots = parse_needs(kind.needs).slots if are_needs(kind.needs) else 1
        reasons[why] += kind.waiting
        slots_wanted[why] += kind.waiting * slots
        names[group_of(kind.name)] += kind.waiting
    words = [*(name for name, _ in REASON_PATTERNS), OTHER_REASON]
    about = "Tasks that wait for a place"
    counts = {word: reasons[word] for word in words}
    yield _gauges("parsync_waiting_tasks", f"{about}, by what keeps them", "reason", counts)
    yield _gauges(
        "parsync_wanted_slots",
        "Slots that waiting tasks ask for, by what keeps them",
        "reason",
        {word: slots_wanted[word] for word in words},
    )
    yield _gauges(
        "parsync_waiting_tasks_by_name", f"{about}, by name", "name", dict(sorted(names.items()))
    )
    ages = {
        name: max(0.0, (survey.now_ms - ms) / 1000) for name, ms in sorted(survey.oldest_ms.items())
    }
    about = "Time since the waiting task that should start first could have been placed"
    yield _gauge("parsync_oldest_waiting_seconds", about, max(ages.values(), default=0.0))
    yield _gauges("parsync_oldest_waiting_by_name_seconds", f"{about}, by name", "name", ages)
    yield _gauge("parsync_delayed_tasks", "Tasks that are not due yet", survey.counts.later)
    yield _gauge(
        "parsync_taken_tasks",
        "Tasks that a scheduler has taken and not placed",
        survey.counts.taken,
    )
    yield _gauge("parsync_placed_tasks", "Tasks that are placed or running", survey.counts.placed)
    yield _gauge(
        "parsync_dead_tasks",
        "Tasks that lost as many starts as they may, and were not requeued",
        survey.counts.dead,
    )


def class_of_view(node: NodeView) -> str:
    """Return the class of a node: its amounts and labels; 'slots only' without any.

    The amounts of devices of a kind are added up.
    """
    amounts = (f"{name}={amount}" for name, amount in sorted(fold(node.resources.items()).items()))
    labels = labels_shown(dict(sorted(node.labels.items())))
    return " ".join(filter(None, (*amounts, labels)))[:128].rstrip() or "slots only"


def _nodes(nodes: Iterable[NodeView]) -> Iterator[Metric]:
    all_nodes = list(nodes)
    states = Counter(node.state for node in all_nodes)
    yield _gauges(
        "parsync_nodes", "Nodes by state", "state", {state: states[state] for state in NodeState}
    )
    usable = [(class_of_view(node), node) for node in all_nodes if node.state != "down"]
    sizes = Counter[str]()
    declared = Counter[str]()
    for name, node in usable:
        sizes[name] += node.slots
        declared.update({*fold(node.resources.items())})
    group_of = top(sizes, TOP_CLASSES)
    resources = {name for name, _ in declared.most_common(TOP_RESOURCES)}
    slots = Counter[str]()
    free = Counter[str]()
    held_slots = Counter[str]()
    can_give = Counter[str]()
    amounts = Counter[tuple[str, str]]()
    free_amounts = Counter[tuple[str, str]]()
    for name, node in usable:
        group = group_of(name)
        slots[group] += node.slots
        free[group] += node.free
        held_slots[group] += node.held
        can_give[group] += int(node.capacity.get("slots", node.slots))
        has = fold(node.resources.items())
        has_free = fold(node.left.items())
        for resource in has.keys() & resources:
            amounts[group, resource] += has[resource]  # type: ignore[assignment]
            free_amounts[group, resource] += has_free.get(resource, 0)  # type: ignore[assignment]
    for metric, help, figures in (
        (
            "parsync_slots",
            "Slots of nodes that are not down, by amounts and labels of the nodes",
            slots,
        ),
        ("parsync_free_slots", "Slots that may be claimed now", free),
        ("parsync_held_slots", "Slots that tasks hold", held_slots),
        ("parsync_given_slots", "Slots that nodes can give now", can_give),
    ):
        yield _gauges(metric, help, "node_class", dict(sorted(figures.items())))
    for metric, help, sums in (
        ("parsync_resource_amount", "Amount of a resource of nodes that are not down", amounts),
        ("parsync_resource_left", "Amount of a resource that no task holds", free_amounts),
    ):
        family = GaugeMetricFamily(metric, help, labels=["node_class", "resource"])
        for words, amount in sorted(sums.items()):
            family.add_metric(words, amount)
        yield family


def _tenancy(tenancy: Tenancy) -> Iterator[Metric]:
    """Yield the metrics of tenants and limits; those beyond the most used count as `other`.

    What a tenant holds includes the tenants below it, and so a tenant that counts as `other` is
    left out if its parent does too.
    """
    tenant_uses = {t.name: (t.holders or 0) + t.waiting for t in tenancy.tenants}
    tenant_of = top(tenant_uses, TOP_ACCOUNTS)
    amounts = Counter[tuple[str, str]]()
    tenant_waiting = Counter[str]()
    for tenant in tenancy.tenants:
        group = tenant_of(tenant.name)
        parents = map(tenant_of, parents_of(tenant.name))
        if group == OTHER_GROUP and OTHER_GROUP in parents:
            continue
        tenant_waiting[group] += tenant.waiting
        for name, amount in tenant.amounts.items():
            amounts[group, name] += amount  # type: ignore[assignment]
    about = "What the tasks of a tenant and of the tenants below it hold, slots and resources"
    family = GaugeMetricFamily("parsync_tenant_held", about, labels=["tenant", "amount"])
    for words, amount in sorted(amounts.items()):
        family.add_metric(words, amount)
    yield family
    about = "Tasks of a tenant and of the tenants below it that wait"
    yield _gauges("parsync_tenant_waiting", about, "tenant", dict(sorted(tenant_waiting.items())))
    limit_of = top({x.name: x.holders + x.waiting for x in tenancy.limits}, TOP_ACCOUNTS)
    limit_units = Counter[str]()
    limit_waiting = Counter[str]()
    limit_allowed = Counter[str]()
    for limit in tenancy.limits:
        group = limit_of(limit.name)
        limit_units[group] += limit.units
        limit_waiting[group] += limit.waiting
        if limit.allowed is not None:
            limit_allowed[group] += limit.allowed
    for metric, help, figures in (
        ("parsync_limit_held", "Units of a limit that tasks hold", limit_units),
        ("parsync_limit_allowed", "Units of a limit that tasks may hold at once", limit_allowed),
        ("parsync_limit_waiting", "Tasks under a limit that wait", limit_waiting),
    ):
        yield _gauges(metric, help, "limit", dict(sorted(figures.items())))


def _schedulers(schedulers: Iterable[SchedulerView]) -> Iterator[Metric]:
    listed = list(schedulers)
    alive = [scheduler for scheduler in listed if scheduler.alive]
    yield _gauges(
        "parsync_schedulers",
        "Schedulers by whether they renewed within a lease",
        "state",
        {"alive": len(alive), "silent": len(listed) - len(alive)},
    )
    yield _gauge(
        "parsync_leader",
        "1 if a scheduler that is alive leads",
        any(scheduler.leader for scheduler in alive),
    )
    for metric, help, figure, divisor in SCHEDULER_GAUGES:
        values = {
            scheduler.name: value / divisor
            for scheduler in alive[:MOST_SCHEDULERS]
            if (value := _number(scheduler.stats.get(figure, ""))) is not None
        }
        yield _gauges(metric, help, "scheduler", values)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def time_metrics(counted: SurveyCounts, schedulers: Sequence[SchedulerView]) -> Iterator[Metric]:
    """Return the metrics of durations. schedulers: the schedulers with figures of their own."""
    about = "Time from when a task could be taken to its commit"
    family = HistogramMetricFamily(
        "parsync_scheduling_delay_seconds", f"{about}, by scheduler", labels=["scheduler"]
    )
    for scheduler in schedulers:
        if DELAYS in scheduler.stats:
            _add(family, scheduler.name, TimeHistogram.of(scheduler.stats[DELAYS]))
    yield family
    for name, help, histograms in (
        ("parsync_wait_seconds", f"{about}, by name", counted.waits),
        ("parsync_run_seconds", "Time that runs took, by name", counted.runs),
    ):
        family = HistogramMetricFamily(name, help, labels=["name"])
        for task, histogram in sorted(histograms.items()):
            _add(family, task, histogram)
        yield family
    yield _ages(schedulers)


def _add(family: HistogramMetricFamily, word: str, histogram: TimeHistogram) -> None:
    counts = zip(BOUNDS, map(float, accumulate(histogram.octaves)), strict=True)
    family.add_metric([word], list(counts), histogram.total_ms / 1000)


def _ages(schedulers: Sequence[SchedulerView]) -> Metric:
    help = "Age of the scheduler's copy of a partition"
    family = GaugeMetricFamily(
        "parsync_partition_view_age_seconds", help, labels=["scheduler", "partition"]
    )
    free_cells = MOST_CELLS
    for scheduler in schedulers:
        ages = [
            age
            for age in scheduler.stats.get(VIEW_AGES, "").split()
            if age.isdecimal() and len(age) < 12
        ]
        if (free_cells := free_cells - len(ages)) < 0:
            break
        for partition, age in enumerate(ages):
            family.add_metric([scheduler.name, str(partition)], int(age) / 1000)
    return family
