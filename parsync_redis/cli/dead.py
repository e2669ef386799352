"""Commands about dead tasks, which lost as many starts as they may: dead list, show, requeue."""

from typing import Annotated

import typer

from ..errors import InvalidInput
from ..model.human import age_text
from ..model.task import TaskState
from ..store.reads.purge import server_ms
from .common import (
    Cluster,
    Config,
    Json,
    Url,
    explain_empty,
    make_client,
    print_found,
    print_json,
    say,
    screen_width,
    show_time,
)
from .ids import Id, Ids, resolve_id, resolve_ids
from .listing import listing
from .table import Column, short_ids
from .tasks import print_status

dead = typer.Typer(
    no_args_is_help=True,
    help="Dead tasks, which lost as many starts as they may: list, show, requeue.",
)


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for name, command in (("list", listing(list_)), ("show", show), ("requeue", requeue)):
        dead.command(name)(command)
    app.add_typer(dead, name="dead")


def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """List dead tasks, the newest first; 10,000 are kept until they are requeued."""
    with make_client(url, cluster, config) as client:
        found = client.dead(limit)
        now_ms = server_ms(client.store)
        missing = explain_empty(client, found)
    ids = short_ids(task.id for task in found) if screen_width() is not None else {}
    print_found(
        found,
        as_json,
        (
            Column("ID", text=True),
            Column("NAME", cut="left"),
            Column("DIED", 1),
            "AGE",
            "STARTS",
            Column("LOST ON", cut="right"),
            Column("WHY", prose=True),
        ),
        lambda t: (
            ids.get(t.id, t.id),
            t.name,
            show_time(t.times.get("finished")),
            age_text((now_ms - (t.times.get("finished") or now_ms)) / 1000),
            t.starts,
            " ".join(dict.fromkeys(setback.node for setback in t.history)),
            t.why,
        ),
        "no dead tasks",
        missing,
    )


def show(
    id: Id,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Tell the history of a dead task: each lost attempt, where, when and why.

    Exit 1 if the task is not dead.
    """
    with make_client(url, cluster, config) as client:
        found = client.status(resolve_id(client, id))
        now_ms = server_ms(client.store)
    print_json(found) if as_json else print_status(found, now_ms)
    raise typer.Exit(0 if found.state is TaskState.DEAD else 1)


def requeue(
    ids: Ids = None,
    all_: Annotated[bool, typer.Option("--all", help="All that are dead now.")] = False,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Let dead tasks run again; their starts are counted from 0. Exit 1 if one was not dead."""
    if bool(ids) == all_:
        raise InvalidInput("say which: the ids of dead tasks, or --all (parsync dead list)")
    with make_client(url, cluster, config) as client:
        answers = client.requeue_dead(
            [task.id for task in client.dead(10_000)] if all_ else resolve_ids(client, ids or [])
        )
    if as_json:
        print_json(answers)
    else:
        for id, word in answers.items():
            say(f"{id} {'waits again' if word == 'revived' else f'is {word}, not dead'}")
        if not answers:
            say("no dead tasks")
    raise typer.Exit(0 if all(word == "revived" for word in answers.values()) else 1)
