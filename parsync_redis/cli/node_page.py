"""Print all about one node."""

from collections.abc import Iterable

from ..inspect.node_detail import NodeDetail, Occupant
from ..model.amount import shown_amount
from ..model.human import age_text, labels_shown, needs_shown
from ..model.node import deadline_s, drain_reason
from ..model.views import NodeView
from .common import print_table, say, screen_width
from .table import Column, short_ids, shorten_ids


def left_text(node: NodeView) -> str:
    """Return what no task holds of what a node has: 'gpu=1/4 mem=2GiB/16GiB'."""
    return " ".join(
        f"{name}={_amount(node.left.get(name, 0))}/{_amount(amount)}"
        for name, amount in node.resources.items()
    )


def _amount(number: float) -> str:
    return shown_amount(round(number * 1000))


def print_node(found: NodeDetail) -> None:
    """Print a node: its facts, what runs there, what could run there, its last failures."""
    node = found.node
    down = (
        f" for {age_text((found.now_ms - node.down_ms) / 1000)}" if node.down_ms is not None else ""
    )
    facts = (
        ("node", node.name),
        ("state", f"{node.state}{down}{_why(node)}"),
        ("slots", f"{node.held} of {node.slots} held, {node.free} open to tasks{_seats(node)}"),
        ("left", left_text(node)),
        ("labels", labels_shown(node.labels)),
        ("taints", " ".join(node.taints)),
        ("queues", " ".join(node.queues)),
        ("reserved", node.reserved and f"for {node.reserved}"),
        ("score", f"{node.score:g}"),
        ("partition", str(node.partition)),
    )
    for name, value in facts:
        if value:
            say(f"{name + ':':<11}{value}")
    say("")
    _print_occupants(found.occupants, found.now_ms)
    say("")
    _print_waiting(found)
    say("")
    _print_failures(found)


def _why(node: NodeView) -> str:
    if not node.draining:
        return f": {node.note}" if node.note else ""
    terms = node.note.removeprefix("over ")
    seconds = deadline_s(terms)
    reason = drain_reason(terms)
    when = ", no deadline" if seconds is None else f", deadline {age_text(seconds)} after it began"
    passed = ", which has passed" if terms != node.note else ""
    return f"{when}{passed}" + (f": {reason}" if reason else "")


def _seats(node: NodeView) -> str:
    return f"; {node.waiting} of {node.ahead} waiting seats in use" if node.ahead else ""


def _ids(ids: Iterable[str]) -> dict[str, str]:
    every = list(ids)
    return short_ids(every) if screen_width() is not None else {id: id for id in every}


def _sentence(text: str) -> str:
    return shorten_ids(text) if screen_width() is not None else text


def _print_occupants(some: Iterable[Occupant], now_ms: int) -> None:
    occupants = list(some)
    ids = _ids(one.task for one in occupants)
    print_table(
        (
            Column("SLOTS", cut="right"),
            Column("TASK", text=True),
            Column("NAME", cut="left"),
            "STATE",
            "FOR",
            Column("HOLDS", prose=True),
        ),
        (
            (
                slot_ranges(one.slots),
                ids[one.task],
                one.name,
                one.state,
                age_text((now_ms - (one.started_ms or one.placed_ms)) / 1000),
                needs_shown(one.holds),
            )
            for one in occupants
        ),
        "no task holds a slot",
    )


def slot_ranges(numbers: Iterable[int]) -> str:
    """Return numbers with runs of them as ranges: '0-3,7'."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _print_waiting(found: NodeDetail) -> None:
    if not found.waiting:
        say("no task waits that it could hold")
        return
    say(f"tasks that wait and that it could hold: {sum(kind.waiting for kind in found.waiting):,}")
    print_table(
        ("WAITING", Column("KIND", cut="right"), Column("WHY", prose=True)),
        (
            (kind.waiting, needs_shown(kind.kind), _sentence(kind.why))
            for kind in found.waiting[:10]
        ),
        "",
    )


def _print_failures(found: NodeDetail) -> None:
    part = f" (a part: {found.failures_part})" if found.failures_part else ""
    if not found.failures:
        say(f"no task has failed there lately{part}")
        return
    say(f"last failures there{part}")
    ids = _ids(task.id for task in found.failures)
    print_table(
        (Column("TASK", text=True), Column("NAME", cut="left"), "ENDED", Column("WHY", prose=True)),
        (
            (
                ids[task.id],
                task.name,
                f"{age_text((found.now_ms - (task.times.get('finished') or found.now_ms)) / 1000)} "
                "ago",
                task.why,
            )
            for task in found.failures
        ),
        "",
    )
