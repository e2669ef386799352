"""The command `top`: the cluster on one page, drawn every second until q."""

import select
import shutil
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput, ParsyncError
from ..inspect.glance import Glance, Glancer
from ..model.human import age_text, needs_shown
from ..model.node import NodeState
from ..model.printable import printable
from ..model.views import NodeView
from .common import ClusterName, Config, Url, make_client
from .listing import screen
from .node_page import left_text
from .table import Column, lay_out, short_ids, shorten_ids
from .tasks import run_text

KEY_WAIT_S: Final = 0.1
"""Seconds between two checks for a pressed key and for another size of the window."""

_FIXED_LINES: Final = 13
"""Lines that are no rows.

3 are the head, 3 are blank between parts, 6 are title and head of each part, and 1 is the last.
"""


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(top)


def top(
    every_s: Annotated[
        float, typer.Option("--every", min=0.2, max=3600, help="Seconds between two reads.")
    ] = 1.0,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Show the cluster and draw it again every second, until q.

    The page has rates, schedulers, nodes by use, what waits and why, and the longest runs. While
    the server is away the page says so.
    """
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise InvalidInput(
            "parsync top needs a terminal: without one use parsync nodes, kinds and tasks, with "
            "--json"
        )
    with make_client(url, cluster, config, retry_for_s=0) as client, _own_screen():
        reader = _Reader(client, every_s)
        reader.start()
        drawn: tuple[object, ...] = ()
        while not _pressed("q"):
            size = shutil.get_terminal_size()
            current = (reader.glance, reader.error, size, int(time.monotonic()))
            if current != drawn:
                drawn = current
                age_s = time.monotonic() - reader.read_s
                name = client.settings.cluster
                lines = page_lines(
                    reader.glance, reader.error, age_s, name, size.columns, size.lines
                )
                sys.stdout.write(screen(lines, size.lines))
                sys.stdout.flush()


class _Reader(threading.Thread):
    """Reads the cluster in a thread, so that the page answers keys while the server does not reply.

    glance: what was read last, None before the first reply.
    error: why the last read failed, or ''.
    read_s: monotonic time of the last reply.
    """

    def __init__(self, client: ParsyncClient, every_s: float) -> None:
        super().__init__(name="reader", daemon=True)
        self._client = client
        self._every_s = every_s
        self.glance: Glance | None = None
        self.error = ""
        self.read_s = time.monotonic()

    def run(self) -> None:
        """Read the cluster periodically, for ever."""
        glancer = Glancer(self._client.store)
        while True:
            try:
                self.glance = self._client.requests.do(glancer.look)
                self.error = ""
                self.read_s = time.monotonic()
            except ParsyncError as error:
                self.error = printable(error)
            time.sleep(self._every_s)


@contextmanager
def _own_screen() -> Iterator[None]:
    """Use the terminal's alternate screen, without a cursor; keys are read without Enter."""
    saved_modes = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved_modes)


def _pressed(key: str) -> bool:
    """Wait up to KEY_WAIT_S for a key; return whether the key was this one, or stdin has ended."""
    ready, _, _ = select.select([sys.stdin], [], [], KEY_WAIT_S)
    return bool(ready) and sys.stdin.read(1) in (key, key.upper(), "")


