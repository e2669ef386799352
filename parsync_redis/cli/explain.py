"""Commands that answer why: tasks explain, and tasks plan for a task that is not submitted."""

from typing import Annotated, Any, Final

import typer

from ..model.explanation import MOST_RANKED, Explanation, NodeClass, Outlook, RankedNodes
from ..model.human import needs_shown
from ..model.preferences import preferences_shown
from .common import ClusterName, Config, Json, Url, make_client, print_json, say, tell
from .completion import complete_name
from .ids import Id, resolve_id, with_near
from .options import from_flags, with_options
from .tasks import print_history

_EXIT_CODES: Final = {Outlook.NOW: 0, Outlook.WAITS: 1, Outlook.NEVER: 2, Outlook.REFUSED: 2}
_MAX_NAMED: Final = 5
"""Maximum number of holders, and of nodes of a class, that are named without -v."""

Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Name every node and every holder.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command("tasks plan")(plan)
    app.command("tasks explain")(explain)


def explain(
    id: Id,
    verbose: Verbose = False,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Say why a task waits, what keeps each node, who holds what it needs, and when it may start.

    Exit 1 if nothing is known of the task.
    """
    with make_client(url, cluster, config) as client:
        explanation = client.explain(resolve_id(client, id))
    print_json(explanation) if as_json else print_explanation(explanation, verbose)
    raise typer.Exit(1 if explanation.outlook is Outlook.GONE else 0)


@with_options
def plan(
    name: Annotated[
        str,
        typer.Argument(
            help="The task's name as its worker knows it: 'proj.tasks.render'.",
            autocompletion=complete_name,
        ),
    ],
    queue: Annotated[
        str | None, typer.Option(help="Only nodes that consume this Celery queue.", metavar="NAME")
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
    **flags: Any,
) -> None:
    """Say where a task would go, without submitting it.

    Exit 0: the task would be placed now, 1: the task would wait, 2: no node could ever hold the
    task, or nobody knows a limit of it. An error has exit code 2 too: then standard output is
    empty.
    """
    options = {name: value for name, value in from_flags(flags).items() if value is not None}
    with make_client(url, cluster, config) as client:
        explanation = client.plan(name, queue=queue, **with_near(client, options))
    print_json(explanation) if as_json else print_explanation(explanation, verbose)
    raise typer.Exit(_EXIT_CODES[explanation.outlook])


def print_explanation(explanation: Explanation, verbose: bool) -> None:
    """Print an explanation, the answer first. verbose: name every node and every holder."""
    subject = f"task {explanation.id}" if explanation.id else "such a task"
    if explanation.name:
        tenant = f" for {explanation.tenant}" if explanation.tenant else ""
        limits = f" under {explanation.limits.replace(',', ', ')}" if explanation.limits else ""
        wishes = f", prefers {preferences_shown(explanation.prefer)}" if explanation.prefer else ""
        needs = needs_shown(explanation.needs)
        subject += f" ({explanation.name} {needs}{tenant}{limits}{wishes})"
    say(f"{subject}: {_answer(explanation)}")
    _print_fact(explanation.why)
    if explanation.outlook in (Outlook.WAITS, Outlook.NEVER):
        _print_wait(explanation, verbose)
    for line in explanation.choice.lines() if explanation.choice else ():
        _print_fact(line)
    candidates = explanation.candidates
    listed = 0
    if candidates and explanation.outlook in (Outlook.NOW, Outlook.WAITS):
        listed = min(1 if explanation.id else MOST_RANKED, candidates.fitted)
        _print_candidates(candidates, listed)
    for node_class in explanation.classes:
        if not node_class.obstacles and len(node_class.nodes) == listed:
            continue  # they are named above
        count = len(node_class.nodes)
        plural = "s" if count > 1 else " "
        _print_fact(f"{count:>6,} node{plural}  {_class_text(node_class, verbose)}")
    for remedy in explanation.remedies:
        _print_fact(f"it could run with: {remedy}")
    print_history(explanation.history)


def _print_fact(text: str) -> None:
    tell(f"  {text}", 4)


def _print_wait(explanation: Explanation, verbose: bool) -> None:
    """Print what a task waits for: tasks before it, its start, and who holds what it needs."""
    if explanation.ahead is None or explanation.ahead_alike is None:
        _print_fact("waiting tasks before it: not counted")
    elif explanation.ahead:
        alike = f"with equal needs: {explanation.ahead_alike:,}"
        _print_fact(f"waiting tasks before it: {explanation.ahead:,}, {alike}")
    if explanation.start_text:
        _print_fact(explanation.start_text)
    for holding in explanation.holders if verbose else explanation.holders[:_MAX_NAMED]:
        duration = "for how long is not known yet"
        if holding.until:
            duration = f"for {holding.until.text(explanation.now_ms)}"
        holder = f"{holding.task} ({holding.name or 'unknown'})"
        _print_fact(f"{holding.node} is held by {holder}, {duration}")


def _print_candidates(candidates: RankedNodes, most: int) -> None:
    """Print where a task would go now. most: number of nodes."""
    counts, *nodes = candidates.lines(most)
    _print_fact(counts)
    for line in nodes:
        tell(f"    {line}", 6)


def _answer(explanation: Explanation) -> str:
    return {
        Outlook.NOW: "has room now",
        Outlook.WAITS: "waits" if explanation.id else "would wait",
        Outlook.NEVER: "no node can ever hold it",
        Outlook.REFUSED: "would be refused",
        Outlook.PLACED: f"has a place on {explanation.node}",
        Outlook.ENDED: "has ended",
        Outlook.GONE: "nothing is known of it",
    }[explanation.outlook]


def _class_text(node_class: NodeClass, verbose: bool) -> str:
    """Return what keeps the nodes of a class, and their names."""
    why = "; ".join(obstacle.why for obstacle in node_class.obstacles) or "has room"
    named = node_class.nodes if verbose else node_class.nodes[:_MAX_NAMED]
    unnamed = len(node_class.nodes) - len(named)
    suffix = f" and {unnamed:,} more (-v)" if unnamed else ""
    return f"{why}: {', '.join(named)}{suffix}"
