"""Commands about the cluster: nodes (list, show, drain, undrain), partitions, schedulers."""

from typing import Annotated, Final

import typer

from ..inspect.node_detail import read_node_detail
from ..model.human import age_text, labels_shown
from ..model.views import LONG_FIGURES, NodeView, measure_evenness
from ..store.reads.schedulers import read_refusals, read_schedulers
from .common import (
    ClusterName,
    Config,
    Json,
    Url,
    end_if_missing,
    explain_empty,
    make_client,
    parse_seconds,
    print_json,
    print_rows,
    print_table,
    say,
)
from .completion import complete_node
from .listing import listing
from .node_page import left_text, print_node
from .table import Column


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command("nodes list")(listing(list_nodes))
    app.command("nodes show")(listing(show_node))
    app.command("nodes drain")(drain)
    app.command("nodes undrain")(undrain)
    app.command()(listing(partitions))
    app.command()(listing(schedulers))


NodeName = Annotated[
    str, typer.Argument(metavar="NODE", help="The node's name.", autocompletion=complete_node)
]


def list_nodes(
    node: Annotated[
        str | None, typer.Argument(hidden=True, autocompletion=complete_node, show_default=False)
    ] = None,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """List nodes: state, slots, what is left of their resources, taints.

    LEFT is the part of a node's resources that no task holds. WAITING is the number of waiting
    seats in use, of all open ones.
    """
    if node is not None:  # flags stand before the name: parsync nodes --json n1
        show_node(node, as_json, url, cluster, config)
        return
    with make_client(url, cluster, config) as client:
        views = client.nodes()
        missing = explain_empty(client, views)
    print_rows(
        views,
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
            n.remarks,
        ),
        "no nodes: start a worker of your app with --parsync-node",
        missing,
    )


def show_node(
    node: NodeName,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Show a node: what runs there and for how long, what is left, what failed last."""
    with make_client(url, cluster, config) as client:
        detail = client.requests.do(lambda: read_node_detail(client.store, node))
    print_json(detail) if as_json else print_node(detail)


def partitions(
    as_json: Json = False, url: Url = None, cluster: ClusterName = None, config: Config = None
) -> None:
    """List partitions, and how evenly nodes, scores and labels are dealt to them."""
    with make_client(url, cluster, config) as client:
        views = client.partitions()
        missing = explain_empty(client, views)
    evenness = measure_evenness(views)
    if as_json:
        print_json({"partitions": views, "evenness": evenness})
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
            for p in views
        ),
        missing or "no partitions: the first scheduler makes them: parsync scheduler",
    )
    end_if_missing(missing, as_json)
    if views:
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
"""Rank of each figure of a scheduler: a narrow terminal leaves out figures of large rank first."""


def schedulers(
    as_json: Json = False, url: Url = None, cluster: ClusterName = None, config: Config = None
) -> None:
    """List schedulers: which is leader, which is alive, and the statistics of each."""
    with make_client(url, cluster, config) as client:
        client.check()
        views = read_schedulers(client.store)
        missing = explain_empty(client, views)
        silencing = [refusal for refusal in read_refusals(client.store) if refusal.silences]
    # --json has the long figures too
    figures = sorted({name for s in views for name in s.stats} - LONG_FIGURES)
    print_rows(
        views,
        as_json,
        (
            Column("SCHEDULER", cut="right"),
            Column("ORDINAL", 8),
            "LEADER",
            "ALIVE",
            "RENEWED",
            Column("COUNTER", 9),
            *(Column(name.upper(), _RANKS.get(name, 7)) for name in figures),
        ),
        lambda s: (
            s.name,
            s.ordinal,
            "yes" if s.leader else "",
            "yes" if s.alive else "NO",
            "over 1h ago" if s.silent_s is None else f"{age_text(s.silent_s)} ago",
            s.counter,
            *(s.stats.get(n, "") for n in figures),
        ),
        "no schedulers: start one: parsync scheduler",
        missing,
    )
    for refusal in silencing:
        say(f"nobody can renew now: {refusal}", to_stderr=True)


def drain(
    node: NodeName,
    deadline: Annotated[
        str | None,
        typer.Option(help="After this time, end its runs and place them elsewhere: 90s 10m 2h."),
    ] = None,
    leaves_at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="It leaves then, and until then gets tasks that end before: 30s 10m 14:30.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why: one line for people.")] = "",
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Give a node no new tasks, also after a restart; its runs go on, up to a deadline if any."""
    deadline_s = None if deadline is None else parse_seconds("--deadline", deadline)
    with make_client(url, cluster, config) as client:
        _print_view(client.drain(node, deadline_s, reason, leaves_at=leaves_at), as_json)


def undrain(
    node: NodeName,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Give tasks to a drained or suspect node again."""
    with make_client(url, cluster, config) as client:
        _print_view(client.undrain(node), as_json)


def _print_view(node: NodeView, as_json: bool) -> None:
    if as_json:
        print_json(node)
    else:
        note = f" ({node.remarks})" if node.remarks else ""
        say(
            f"{node.name} {node.state}{note}: {node.held} of {node.slots} slots held, {node.free} "
            "open to tasks"
        )