def page_lines(
    glance: Glance | None, error: str, age_s: float, cluster: str, width: int, height: int
) -> list[str]:
    """Return the lines of the page. Pure.

    error: why the last read failed, '' if it did not;
    age_s: the age of the glance in seconds.
    """
    if glance is None:
        return [f"cluster {cluster}: {error or 'it is being read'}"[:width], "", "q ends"]
    troubles = []
    if error:
        troubles.append(f"this is {age_text(age_s)} old, and it is tried again: {error}"[:width])
    for refusal in glance.refusals:
        text = f"{refusal.effect}: {printable(refusal.why)}: {printable(refusal.repair)}"
        troubles.append(text[:width])
    row_count = max(3, height - _FIXED_LINES - len(troubles))
    waiting = _waiting_lines(glance, width, max(1, row_count // 3))
    runs = _run_lines(glance, width, max(1, row_count // 3))
    other_rows = max(0, len(waiting) - 2) + max(0, len(runs) - 2)
    nodes = _node_lines(glance.nodes, width, max(1, row_count - other_rows))
    return [*troubles, *head_lines(glance, cluster, width), "", *nodes, "", *waiting, "", *runs]


def head_lines(glance: Glance, cluster: str, width: int) -> list[str]:
    """Return the three lines about the whole cluster: rates, schedulers and slots, tasks."""
    lines = (_rate_text(glance, cluster), _capacity_text(glance), _task_text(glance))
    return [line[:width] for line in lines]


def _rate_text(glance: Glance, cluster: str) -> str:
    clock = datetime.fromtimestamp(glance.now_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    rate = "-" if glance.placed_s is None else f"{glance.placed_s:.1f}/s"
    conflicts = "" if glance.conflicts is None else f"  conflicts {glance.conflicts:.1%}"
    delays = [float(s.stats.get("delay_ms") or 0) for s in glance.schedulers if s.alive]
    delay = f"  delay {age_text(max(delays) / 1000)}" if delays else ""
    return f"{cluster} {clock}  placed {rate}{conflicts}{delay}"


def _capacity_text(glance: Glance) -> str:
    alive = [scheduler for scheduler in glance.schedulers if scheduler.alive]
    leader = next((scheduler.name for scheduler in alive if scheduler.leader), "none")
    present = [node for node in glance.nodes if node.state != "down"]
    occupied = sum(node.held for node in present)
    slots = sum(node.slots for node in present)
    schedulers = f"schedulers {len(alive)} of {len(glance.schedulers)}, leader {leader}"
    return f"{schedulers}  slots {occupied:,} of {slots:,} held"


def _task_text(glance: Glance) -> str:
    oldest = ""
    if glance.oldest_ms is not None:
        oldest = f" (oldest {age_text((glance.now_ms - glance.oldest_ms) / 1000)})"
    waiting = f"waiting {sum(kind.waiting for kind in glance.kinds):,}{oldest}"
    counts = glance.counts
    return (
        f"{waiting}  not due {counts.later:,}  placed or running {counts.placed:,}"
        f"  dead {counts.dead:,}"
    )


def _node_lines(nodes: Sequence[NodeView], width: int, limit: int) -> list[str]:
    """Return the part about nodes: nodes that are not up first, then by the share of held slots."""
    order = sorted(
        nodes, key=lambda n: (n.state == NodeState.UP, -n.held / max(1, n.slots), n.name)
    )
    columns = (
        Column("NODE", cut="right"),
        "STATE",
        "HELD",
        "SLOTS",
        Column("LEFT", 1, "right"),
        Column("NOTE", 2, "right"),
    )
    rows = [
        (n.name, str(n.state), str(n.held), str(n.slots), left_text(n), printable(n.remarks))
        for n in order[:limit]
    ]
    return _part(f"nodes: {len(nodes):,}", columns, rows, width, len(nodes) - len(rows))


def _waiting_lines(glance: Glance, width: int, limit: int) -> list[str]:
    reasons = ", ".join(
        f"{name} {count:,}"
        for name, count in sorted(glance.reasons.items(), key=lambda item: -item[1])
    )
    kinds = sorted(glance.kinds, key=lambda kind: -kind.waiting)
    columns = ("WAITING", Column("KIND", cut="right"), Column("WHY", 1, "right"))
    rows = [
        (str(k.waiting), printable(needs_shown(k.kind)), printable(shorten_ids(k.why)))
        for k in kinds[:limit]
    ]
    return _part(
        f"waiting: {reasons or 'none'}"[:width], columns, rows, width, len(kinds) - len(rows)
    )


def _run_lines(glance: Glance, width: int, limit: int) -> list[str]:
    ids = short_ids(task.id for task in glance.runs)
    columns = (
        Column("TASK", text=True),
        Column("NAME", cut="left"),
        Column("PLACE", cut="right"),
        "RUN",
        Column("NEEDS", 1, "right"),
    )
    rows = [
        (ids[t.id], t.name, f"{t.node}/{t.slot}", run_text(t, glance.now_ms), needs_shown(t.needs))
        for t in glance.runs[:limit]
    ]
    part = f" (a part: {glance.runs_part})" if glance.runs_part else ""
    return _part(
        f"longest runs{part}", columns, [tuple(map(printable, row)) for row in rows], width, 0
    )


def _part(
    title: str,
    columns: Sequence[Column | str],
    rows: Sequence[Sequence[str]],
    width: int,
    omitted: int,
) -> list[str]:
    """Return a part of the page: its title, and the table of its rows.

    omitted: number of rows for which there is no room.
    """
    if not rows:
        return [title]
    suffix = f", of which {len(rows)} are shown" if omitted > 0 else ""
    return [f"{title}{suffix}"[:width], *(line[:width] for line in lay_out(columns, rows, width))]
