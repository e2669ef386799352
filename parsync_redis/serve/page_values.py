"""The values that the pages show of a survey or of a task. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from ..cli.common import show_time
from ..cli.node_page import left_text
from ..cli.policy import allowed_text, amounts_text, held_text, limit_note, used_text
from ..model.events import Event
from ..model.explanation import MOST_RANKED, Explanation
from ..model.human import labels_shown, needs_shown
from ..model.preferences import preferences_shown
from ..model.status import TaskStatus
from ..model.views import VIEW_AGES, NodeView
from ..placement.reasons import reason_class
from ..store.reads.demand import Counts
from ..store.reads.schedulers import SchedulerView
from .history import Moment, chart_values
from .survey import Survey

MOST_KINDS_SHOWN = 100
MOST_ACCOUNTS_SHOWN: Final = 200
NODES_PER_PAGE = 100
MOST_BOXES = 64
MOST_EVENTS = 20
SHADES_MS: Final = (250, 1000, 3000, 10_000)
"""Ages at which the freshness map becomes darker."""

EMPTY_SURVEY: Final = Survey(0, (), (), (), (), (), {}, Counts(0, 0, 0, 0, 0, 0), ())
"""The pages show this survey before the first survey is read."""


def overview_values(latest: Survey | None) -> dict[str, Any]:
    """Return the values of the first page."""
    survey = latest or EMPTY_SURVEY
    reasons = Counter[str]()
    for kind in survey.kinds:
        reasons[reason_class(kind.why)] += kind.waiting
    waiting = reasons.total()
    present = [node for node in survey.nodes if node.state != "down"]
    since_ms = min(survey.oldest_ms.values(), default=survey.now_ms)
    return {
        "waiting": waiting,
        "oldest": age_text((survey.now_ms - since_ms) / 1000),
        "counts": survey.counts,
        "held": sum(node.held for node in present),
        "slots": sum(node.slots for node in present),
        "reasons": [(name, count, 100 * count // waiting) for name, count in reasons.most_common()],
        "kinds": [(needs_shown(kind.kind), kind) for kind in survey.kinds[:MOST_KINDS_SHOWN]],
        "kinds_not_shown": max(0, len(survey.kinds) - MOST_KINDS_SHOWN),
    }


def event_values(recent: Sequence[Event]) -> dict[str, Any]:
    """Return the last events, the newest first, and the id of the newest."""
    events = [(show_time(event.at_ms), event.text) for event in reversed(recent[-MOST_EVENTS:])]
    return {"events": events, "most_events": MOST_EVENTS, "after": recent[-1].id if recent else ""}


def node_values(survey: Survey | None, offset: int) -> dict[str, Any]:
    """Return the values of a page of nodes."""
    all_nodes = (survey or EMPTY_SURVEY).nodes
    rows = [
        (node, node.state, boxes_of(node), left_text(node), labels_shown(node.labels))
        for node in all_nodes[offset : offset + NODES_PER_PAGE]
    ]
    states = Counter(node.state.value for node in all_nodes).most_common()
    return {
        "total": len(all_nodes),
        "states": states,
        "nodes": rows,
        "offset": offset,
        "limit": NODES_PER_PAGE,
    }


def scheduler_values(survey: Survey | None, moments: Sequence[Moment] = ()) -> dict[str, Any]:
    """Return the schedulers, the ages of their copies, and charts of the last minutes."""
    schedulers = (survey or EMPTY_SURVEY).schedulers
    ages = [(scheduler.name, ages_of(scheduler)) for scheduler in schedulers if scheduler.alive]
    partitions = range(max((len(own_ages) for _, own_ages in ages), default=0))
    return {
        "schedulers": schedulers,
        "freshness": ages,
        "partitions": partitions,
        **chart_values(moments),
    }


def tenant_values(survey: Survey | None) -> dict[str, Any]:
    """Return the tenants and the limits, at most MOST_ACCOUNTS_SHOWN of each."""
    latest = survey or EMPTY_SURVEY
    tenancy = latest.tenancy

    def age_of(at_ms: int | None) -> str:
        return "" if at_ms is None else age_text((latest.now_ms - at_ms) / 1000)

    tenants = [
        (
            tenant,
            "-" if tenant.share is None else f"{tenant.share:.0%}",
            used_text(tenant),
            f"{tenant.due:.0%}",
            held_text(tenant),
            age_of(tenant.oldest_ms),
            amounts_text(tenant.at_least),
            amounts_text(tenant.at_most),
        )
        for tenant in tenancy.tenants[:MOST_ACCOUNTS_SHOWN]
    ]
    limits = []
    for limit in tenancy.limits[:MOST_ACCOUNTS_SHOWN]:
        where = f" on {limit.oldest.node}" if limit.oldest and limit.oldest.node else ""
        oldest = f"for {age_of(limit.oldest.since_ms)}{where}" if limit.oldest else ""
        rate = f"{limit.rate}, {limit.used} of {limit.burst} used" if limit.rate else ""
        limits.append((limit, allowed_text(limit), rate, oldest, limit_note(limit)))
    return {
        "tenants": tenants,
        "tenants_not_shown": max(0, len(tenancy.tenants) - MOST_ACCOUNTS_SHOWN),
        "limits": limits,
        "limits_not_shown": max(0, len(tenancy.limits) - MOST_ACCOUNTS_SHOWN),
    }


def boxes_of(node: NodeView) -> list[str]:
    """Return a word for each slot of a node: held, free or closed, in this order.

    The position of a word is not the number of a slot. A node with more than MOST_BOXES slots gets
    no boxes.
    """
    if node.slots > MOST_BOXES:
        return []
    closed = max(0, node.slots - node.held - node.free)
    return ["held"] * min(node.held, node.slots) + ["free"] * node.free + ["closed"] * closed


def ages_of(scheduler: SchedulerView) -> Sequence[tuple[str, int]]:
    """Return (age, shade) of each copy of a partition that the scheduler has. Age: ms, as text."""
    ages = [
        age
        for age in scheduler.stats.get(VIEW_AGES, "").split()
        if age.isdecimal() and len(age) < 12
    ]
    return [(age, sum(int(age) >= least for least in SHADES_MS)) for age in ages]


def age_text(seconds: float) -> str:
    """Return a duration for people: '3 s', '2 min', '5.1 h'."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def task_values(task: TaskStatus, explanation: Explanation) -> dict[str, Any]:
    """Return the values of the page of a task."""
    times = task.times
    now_ms = explanation.now_ms or None
    steps = [
        ("waited", times.get("ready"), times.get("placed")),
        ("starting", times.get("placed"), times.get("started")),
        ("ran", times.get("started"), times.get("finished")),
    ]
    spans = [(name, start, end or now_ms) for name, start, end in steps if start]
    sizes = [(name, max(0, end - start)) for name, start, end in spans if start and end]
    total = sum(size for _, size in sizes) or 1
    position = 0.0
    parts = []
    for name, size in sizes:
        parts.append(
            (name, round(position, 2), round(100 * size / total, 2), age_text(size / 1000))
        )
        position += 100 * size / total
    facts = [(name, show_time(at_ms)) for name, at_ms in times.items() if at_ms]
    facts += [
        ("needs", needs_shown(task.needs)),
        *([("prefers", preferences_shown(task.prefer))] if task.prefer else []),
        ("place", task.node or "-"),
        ("attempt", str(task.attempt)),
    ]
    if explanation.ahead != 0:
        facts.append(
            (
                "waiting tasks before it",
                "not counted" if explanation.ahead is None else f"{explanation.ahead:,}",
            )
        )
    holders = []
    for holder in explanation.holders:
        until = "for how long is not known yet"
        if holder.until:
            until = f"for {holder.until.text(explanation.now_ms)}"
        holders.append((holder, until))
    classes = []
    for node_class in explanation.classes:
        obstacles = "; ".join(obstacle.why for obstacle in node_class.obstacles)
        names = ", ".join(node_class.nodes[:5])
        classes.append((len(node_class.nodes), names, obstacles or "has room"))
    return {
        "task": task,
        "why": explanation.why or task.why,
        "parts": parts,
        "facts": facts,
        "classes": classes,
        "start": explanation.start_text,
        "holders": holders,
        "remedies": explanation.remedies,
        "choice": explanation.choice.lines() if explanation.choice else (),
        "candidates": explanation.candidates.lines(MOST_RANKED) if explanation.candidates else (),
    }
