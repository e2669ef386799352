"""Make the values that the pages show, of a survey or of one task. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from ..cli.common import show_time
from ..cli.node_page import left_text
from ..model.events import Event
from ..model.explanation import Explanation
from ..model.human import labels_shown, needs_shown
from ..model.status import TaskStatus
from ..model.views import VIEW_AGES, NodeView
from ..placement.reasons import reason_class
from ..store.reads.demand import Counts
from ..store.reads.schedulers import SchedulerView
from .history import Moment, chart_values
from .survey import Survey

MOST_KINDS = 100
MOST_NODES = 100
MOST_BOXES = 64
MOST_EVENTS = 20
SHADES_MS: Final = (250, 1000, 3000, 10_000)
"""Ages at which the freshness map gets darker."""

NOTHING: Final = Survey(0, (), (), (), (), (), {}, Counts(0, 0, 0, 0, 0, 0), ())
"""The pages show this before the first survey."""


def overview_values(found: Survey | None) -> dict[str, Any]:
    """Return what the first page shows."""
    survey = found or NOTHING
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
        "kinds": [(needs_shown(kind.kind), kind) for kind in survey.kinds[:MOST_KINDS]],
        "more": max(0, len(survey.kinds) - MOST_KINDS),
    }


def event_values(kept: Sequence[Event]) -> dict[str, Any]:
    """Return the last events, the newest first, and the id of the newest."""
    events = [(show_time(event.at_ms), event.text) for event in reversed(kept[-MOST_EVENTS:])]
    return {"events": events, "most_events": MOST_EVENTS, "after": kept[-1].id if kept else ""}


def node_values(found: Survey | None, offset: int) -> dict[str, Any]:
    """Return a page of nodes."""
    every = (found or NOTHING).nodes
    some = [
        (n, n.state, boxes_of(n), left_text(n), labels_shown(n.labels))
        for n in every[offset : offset + MOST_NODES]
    ]
    states = Counter(node.state.value for node in every).most_common()
    return {
        "total": len(every),
        "states": states,
        "nodes": some,
        "offset": offset,
        "limit": MOST_NODES,
    }


def scheduler_values(found: Survey | None, moments: Sequence[Moment] = ()) -> dict[str, Any]:
    """Return the schedulers, the ages of their copies, and charts of the last minutes."""
    schedulers = (found or NOTHING).schedulers
    ages = [(one.name, ages_of(one)) for one in schedulers if one.alive]
    partitions = range(max((len(some) for _, some in ages), default=0))
    return {
        "schedulers": schedulers,
        "freshness": ages,
        "partitions": partitions,
        **chart_values(moments),
    }


def boxes_of(node: NodeView) -> list[str]:
    """Return a word for each slot: held, free or closed.

    Their order means nothing. A node of many slots gets none.
    """
    if node.slots > MOST_BOXES:
        return []
    closed = max(0, node.slots - node.held - node.free)
    return ["held"] * min(node.held, node.slots) + ["free"] * node.free + ["closed"] * closed


def ages_of(scheduler: SchedulerView) -> Sequence[tuple[str, int]]:
    """Return the age of each partition copy as the scheduler reports it, and how dark
    it is shown.
    """
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


def task_values(task: TaskStatus, found: Explanation) -> dict[str, Any]:
    """Return what the page of a task shows."""
    times = task.times
    now_ms = found.now_ms or None
    steps = [
        ("waited", times.get("ready"), times.get("placed")),
        ("starting", times.get("placed"), times.get("started")),
        ("ran", times.get("started"), times.get("finished")),
    ]
    spans = [(name, start, end or now_ms) for name, start, end in steps if start]
    sizes = [(name, max(0, end - start)) for name, start, end in spans if start and end]
    total = sum(size for _, size in sizes) or 1
    at = 0.0
    parts = []
    for name, size in sizes:
        parts.append((name, round(at, 2), round(100 * size / total, 2), age_text(size / 1000)))
        at += 100 * size / total
    facts = [(name, show_time(at_ms)) for name, at_ms in times.items() if at_ms]
    facts += [
        ("needs", needs_shown(task.needs)),
        ("place", task.node or "-"),
        ("attempt", str(task.attempt)),
    ]
    if found.ahead != 0:
        facts.append(
            (
                "waiting tasks before it",
                "not counted" if found.ahead is None else f"{found.ahead:,}",
            )
        )
    holders = [
        (
            one,
            f"for {one.until.text(found.now_ms)}" if one.until else "for how long is not known yet",
        )
        for one in found.holders
    ]
    classes = [
        (
            len(some.nodes),
            ", ".join(some.nodes[:5]),
            "; ".join(one.why for one in some.obstacles) or "has room",
        )
        for some in found.classes
    ]
    return {
        "task": task,
        "why": found.why or task.why,
        "parts": parts,
        "facts": facts,
        "classes": classes,
        "start": found.start_text,
        "holders": holders,
        "remedies": found.remedies,
    }
