"""Commands about dead tasks, which lost as many starts as they may: dead list, show, requeue."""

from typing import Annotated

import typer

from ..errors import InvalidInput
from ..model.task import TaskState
from .common import Cluster, Config, Json, Url, make_client, print_found, print_json, say, show_time
from .tasks import print_status

dead = typer.Typer(no_args_is_help=True, help="Dead tasks, which lost as many starts as they may: list, show, requeue.")


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for name, command in (("list", list_), ("show", show), ("requeue", requeue)):
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
    print_found(
        found,
        as_json,
        ("ID", "NAME", "DIED", "STARTS", "LOST ON", "WHY"),
        lambda t: (
            t.id,
            t.name,
            show_time(t.times.get("finished")),
            t.starts,
            " ".join(dict.fromkeys(setback.node for setback in t.history)),
            t.why,
        ),
        "no dead tasks",
    )


def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The task's id.")],
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Tell the history of a dead task: each lost attempt, where, when and why. Exit 1 if the task is not dead."""
    with make_client(url, cluster, config) as client:
        found = client.status(id)
    print_json(found) if as_json else print_status(found)
    raise typer.Exit(0 if found.state is TaskState.DEAD else 1)


def requeue(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The tasks' ids.")] = None,
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
        answers = client.requeue_dead([task.id for task in client.dead(10_000)] if all_ else ids or [])
    if as_json:
        print_json(answers)
    else:
        for id, word in answers.items():
            say(f"{id} {'goes back to pending' if word == 'revived' else f'is {word}, not dead'}")
        if not answers:
            say("no dead tasks")
    raise typer.Exit(0 if all(word == "revived" for word in answers.values()) else 1)
