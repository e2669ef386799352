"""Commands about tasks and kinds: tasks show, tasks submit, kinds list, kinds times."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from ..model.human import age_text, needs_shown
from ..model.preferences import preferences_shown
from ..model.status import Setback, TaskStatus
from ..model.task import TaskState
from ..store.reads.cancel import server_ms
from .common import (
    ClusterName,
    Config,
    Json,
    Url,
    explain_empty,
    make_client,
    print_json,
    print_rows,
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
    app.command("tasks show")(show)
    app.command("tasks submit")(submit)
    app.command("kinds list")(listing(list_kinds))
    app.command("kinds times")(listing(run_times))


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
    cluster: ClusterName = None,
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
    values = [_from_json(f"argument {number}", text) for number, text in enumerate(args or (), 1)]
    named = _from_json("--kwargs", kwargs)
    with make_client(url, cluster, config, retry_for_s=5) as client:
        options = with_near(client, options)
        id = client.submit(name, values, named, id=id, countdown=countdown, **options)
        remember(client, id)
        if not wait:
            print_json({"id": id}) if as_json else say(id)
            return
        try:
            task = client.wait([id], timeout)[id]
        except TimeoutError:
            raise InvalidInput(
                f"task {id} is not final after {timeout:g} s; it goes on: parsync status {id}"
            ) from None
        now_ms = server_ms(client.store)
    print_json(task) if as_json else print_status(task, now_ms)
    raise typer.Exit(0 if task.state is TaskState.SUCCEEDED else 1)


def _from_json(source: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidInput(
            f"{source} {text!r} is not JSON: a text is written '\"{text}\"', a number plainly"
        ) from None


def show(
    id: Id,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Show a task: its state, its place, why it waits, and the time of each step.

    A task that lost starts has its lost attempts too. Exit 1 if nothing is known of the task.
    """
    with make_client(url, cluster, config) as client:
        task = client.with_reasons([client.status(resolve_id(client, id))])[0]
        now_ms = server_ms(client.store)
    print_json(task) if as_json else print_status(task, now_ms)
    raise typer.Exit(1 if task.state is TaskState.GONE else 0)


def print_status(task: TaskStatus, now_ms: int) -> None:
    """Print the record of a task, one fact a line, and its history. now_ms: the server's clock."""
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
        ("prefers", preferences_shown(task.prefer) or None),
        ("tenant", task.tenant or None),
        ("limits", task.limits.replace(",", ", ") or None),
        ("scheduler", task.scheduler),
        ("cancel asked", "yes" if task.cancel_asked else None),
        ("expires", None if task.expires_ms is None else _when(task.expires_ms, now_ms)),
    ]
    for step, time_ms in task.times.items():
        if time_ms is None:
            continue
        since_submit = ""
        if start is not None and step != "submitted":
            since_submit = f"  +{age_text((time_ms - start) / 1000)}"
        # The run of a task that waits again is over, and may not count as a start.
        is_past_run = step == "started" and task.state is TaskState.WAITING
        label = "last started" if is_past_run else step
        facts.append((label, f"{_when(time_ms, now_ms)}{since_submit}"))
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
        preposition = "for" if lost.state is TaskState.WAITING else "on"
        took = age_text((lost.until_ms - lost.since_ms) / 1000)
        tell(
            f"  {lost.attempt:<8} {lost.state.value:<8} {preposition} {lost.node}/{lost.slot} "
            f"since {show_time(lost.since_ms)} for {took}: {lost.why or 'no reason was given'}",
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
    """Return how long a task runs or ran last: '3m20s'; '' if start or end is not known."""
    started_ms = task.times.get("started")
    finished_ms = task.times.get("finished")
    end_ms = now_ms if task.state is TaskState.RUNNING else finished_ms
    return "" if started_ms is None or end_ms is None else age_text((end_ms - started_ms) / 1000)


def _place(task: TaskStatus) -> str | None:
    return None if task.node is None else f"{task.node}/{task.slot} in partition {task.partition}"


def list_kinds(
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Show what waits, by kind: how many tasks of equal name, needs and strategy, and why.

    The kind that schedulers take next is the first. Tasks that are not due yet do not count.
    """
    with make_client(url, cluster, config) as client:
        kinds = client.demand()
        missing = explain_empty(client, kinds)
    print_rows(
        kinds,
        as_json,
        (Column("KIND", cut="right"), "WAITING", Column("PRIORITY", 1), Column("WHY", prose=True)),
        lambda kind: (needs_shown(kind.kind), kind.waiting, kind.priority, kind.why or None),
        "no tasks wait",
        missing,
    )


def run_times(
    as_json: Json = False, url: Url = None, cluster: ClusterName = None, config: Config = None
) -> None:
    """Show how long tasks of each name run, by node class too: count, mean, 95th percentile."""
    with make_client(url, cluster, config) as client:
        views = client.names()
        missing = explain_empty(client, views)
    print_rows(
        views,
        as_json,
        (Column("NAME", cut="left"), "COUNT", "MEAN", "P95", Column("NODES WITH", prose=True)),
        lambda view: (
            view.name,
            view.count,
            age_text(view.mean_ms / 1000),
            age_text(view.p95_ms / 1000),
            needs_shown(view.node_class),
        ),
        "no task has run yet",
        missing,
    )
