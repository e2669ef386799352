"""Print the page of a node: its facts, its tasks, what could run there, its last failures."""

from collections.abc import Iterable, Sequence

from ..inspect.node_detail import NodeDetail, Occupant
from ..model.amount import shown_amount
from ..model.human import age_text, clock_text, labels_shown, needs_shown
from ..model.node import deadline_s, drain_reason, has_terms
from ..model.status import TaskStatus
from ..model.views import NodeView
from .common import print_table, say, screen_width
from .table import Column, short_ids, shorten_ids


def left_text(node: NodeView) -> str:
    """Return the part of a node's resources that no task holds: 'gpu=1/4 mem=2GiB/16GiB'."""
    return " ".join(
        f"{name}={_amount(node.left.get(name, 0))}/{_amount(amount)}"
        for name, amount in node.resources.items()
    )


def _amount(number: float) -> str:
    return shown_amount(round(number * 1000))


def print_node(detail: NodeDetail) -> None:
    """Print the page of a node."""
    node = detail.node
    down = ""
    if node.down_ms is not None:
        down = f" for {age_text((detail.now_ms - node.down_ms) / 1000)}"
    facts = (
        ("node", node.name),
        ("state", f"{node.state}{down}{_why(node)}"),
        ("slots", f"{node.held} of {node.slots} held, {node.free} open to tasks{_seats(node)}"),
        ("left", left_text(node)),
        ("labels", labels_shown(node.labels)),
        ("taints", " ".join(node.taints)),
        ("queues", " ".join(node.queues)),
        ("leaves", "" if node.leaves_ms is None else _leaves(node.leaves_ms, detail.now_ms)),
        ("reserved", node.reserved and f"for {node.reserved}"),
        ("score", f"{node.score:g}"),
        ("partition", str(node.partition)),
    )
    for name, value in facts:
        if value:
            say(f"{name + ':':<11}{value}")
    say("")
    _print_occupants(detail.occupants, detail.now_ms)
    say("")
    _print_waiting(detail)
    say("")
    _print_failures(detail)


def _why(node: NodeView) -> str:
    if not node.draining or not has_terms(node.note):
        return f": {node.note}" if node.note else ""
    terms = node.note.removeprefix("over ")
    seconds = deadline_s(terms)
    reason = drain_reason(terms)
    when = ", no deadline" if seconds is None else f", deadline {age_text(seconds)} after it began"
    passed = ", which has passed" if terms != node.note else ""
    return f"{when}{passed}" + (f": {reason}" if reason else "")


def _leaves(leaves_ms: int, now_ms: int) -> str:
    """Return when a node leaves, and in how long."""
    ahead = f", in {age_text((leaves_ms - now_ms) / 1000)}" if leaves_ms > now_ms else ""
    return f"at {clock_text(leaves_ms)}{ahead}"


def _seats(node: NodeView) -> str:
    return f"; {node.waiting} of {node.ahead} waiting seats in use" if node.ahead else ""


def _shown_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return the text of each id: short on a terminal, else whole."""
    whole_ids = list(ids)
    return short_ids(whole_ids) if screen_width() is not None else {id: id for id in whole_ids}


def _sentence(text: str) -> str:
    return shorten_ids(text) if screen_width() is not None else text


def _print_occupants(occupants: Sequence[Occupant], now_ms: int) -> None:
    ids = _shown_ids(occupant.task for occupant in occupants)
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
                slot_ranges(occupant.slots),
                ids[occupant.task],
                occupant.name,
                occupant.state,
                age_text((now_ms - (occupant.started_ms or occupant.placed_ms)) / 1000),
                needs_shown(occupant.holds),
            )
            for occupant in occupants
        ),
        "no task holds a slot",
    )


def slot_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: 0, 1, 2, 3, 7 is '0-3,7'."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _print_waiting(detail: NodeDetail) -> None:
    if not detail.waiting:
        say("no task waits that it could hold")
        return
    count = sum(kind.waiting for kind in detail.waiting)
    say(f"tasks that wait and that it could hold: {count:,}")
    print_table(
        ("WAITING", Column("KIND", cut="right"), Column("WHY", prose=True)),
        (
            (kind.waiting, needs_shown(kind.kind), _sentence(kind.why))
            for kind in detail.waiting[:10]
        ),
        "",
    )


def _print_failures(detail: NodeDetail) -> None:
    part = f" (a part: {detail.failures_part})" if detail.failures_part else ""
    if not detail.failures:
        say(f"no task has failed there lately{part}")
        return
    say(f"last failures there{part}")
    ids = _shown_ids(task.id for task in detail.failures)
    print_table(
        (Column("TASK", text=True), Column("NAME", cut="left"), "ENDED", Column("WHY", prose=True)),
        (
            (
                ids[task.id],
                task.name,
                f"{_age_of_end(task, detail.now_ms)} ago",
                task.why,
            )
            for task in detail.failures
        ),
        "",
    )


def _age_of_end(task: TaskStatus, now_ms: int) -> str:
    return age_text((now_ms - (task.times.get("finished") or now_ms)) / 1000)
