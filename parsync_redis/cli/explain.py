"""Commands that answer why: explain a task, and plan one without submitting it."""

from typing import Annotated, Any, Final

import typer

from ..model.explanation import Choice, Explanation, NodeClass, Outlook
from ..model.human import age_text, needs_shown
from .common import Cluster, Config, Json, Url, make_client, print_json, say, tell
from .completion import complete_name
from .ids import Id, resolve_id, with_near
from .options import from_flags, with_options
from .tasks import print_history

_EXIT_CODES: Final = {Outlook.NOW: 0, Outlook.WAITS: 1, Outlook.NEVER: 2}
_SHOWN: Final = 5
"""Holders and nodes of a class that are named without -v."""

Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Name every node and every holder.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for command in (explain, plan):
        app.command()(command)


def explain(
    id: Id,
    verbose: Verbose = False,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Say why a task waits, what keeps each node, who holds what it needs, and when it may start.

    Exit 1 if nothing is known of it.
    """
    with make_client(url, cluster, config) as client:
        found = client.explain(resolve_id(client, id))
    print_json(found) if as_json else print_explanation(found, verbose)
    raise typer.Exit(1 if found.outlook is Outlook.GONE else 0)


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
    cluster: Cluster = None,
    config: Config = None,
    **flags: Any,
) -> None:
    """Say where a task would go, without submitting it.

    Exit 0 if it would be placed now, 1 if it would wait, 2 if no node could ever hold it. An error
    has exit code 2 too: then standard output is empty.
    """
    options = {name: value for name, value in from_flags(flags).items() if value is not None}
    with make_client(url, cluster, config) as client:
        found = client.plan(name, queue=queue, **with_near(client, options))
    print_json(found) if as_json else print_explanation(found, verbose)
    raise typer.Exit(_EXIT_CODES[found.outlook])


def print_explanation(found: Explanation, verbose: bool) -> None:
    """Print an explanation, the answer first."""
    what = f" ({found.name} {needs_shown(found.needs)})" if found.name else ""
    say(f"{f'task {found.id}' if found.id else 'such a task'}{what}: {_answer(found)}")
    tell(f"  {found.why}", 4)
    if found.outlook in (Outlook.WAITS, Outlook.NEVER):
        if found.ahead is None or found.ahead_alike is None:
            tell("  waiting tasks before it: not counted", 4)
        elif found.ahead:
            tell(
                f"  waiting tasks before it: {found.ahead:,}, with equal needs: "
                f"{found.ahead_alike:,}",
                4,
            )
        if found.start_text:
            tell(f"  {found.start_text}", 4)
        for one in found.holders if verbose else found.holders[:_SHOWN]:
            ends = (
                f"for {one.until.text(found.now_ms)}"
                if one.until
                else "for how long is not known yet"
            )
            tell(f"  {one.node} is held by {one.task} ({one.name or 'unknown'}), {ends}", 4)
    if found.choice:
        _print_choice(found.choice)
    for some in found.classes:
        tell(
            f"  {len(some.nodes):>6,} node{'s' if len(some.nodes) > 1 else ' '}  "
            f"{_class(some, verbose)}",
            4,
        )
    for remedy in found.remedies:
        tell(f"  it could run with: {remedy}", 4)
    print_history(found.history)


def _print_choice(choice: Choice) -> None:
    """Print why a task has its place: by whom it was chosen, from what, and among which nodes."""
    lost = [holder or "a closed slot" for holder in choice.lost_to]
    after = f", after lost claims: {len(lost)} (to {', '.join(lost)})" if lost else ""
    tell(
        f"  chosen by {choice.scheduler}, {choice.strategy}, from a view {age_text(choice.age_s)} "
        f"old{after}",
        4,
    )
    tell("  candidates: " + " -> ".join(f"{step.nodes:,} {step.rule}" for step in choice.steps), 4)
    of_best = f"number {choice.rank} of those that are left; the best of them has {choice.best:g}"
    tell(f"  {choice.node} has score {choice.score:g}, {of_best}", 4)


def _answer(found: Explanation) -> str:
    return {
        Outlook.NOW: "has room now",
        Outlook.WAITS: "waits" if found.id else "would wait",
        Outlook.NEVER: "no node can ever hold it",
        Outlook.PLACED: f"has a place on {found.node}",
        Outlook.ENDED: "has ended",
        Outlook.GONE: "nothing is known of it",
    }[found.outlook]


def _class(some: NodeClass, verbose: bool) -> str:
    """Return what keeps the nodes of a class, and their names."""
    why = "; ".join(obstacle.why for obstacle in some.obstacles) or "has room"
    named = some.nodes if verbose else some.nodes[:_SHOWN]
    more = (
        f" and {len(some.nodes) - len(named):,} more (-v)" if len(named) < len(some.nodes) else ""
    )
    return f"{why}: {', '.join(named)}{more}"
