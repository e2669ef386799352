"""Commands about tasks: submit, status, demand, names."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from ..model.human import age_text, needs_shown
from ..model.status import Setback, TaskStatus
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
    show_time,
    tell,
)
from .completion import complete_name
from .ids import Id, remember, resolve_id, with_near
from .listing import listing
from .options import from_flags, with_options
from .table import Column


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for command in (submit, status, listing(demand), listing(names)):
        app.command()(command)


@with_options
def submit(
    name: Annotated[
        str,
        typer.Argument(
            help="The task's name as its worker knows it: 'proj.tasks.render'.",
            autocompletion=complete_name,
        ),
    ],
    args: Annotated[
        list[str] | None, typer.Argument(help="Its arguments, each as JSON: 7 '\"text\"' '[1, 2]'.")
    ] = None,
    kwargs: Annotated[str, typer.Option(help="Its keyword arguments, a JSON object.")] = "{}",
    queue: Annotated[
        str | None, typer.Option(help="Only nodes that consume this Celery queue.", metavar="NAME")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Its id; the same id twice is one task.")
    ] = None,
    countdown: Annotated[
        float | None, typer.Option(help="Seconds before which it does not start.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is final; exit 1 unless it succeeded.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(help="With --wait: give up after so many seconds.")
    ] = None,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
    **flags: Any,
) -> None:
    """Submit a task and print its id.

    The options that its app declares apply where no flag overrides them.
    """
    options = {
        name: value
        for name, value in {**from_flags(flags), "queue": queue}.items()
        if value is not None
    }
    values = [_from_json(f"argument {at}", text) for at, text in enumerate(args or (), 1)]
    named = _from_json("--kwargs", kwargs)
    with make_client(url, cluster, config, retry_for_s=5) as client:
        options = with_near(client, options)
        id = client.submit(name, values, named, id=id, countdown=countdown, **options)
        remember(client, id)
        if not wait:
            print_json({"id": id}) if as_json else say(id)
            return
        try:
            found = client.wait([id], timeout)[id]
        except TimeoutError:
            raise InvalidInput(
                f"task {id} is not final after {timeout:g} s; it goes on: parsync status {id}"
            ) from None
        now_ms = server_ms(client.store)
    print_json(found) if as_json else print_status(found, now_ms)
    raise typer.Exit(0 if found.state is TaskState.SUCCEEDED else 1)


def _from_json(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidInput(
            f"{what} {text!r} is not JSON: a text is written '\"{text}\"', a number plainly"
        ) from None


def status(
    id: Id,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Show a task: its state, its place, why it waits, and the time of each step.

    Exit 1 if it is gone.
    """
    with make_client(url, cluster, config) as client:
        found = client.with_reasons([client.status(resolve_id(client, id))])[0]
        now_ms = server_ms(client.store)
    print_json(found) if as_json else print_status(found, now_ms)
    raise typer.Exit(1 if found.state is TaskState.GONE else 0)


def print_status(task: TaskStatus, now_ms: int) -> None:
    """Print the record of a task, one fact a line, and its history. now_ms: the server's time."""
    if task.state is TaskState.GONE:
        why = task.why or "it was never submitted, or its record has expired"
        say(f"task {task.id}: nothing is known of it; {why}")
        return
    start = task.times.get("submitted")
    facts: list[tuple[str, object]] = [
        ("task", task.id),
        ("name", task.name),
        ("state", task.state.value),
        ("why", task.why or None),
        ("place", _place(task)),
        ("attempt", task.attempt),
        ("starts", task.starts),
        ("needs", needs_shown(task.needs)),
        ("priority", task.priority),
        ("strategy", task.strategy or None),
        ("scheduler", task.scheduler),
        ("cancel asked", "yes" if task.cancel_asked else None),
        ("expires", None if task.expires_ms is None else _when(task.expires_ms, now_ms)),
    ]
    for step, at in task.times.items():
        if at is not None:
            after = (
                f"  +{age_text((at - start) / 1000)}"
                if start is not None and step != "submitted"
                else ""
            )
            past = (
                step == "started" and task.state is TaskState.WAITING
            )  # that run is over, and may not count as a start
            facts.append(("last started" if past else step, f"{_when(at, now_ms)}{after}"))
    if ran := run_text(task, now_ms):
        facts.append(("runs for" if task.state is TaskState.RUNNING else "ran for", ran))
    for name, value in facts:
        if value is not None:
            whole = name in ("task", "name", "needs")
            say(f"{name + ':':<14}{value}") if whole else tell(f"{name + ':':<14}{value}", 14)
    print_history(task.history)


def print_history(history: Sequence[Setback]) -> None:
    """Print the lost attempts of a task, one a line."""
    if history:
        say("lost attempts:")
    for lost in history:
        at = "for" if lost.state is TaskState.WAITING else "on"
        took = age_text((lost.until_ms - lost.since_ms) / 1000)
        tell(
            f"  {lost.attempt:<8} {lost.state.value:<8} {at} {lost.node}/{lost.slot} since "
            f"{show_time(lost.since_ms)} "
            f"for {took}: {lost.why or 'no reason was given'}",
            4,
        )


def _when(ms: int, now_ms: int) -> str:
    """Return a time, and how far away it is."""
    away = (now_ms - ms) / 1000
    return (
        f"{show_time(ms)} ({age_text(away)} ago)"
        if away >= 0
        else f"{show_time(ms)} (in {age_text(-away)})"
    )


def run_text(task: TaskStatus, now_ms: int) -> str:
    """Return how long a task runs or ran last, '' if it has not run or the end of its run is not
    known.
    """
    started_ms = task.times.get("started")
    finished_ms = task.times.get("finished")
    end_ms = now_ms if task.state is TaskState.RUNNING else finished_ms
    return "" if started_ms is None or end_ms is None else age_text((end_ms - started_ms) / 1000)


def _place(task: TaskStatus) -> str | None:
    return None if task.node is None else f"{task.node}/{task.slot} in partition {task.partition}"


def demand(
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Show what waits, by kind: how many tasks of equal name, needs and strategy, and why.

    In the order in which schedulers take them. Tasks that are not due yet do not count.
    """
    with make_client(url, cluster, config) as client:
        found = client.demand()
        missing = explain_empty(client, found)
    print_found(
        found,
        as_json,
        (Column("KIND", cut="right"), "WAITING", Column("PRIORITY", 1), Column("WHY", prose=True)),
        lambda kind: (needs_shown(kind.kind), kind.waiting, kind.priority, kind.why or None),
        "no tasks wait",
        missing,
    )


def names(
    as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None
) -> None:
    """Show how long the tasks of each name run, by node class too: their number, mean and 95th
    percentile.
    """
    with make_client(url, cluster, config) as client:
        found = client.names()
        missing = explain_empty(client, found)
    print_found(
        found,
        as_json,
        (Column("NAME", cut="left"), "COUNT", "MEAN", "P95", Column("NODES WITH", prose=True)),
        lambda one: (
            one.name,
            one.count,
            age_text(one.mean_ms / 1000),
            age_text(one.p95_ms / 1000),
            needs_shown(one.node_class),
        ),
        "no task has run yet",
        missing,
    )
