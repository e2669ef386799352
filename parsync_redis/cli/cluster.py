"""Commands about the cluster: nodes, partitions, schedulers, drain, undrain."""

from typing import Annotated

import typer

from ..model.views import LONG_FIGURES, NodeView, measure_evenness
from ..store.members import read_schedulers
from .common import (
    Cluster,
    Config,
    Json,
    Url,
    make_client,
    parse_seconds,
    print_found,
    print_json,
    print_table,
    say,
    words,
)


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for command in (nodes, partitions, schedulers, drain, undrain):
        app.command()(command)


def nodes(as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None) -> None:
    """List nodes: slots that are free and held, resources that are left, labels."""
    with make_client(url, cluster, config) as client:
        found = client.nodes()
    print_found(
        found,
        as_json,
        (
            "NODE",
            "STATE",
            "PARTITION",
            "SCORE",
            "SLOTS",
            "FREE",
            "HELD",
            "WAITING",
            "LEFT",
            "QUEUES",
            "LABELS",
            "TAINTS",
            "NOTE",
        ),
        lambda n: (
            n.name,
            _state(n),
            n.partition,
            n.score,
            n.slots,
            n.free,
            n.held,
            f"{n.waiting}/{n.ahead}" if n.ahead else "",
            " ".join(f"{name}={n.left.get(name, 0)}/{amount}" for name, amount in n.resources.items()),
            " ".join(n.queues),
            words(n.labels, ":"),
            " ".join(n.taints),
            "; ".join(filter(None, (n.note, n.reserved and f"reserved for {n.reserved}"))),
        ),
        "no nodes: start a worker of your app with --parsync-node",
    )


def _state(node: NodeView) -> str:
    return "draining" if node.state == "up" and node.draining else node.state


def partitions(as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None) -> None:
    """List partitions, and how evenly nodes, scores and labels are dealt to them."""
    with make_client(url, cluster, config) as client:
        found = client.partitions()
    evenness = measure_evenness(found)
    if as_json:
        print_json({"partitions": found, "evenness": evenness})
        return
    print_table(
        ("PARTITION", "NODES", "SLOTS", "FREE", "MEAN SCORE", "VERSION", "LABELS (SHARE OF SLOTS)"),
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
        "no partitions: the first scheduler makes them: parsync scheduler",
    )
    if found:
        shares = "".join(f", {label} {_percent(value)}" for label, value in evenness.labels.items())
        say(
            f"spread, (max - min) / mean: slots {_percent(evenness.slots)}, "
            f"mean score {_percent(evenness.mean_score)}{shares}"
        )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def schedulers(as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None) -> None:
    """List schedulers: which is leader, which is alive, and the statistics of each."""
    with make_client(url, cluster, config) as client:
        client.check()
        found = read_schedulers(client.store)
    known = sorted({name for s in found for name in s.stats} - LONG_FIGURES)  # --json has them
    print_found(
        found,
        as_json,
        ("SCHEDULER", "ORDINAL", "LEADER", "ALIVE", "RENEWED", "COUNTER", *(name.upper() for name in known)),
        lambda s: (
            s.name,
            s.ordinal,
            "yes" if s.leader else "",
            "yes" if s.alive else "NO",
            "over 1 h ago" if s.silent_s is None else f"{s.silent_s:.1f} s ago",
            s.counter,
            *(s.stats.get(n, "") for n in known),
        ),
        "no schedulers: start one: parsync scheduler",
    )


Node = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")]


def drain(
    node: Node,
    deadline: Annotated[
        str | None, typer.Option(help="After this time its runs are ended, and placed elsewhere: 90s 10m 2h.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why: one line for people.")] = "",
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Give a node no new tasks, also after it restarts; its runs go on, until a deadline if one is given."""
    with make_client(url, cluster, config) as client:
        _say(client.drain(node, None if deadline is None else parse_seconds("--deadline", deadline), reason), as_json)


def undrain(node: Node, as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None) -> None:
    """Give tasks to a drained or suspect node again."""
    with make_client(url, cluster, config) as client:
        _say(client.undrain(node), as_json)


def _say(node: NodeView, as_json: bool) -> None:
    if as_json:
        print_json(node)
    else:
        note = f" ({node.note})" if node.note else ""
        say(f"{node.name} {_state(node)}{note}: {node.held} of {node.slots} slots held, {node.free} open to tasks")
