"""The command `top`: the cluster on one page, drawn again until q."""

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
from .common import Cluster, Config, Url, make_client
from .listing import screen
from .node_page import left_text
from .table import Column, lay_out, short_ids, shorten_ids
from .tasks import run_text

KEY_S: Final = 0.1
"""How often it looks whether a key was pressed or the window has another size."""

_FIXED: Final = 13
"""Lines that are no rows: three of the head, three between parts, a title and a head of each part,
and the last.
"""


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(top)


def top(
    every: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two looks.")
    ] = 1.0,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Show the cluster and draw it again every second, until q.

    Rates, schedulers, nodes by use, what waits and why, the longest runs. If the server goes away
    the page says so, and goes on when it is back.
    """
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise InvalidInput(
            "parsync top needs a terminal: without one use parsync nodes, demand and tasks, with "
            "--json"
        )
    with make_client(url, cluster, config, retry_for_s=0) as client, _own_screen():
        looker = _Looker(client, every)
        looker.start()
        shown: tuple[object, ...] = ()
        while not _pressed("q"):
            size = shutil.get_terminal_size()
            now = (looker.glance, looker.error, size, int(time.monotonic()))
            if now != shown:
                shown = now
                late_s = time.monotonic() - looker.read_s
                name = client.settings.cluster
                lines = page_lines(
                    looker.glance, looker.error, late_s, name, size.columns, size.lines
                )
                sys.stdout.write(screen(lines, size.lines))
                sys.stdout.flush()


class _Looker(threading.Thread):
    """Reads the cluster while the page answers keys: a server that is away keeps it for seconds."""

    def __init__(self, client: ParsyncClient, every_s: float) -> None:
        super().__init__(name="looker", daemon=True)
        self._client = client
        self._every_s = every_s
        self.glance: Glance | None = None
        self.error = ""
        self.read_s = time.monotonic()

    def run(self) -> None:
        """Look again and again."""
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
    """Use the terminal's other screen, without a cursor and without waiting for the end
    of a line.
    """
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(key: str) -> bool:
    """Wait a moment for a key; return whether it was this one."""
    ready, _, _ = select.select([sys.stdin], [], [], KEY_S)
    return bool(ready) and sys.stdin.read(1) in (key, key.upper(), "")


def page_lines(
    found: Glance | None, error: str, late_s: float, cluster: str, width: int, height: int
) -> list[str]:
    """Return the page.

    error: why the last look failed, '' if it did not; late_s: the age of what it shows. Pure.
    """
    if found is None:
        return [f"cluster {cluster}: {error or 'it is being read'}"[:width], "", "q ends"]
    trouble = (
        [f"this is {age_text(late_s)} old, and it is tried again: {error}"[:width]] if error else []
    )
    trouble += [
        f"{one.effect}: {printable(one.why)}: {printable(one.repair)}"[:width]
        for one in found.refusals
    ]
    rows = max(3, height - _FIXED - len(trouble))
    waits = _waiting_lines(found, width, max(1, rows // 3))
    runs = _run_lines(found, width, max(1, rows // 3))
    used = max(0, len(waits) - 2) + max(0, len(runs) - 2)
    nodes = _node_lines(found.nodes, width, max(1, rows - used))
    return [*trouble, *head_lines(found, cluster, width), "", *nodes, "", *waits, "", *runs]


def head_lines(found: Glance, cluster: str, width: int) -> list[str]:
    """Return the three lines about the whole."""
    alive = [one for one in found.schedulers if one.alive]
    leader = next((one.name for one in alive if one.leader), "none")
    delays = [float(one.stats.get("delay_ms") or 0) for one in alive]
    clock = datetime.fromtimestamp(found.now_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    rate = "-" if found.placed_s is None else f"{found.placed_s:.1f}/s"
    lost = "" if found.conflicts is None else f"  conflicts {found.conflicts:.1%}"
    delay = f"  delay {age_text(max(delays) / 1000)}" if delays else ""
    who = f"schedulers {len(alive)} of {len(found.schedulers)}, leader {leader}"
    present = [node for node in found.nodes if node.state != "down"]
    held = sum(node.held for node in present)
    slots = sum(node.slots for node in present)
    oldest = (
        ""
        if found.oldest_ms is None
        else f" (oldest {age_text((found.now_ms - found.oldest_ms) / 1000)})"
    )
    counts = found.counts
    tasks = (
        f"waiting {sum(kind.waiting for kind in found.kinds):,}{oldest}  not due {counts.later:,}"
    )
    more = f"  placed or running {counts.placed:,}  dead {counts.dead:,}"
    first = f"{cluster} {clock}  placed {rate}{lost}{delay}"
    second = f"{who}  slots {held:,} of {slots:,} held"
    return [first[:width], second[:width], f"{tasks}{more}"[:width]]


def _node_lines(nodes: Sequence[NodeView], width: int, most: int) -> list[str]:
    """Return the nodes, those that are used most first, but first those that are not up."""
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
        (n.name, str(n.state), str(n.held), str(n.slots), left_text(n), printable(n.note))
        for n in order[:most]
    ]
    return _part(f"nodes: {len(nodes):,}", columns, rows, width, len(nodes) - len(rows))


def _waiting_lines(found: Glance, width: int, most: int) -> list[str]:
    reasons = ", ".join(
        f"{name} {count:,}"
        for name, count in sorted(found.reasons.items(), key=lambda item: -item[1])
    )
    kinds = sorted(found.kinds, key=lambda kind: -kind.waiting)
    columns = ("WAITING", Column("KIND", cut="right"), Column("WHY", 1, "right"))
    rows = [
        (str(k.waiting), printable(needs_shown(k.kind)), printable(shorten_ids(k.why)))
        for k in kinds[:most]
    ]
    return _part(
        f"waiting: {reasons or 'none'}"[:width], columns, rows, width, len(kinds) - len(rows)
    )


def _run_lines(found: Glance, width: int, most: int) -> list[str]:
    ids = short_ids(task.id for task in found.runs)
    columns = (
        Column("TASK", text=True),
        Column("NAME", cut="left"),
        Column("PLACE", cut="right"),
        "RUN",
        Column("NEEDS", 1, "right"),
    )
    rows = [
        (ids[t.id], t.name, f"{t.node}/{t.slot}", run_text(t, found.now_ms), needs_shown(t.needs))
        for t in found.runs[:most]
    ]
    part = f" (a part: {found.runs_part})" if found.runs_part else ""
    return _part(
        f"longest runs{part}", columns, [tuple(map(printable, row)) for row in rows], width, 0
    )


def _part(
    title: str,
    columns: Sequence[Column | str],
    rows: Sequence[Sequence[str]],
    width: int,
    left: int,
) -> list[str]:
    """Return a part of the page: its title, and its rows if it has any.

    left: rows for which there is no room.
    """
    if not rows:
        return [title]
    more = f", of which {len(rows)} are shown" if left > 0 else ""
    return [f"{title}{more}"[:width], *(line[:width] for line in lay_out(columns, rows, width))]
