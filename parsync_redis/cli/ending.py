"""Commands about tasks that end or have ended: tasks cancel, tasks purge, tasks requeue."""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput
from ..model.human import needs_given
from ..model.ids import encode_id
from ..model.task import FINAL, TaskState
from ..store.reads.cancel import (
    Selection,
    cancel_tasks,
    cancel_words,
    find_purgeable,
    find_selected,
    purge_tasks,
    server_ms,
)
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
    say,
)
from .ids import Ids, resolve_ids

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command("tasks cancel")(cancel)
    app.command("tasks purge")(purge)
    app.command("tasks requeue")(requeue)


def cancel(
    ids: Ids = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="All tasks of this kind, as `parsync kinds` shows it.", show_default=False
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
    older_than: Annotated[
        str, typer.Option(help="All tasks that were submitted so long ago: 90s 10m 2h.")
    ] = "0s",
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Cancel tasks by their ids, or all of a kind, name or state: a running one is asked to end.

    Without --state, the tasks of a kind, name or age are those that wait. Before tasks of a kind,
    name, state or age are cancelled, the command asks, with their number; a task that gets further
    meanwhile is left alone. By ids: exit 1 if a task was final or gone already.
    """
    age_s = parse_seconds("--older-than", older_than)
    by_selection = bool(age_s) or any(value is not None for value in (kind, name, state))
    if by_selection == bool(ids):
        raise InvalidInput(
            "say which tasks: either ids, or some of --kind, --name, --state and --older-than"
        )
    if not by_selection:
        with make_client(url, cluster, config) as client:
            answers = client.cancel_many(resolve_ids(client, ids or ()))
        _print_answers(answers, as_json)
        raise typer.Exit(0 if all(word in _CANCELLED for word in answers.values()) else 1)
    chosen = Selection(
        TaskState.WAITING if state is None else state,
        "*" if name is None else name,
        kind and needs_given(kind),
    )
    with make_client(url, cluster, config) as client:
        client.check()
        selected = find_selected(client.store, chosen)
        if age_s:
            selected = _submitted_before(client, selected, age_s)
        if selected:
            _ask(client, f"cancel {len(selected)} {chosen.state} tasks", yes)
        done = Counter(cancel_words(cancel_tasks(client.store, selected, how=chosen.how)))
        missing = explain_empty(client, selected)
    print_json(done) if as_json else say(missing or _summary(chosen, done))
    end_if_missing(missing, as_json)


def _submitted_before(client: ParsyncClient, ids: list[str], age_s: float) -> list[str]:
    """Return the encoded ids of the tasks that were submitted at least `age_s` seconds ago."""
    latest_ms = server_ms(client.store) - age_s * 1000
    return [
        encode_id(task.id)
        for task in client.requests.in_batches(ids, client.store.statuses)
        if (task.times.get("submitted") or 0) <= latest_ms
    ]


_CANCELLED: Final = ("cancelled", "asked")
"""Answers for a task that the command has cancelled; other answers are the state of the task."""


def _print_answers(answers: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        print_json(answers)
        return
    for id, word in answers.items():
        say(f"{id} {word if word in _CANCELLED else 'is ' + word + ' already'}")


def _summary(chosen: Selection, done: Mapping[str, int]) -> str:
    """Return what a cancel of a selection did, in a line. done: numbers of tasks by answer."""
    text = f"{done.get('cancelled', 0)} {chosen.state} tasks cancelled"
    if running := done.get("asked", 0):
        text += f", {running} asked to end"
    skipped = ", ".join(
        f"{count} {word}" for word, count in sorted(done.items()) if word not in _CANCELLED
    )
    return f"{text}; left alone: {skipped}" if skipped else text


_FINAL_STATES: Final = ", ".join(sorted(state.value for state in FINAL))


def purge(
    state: Annotated[
        str | None,
        typer.Option(help="Which: succeeded, failed, cancelled or dead.", show_default=False),
    ] = None,
    name: Annotated[
        str, typer.Option(help="Only tasks of names that match a pattern: 'proj.*'.")
    ] = "*",
    older_than: Annotated[
        str, typer.Option(help="Only tasks that have ended so long ago: 90s 10m 2h.")
    ] = "0s",
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Delete the records of tasks that have ended.

    --state says which tasks. The command asks first, with their number. Tasks that have not ended
    are cancelled instead: `parsync tasks cancel`.
    """
    age_s = parse_seconds("--older-than", older_than)
    if state not in [final.value for final in FINAL]:
        fault = "say which records" if state is None else f"--state {state!r} cannot be purged"
        raise InvalidInput(
            f"{fault}: --state is one of {_FINAL_STATES}; "
            "tasks that wait are cancelled: parsync tasks cancel --state waiting"
        )
    with make_client(url, cluster, config) as client:
        client.check()
        purgeable = find_purgeable(client.store, state, name, age_s)
        if purgeable:
            _ask(client, f"delete the records of {len(purgeable)} {state} tasks", yes)
        purged = purge_tasks(client.store, purgeable)
        missing = explain_empty(client, purgeable)
    print_json({"purged": purged}) if as_json else say(missing or f"{purged} {state} tasks purged")
    end_if_missing(missing, as_json)


def _ask(client: ParsyncClient, act: str, yes: bool) -> None:
    """Ask whether to do the act, unless `yes`; raises InvalidInput if stdin is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"this would {act}: say so with --yes")
    typer.confirm(f"{act} of cluster {client.settings.cluster}?", abort=True, err=True)


def requeue(
    ids: Ids = None,
    all_: Annotated[bool, typer.Option("--all", help="All tasks that are dead now.")] = False,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Let dead tasks, which lost as many starts as they may, run again.

    Starts are counted from 0 again. Exit 1 if a task was not dead.
    """
    if bool(ids) == all_:
        raise InvalidInput(
            "say which: the ids of dead tasks, or --all (parsync tasks --state dead lists them)"
        )
    with make_client(url, cluster, config) as client:
        dead = [task.id for task in client.dead(10_000)] if all_ else resolve_ids(client, ids or [])
        answers = client.requeue(dead)
        missing = explain_empty(client, answers)
    if as_json:
        print_json(answers)
    else:
        for id, word in answers.items():
            say(f"{id} {'waits again' if word == 'revived' else f'is {word}, not dead'}")
        if not answers:
            say(missing or "no dead tasks")
    end_if_missing(missing, as_json)
    raise typer.Exit(0 if all(word == "revived" for word in answers.values()) else 1)
