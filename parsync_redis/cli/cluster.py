"""Commands about the cluster: nodes, partitions, schedulers, drain, undrain."""

from typing import Annotated, Final

import typer

from ..inspect.node_detail import read_node_detail
from ..model.human import age_text, labels_shown
from ..model.views import LONG_FIGURES, NodeView, measure_evenness
from ..store.reads.schedulers import read_refusals, read_schedulers
from .common import (
    Cluster,
    Config,
    Json,
    Url,
    end_if_missing,
    explain_empty,
    make_client,
    parse_seconds,
    print_found,
    print_json,
    print_table,
    say,
)
from .completion import complete_node
from .listing import listing
from .node_page import left_text, print_node
from .table import Column


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for command in (listing(nodes), listing(partitions), listing(schedulers), drain, undrain):
        app.command()(command)


def nodes(
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            help="Tell all about this one.",
            autocompletion=complete_node,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """List nodes, or tell all about one: what runs there and for how long, what is left, what
    failed last.

    LEFT is what no task holds, of what the node has. WAITING is the waiting seats in use, of those
    that are open.
    """
    with make_client(url, cluster, config) as client:
        if node is not None:
            detail = client.requests.do(lambda: read_node_detail(client.store, node))
            print_json(detail) if as_json else print_node(detail)
            return
        found = client.nodes()
        missing = explain_empty(client, found)
    print_found(
        found,
        as_json,
        (
            Column("NODE", cut="right"),
            "STATE",
            Column("PARTITION", 5),
            Column("SCORE", 4),
            "SLOTS",
            "FREE",
            Column("HELD", 3),
            Column("WAITING", 3),
            Column("LEFT", cut="right"),
            Column("QUEUES", 6, cut="right"),
            Column("LABELS", 3, cut="right"),
            Column("TAINTS", 1, cut="right"),
            Column("NOTE", prose=True),
        ),
        lambda n: (
            n.name,
            n.state.value,
            n.partition,
            n.score,
            n.slots,
            n.free,
            n.held,
            f"{n.waiting}/{n.ahead}" if n.ahead else "",
            left_text(n),
            " ".join(n.queues),
            labels_shown(n.labels),
            " ".join(n.taints),
            "; ".join(filter(None, (n.note, n.reserved and f"reserved for {n.reserved}"))),
        ),
        "no nodes: start a worker of your app with --parsync-node",
        missing,
    )


def partitions(
    as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None
) -> None:
    """List partitions, and how evenly nodes, scores and labels are dealt to them."""
    with make_client(url, cluster, config) as client:
        found = client.partitions()
        missing = explain_empty(client, found)
    evenness = measure_evenness(found)
    if as_json:
        print_json({"partitions": found, "evenness": evenness})
        end_if_missing(missing, as_json)
        return
    print_table(
        (
            "PARTITION",
            "NODES",
            "SLOTS",
            "FREE",
            Column("MEAN SCORE", 3),
            Column("VERSION", 4),
            Column("LABELS (SHARE OF SLOTS)", prose=True),
        ),
        (
            (
                p.number,
                p.nodes,
                p.slots,
                p.free,
                p.mean_score,
                p.version,
                " ".join(f"{label} {slots / p.slots:.0%}" for label, slots in p.labels.items()),
            )
            for p in found
        ),
        missing or "no partitions: the first scheduler makes them: parsync scheduler",
    )
    end_if_missing(missing, as_json)
    if found:
        shares = "".join(f", {label} {_percent(value)}" for label, value in evenness.labels.items())
        say(
            f"spread, (max - min) / mean: slots {_percent(evenness.slots)}, "
            f"mean score {_percent(evenness.mean_score)}{shares}"
        )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


_RANKS: Final = {
    "placed": 1,
    "conflicts": 2,
    "delay_ms": 2,
    "in_flight": 3,
    "view_age_ms": 4,
    "claims": 5,
    "free": 6,
}
"""How soon a narrow terminal leaves out a figure of a scheduler; those that matter most to people
have small ones.
"""


def schedulers(
    as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None
) -> None:
    """List schedulers: which is leader, which is alive, and the statistics of each."""
    with make_client(url, cluster, config) as client:
        client.check()
        found = read_schedulers(client.store)
        missing = explain_empty(client, found)
        silencing = [refusal for refusal in read_refusals(client.store) if refusal.silences]
    known = sorted({name for s in found for name in s.stats} - LONG_FIGURES)  # --json has them
    print_found(
        found,
        as_json,
        (
            Column("SCHEDULER", cut="right"),
            Column("ORDINAL", 8),
            "LEADER",
            "ALIVE",
            "RENEWED",
            Column("COUNTER", 9),
            *(Column(name.upper(), _RANKS.get(name, 7)) for name in known),
        ),
        lambda s: (
            s.name,
            s.ordinal,
            "yes" if s.leader else "",
            "yes" if s.alive else "NO",
            "over 1h ago" if s.silent_s is None else f"{age_text(s.silent_s)} ago",
            s.counter,
            *(s.stats.get(n, "") for n in known),
        ),
        "no schedulers: start one: parsync scheduler",
        missing,
    )
    for refusal in silencing:
        say(f"nobody can renew now: {refusal}", to_stderr=True)


Node = Annotated[
    str, typer.Argument(metavar="NODE", help="The node's name.", autocompletion=complete_node)
]


def drain(
    node: Node,
    deadline: Annotated[
        str | None,
        typer.Option(help="After this time its runs are ended, and placed elsewhere: 90s 10m 2h."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why: one line for people.")] = "",
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Give a node no new tasks, also after it restarts; its runs go on, until a deadline if one is
    given.
    """
    with make_client(url, cluster, config) as client:
        _say(
            client.drain(
                node, None if deadline is None else parse_seconds("--deadline", deadline), reason
            ),
            as_json,
        )


def undrain(
    node: Node,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Give tasks to a drained or suspect node again."""
    with make_client(url, cluster, config) as client:
        _say(client.undrain(node), as_json)


def _say(node: NodeView, as_json: bool) -> None:
    if as_json:
        print_json(node)
    else:
        note = f" ({node.note})" if node.note else ""
        say(
            f"{node.name} {node.state}{note}: {node.held} of {node.slots} slots held, {node.free} "
            "open to tasks"
        )
