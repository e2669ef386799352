"""Commands that end tasks or throw them away: cancel, purge."""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput
from ..model.human import needs_given
from ..model.task import TaskState
from ..store.reads.cancel import Selection, cancel_tasks, cancel_words, find_selected
from ..store.reads.purge import find_purgeable, purge_tasks
from .common import (
    Cluster,
    Config,
    Json,
    Url,
    end_if_missing,
    explain_empty,
    make_client,
    parse_seconds,
    print_json,
    say,
)
from .ids import Ids, resolve_ids

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Name = Annotated[str, typer.Option(help="Only tasks of names that match a pattern: 'proj.*'.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for command in (cancel, purge):
        app.command()(command)


def cancel(
    ids: Ids = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="All tasks of this kind, as `parsync demand` shows it.", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="All tasks of names that match a pattern: 'proj.*'.", show_default=False),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="All tasks in this state: waiting (the default), placed or running."),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Cancel tasks by their ids, or all of a kind, name or state: a running one is asked to end.

    All of a kind, name or state: those that wait, unless --state says otherwise. It asks first,
    with their number, and leaves alone those that get further meanwhile. By ids: exit 1 if a task
    was final or gone already.
    """
    by_selection = any(value is not None for value in (kind, name, state))
    if by_selection == bool(ids):
        raise InvalidInput("say which tasks: either ids, or some of --kind, --name and --state")
    if not by_selection:
        with make_client(url, cluster, config) as client:
            answers = client.cancel_many(resolve_ids(client, ids or ()))
        _tell_ids(answers, as_json)
        raise typer.Exit(0 if all(word in _CANCELLED for word in answers.values()) else 1)
    chosen = Selection(
        TaskState.WAITING if state is None else state,
        "*" if name is None else name,
        kind and needs_given(kind),
    )
    with make_client(url, cluster, config) as client:
        client.check()
        found = find_selected(client.store, chosen)
        if found:
            _ask(client, f"cancel {len(found)} {chosen.state} tasks", yes)
        done = Counter(cancel_words(cancel_tasks(client.store, found, how=chosen.how)))
        missing = explain_empty(client, found)
    print_json(done) if as_json else say(missing or _summary(chosen, done))
    end_if_missing(missing, as_json)


_CANCELLED = ("cancelled", "asked")


def _tell_ids(answers: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        print_json(answers)
        return
    for id, word in answers.items():
        say(f"{id} {word if word in _CANCELLED else 'is ' + word + ' already'}")


def _summary(chosen: Selection, done: Mapping[str, int]) -> str:
    """Return what a cancel of a selection did, in a line."""
    cancelled, asked = (done.get(word, 0) for word in _CANCELLED)
    told = f"{cancelled} {chosen.state} tasks cancelled" + (
        f", {asked} asked to end" if asked else ""
    )
    left = ", ".join(
        f"{count} {word}" for word, count in sorted(done.items()) if word not in _CANCELLED
    )
    return f"{told}; left alone: {left}" if left else told


def purge(
    state: Annotated[
        str, typer.Option(help="Which: waiting, succeeded, failed, cancelled or dead.")
    ] = TaskState.WAITING,
    name: Name = "*",
    older_than: Annotated[
        str,
        typer.Option(
            help="Only those that were submitted, or have ended, so long ago: 90s 10m 2h."
        ),
    ] = "0s",
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Cancel tasks that wait, or delete the records of tasks that have ended.

    It asks first, with their number.
    """
    age_s = parse_seconds("--older-than", older_than)
    with make_client(url, cluster, config) as client:
        client.check()
        found = find_purgeable(client.store, state, name, age_s)
        if found:
            what = "cancel" if state == TaskState.WAITING else "delete the records of"
            _ask(client, f"{what} {len(found)} {state} tasks", yes)
        done = purge_tasks(client.store, found)
        missing = explain_empty(client, found)
    print_json({"purged": done}) if as_json else say(missing or f"{done} {state} tasks purged")
    end_if_missing(missing, as_json)


def _ask(client: ParsyncClient, what: str, yes: bool) -> None:
    """Ask whether to do this, unless `yes`; raises InvalidInput if nobody is there to answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"this would {what}: say so with --yes")
    typer.confirm(f"{what} of cluster {client.settings.cluster}?", abort=True, err=True)
