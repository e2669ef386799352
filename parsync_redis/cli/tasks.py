"""Commands about tasks: submit, status, tasks, demand."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from ..model.status import Setback, TaskStatus
from ..model.task import WAITING, TaskState
from ..store.tasks import ANY, WAITING_STATES, list_tasks
from .common import Cluster, Config, Json, Url, make_client, print_found, print_json, say, show_time
from .options import from_flags, with_options


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for command in (submit, status, tasks, demand, names):
        app.command()(command)


@with_options
def submit(
    name: Annotated[str, typer.Argument(help="The task's name as its worker knows it: 'proj.tasks.render'.")],
    args: Annotated[
        list[str] | None, typer.Argument(help="Its arguments, each as JSON: 7 '\"text\"' '[1, 2]'.")
    ] = None,
    kwargs: Annotated[str, typer.Option(help="Its keyword arguments, a JSON object.")] = "{}",
    queue: Annotated[
        str | None, typer.Option(help="Only nodes that consume this Celery queue.", metavar="NAME")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Its id; the same id twice is one task.")] = None,
    countdown: Annotated[float | None, typer.Option(help="Seconds before which it does not start.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is final; exit 1 unless it succeeded.")] = False,
    timeout: Annotated[float | None, typer.Option(help="With --wait: give up after so many seconds.")] = None,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
    **flags: Any,
) -> None:
    """Submit a task and print its id. The options that its app declares apply where no flag overrides them."""
    options = {name: value for name, value in {**from_flags(flags), "queue": queue}.items() if value is not None}
    values = [_from_json(f"argument {at}", text) for at, text in enumerate(args or (), 1)]
    named = _from_json("--kwargs", kwargs)
    with make_client(url, cluster, config, retry_for_s=5) as client:
        id = client.submit(name, values, named, id=id, countdown=countdown, **options)
        if not wait:
            print_json({"id": id}) if as_json else say(id)
            return
        try:
            found = client.wait([id], timeout)[id]
        except TimeoutError:
            raise InvalidInput(f"task {id} is not final after {timeout:g} s; it goes on: parsync status {id}") from None
    print_json(found) if as_json else print_status(found)
    raise typer.Exit(0 if found.state is TaskState.SUCCEEDED else 1)


def _from_json(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidInput(f"{what} {text!r} is not JSON: a text is written '\"{text}\"', a number plainly") from None


def status(
    id: Annotated[str, typer.Argument(metavar="ID", help="The task's id.")],
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Show a task: its state, its place, why it waits, and the time of each step. Exit 1 if it is gone."""
    with make_client(url, cluster, config) as client:
        found = client.with_reasons([client.status(id)])[0]
    print_json(found) if as_json else print_status(found)
    raise typer.Exit(1 if found.state is TaskState.GONE else 0)


def print_status(task: TaskStatus) -> None:
    """Print the record of a task, one fact a line, and its history."""
    if task.state is TaskState.GONE:
        why = task.why or "it was never submitted, or its record has expired"
        say(f"task {task.id}: nothing is known of it; {why}")
        return
    start = task.times.get("submitted")
    facts: list[tuple[str, object]] = [
        ("task", task.id),
        ("name", task.name),
        ("state", task.phase),
        ("why", task.why or None),
        ("place", _place(task)),
        ("attempt", task.attempt),
        ("starts", task.starts),
        ("needs", task.needs),
        ("priority", task.priority),
        ("strategy", task.strategy or None),
        ("scheduler", task.scheduler),
        ("cancel asked", "yes" if task.cancel_asked else None),
        ("expires", None if task.expires_ms is None else show_time(task.expires_ms)),
    ]
    for step, at in task.times.items():
        after = f"  +{at - start} ms" if at is not None and start is not None and step != "submitted" else ""
        facts.append((step, f"{show_time(at)}{after}" if at is not None else None))
    for name, value in facts:
        if value is not None:
            say(f"{name + ':':<14}{value}")
    print_history(task.history)


def print_history(history: Sequence[Setback]) -> None:
    """Print the lost attempts of a task, one a line."""
    if history:
        say("lost attempts:")
    for lost in history:
        took_s = (lost.until_ms - lost.since_ms) / 1000
        say(
            f"  {lost.attempt:<8} {lost.state.value:<8} on {lost.node}/{lost.slot} since {show_time(lost.since_ms)} "
            f"for {took_s:.3f} s: {lost.why or 'no reason was given'}"
        )


def _place(task: TaskStatus) -> str | None:
    return None if task.node is None else f"{task.node}/{task.slot} in partition {task.partition}"


def tasks(
    state: Annotated[
        str | None, typer.Option(help="Only those: waiting, placed, running, succeeded, failed, cancelled, dead.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 50,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """List tasks: first those that have not ended. WHY says why a task waits now."""
    states = parse_states(state) if state is not None else ANY
    with make_client(url, cluster, config) as client:
        client.check()
        found = client.with_reasons(list_tasks(client.store, states, limit))
    print_found(
        found,
        as_json,
        ("ID", "NAME", "STATE", "PLACE", "ATTEMPT", "NEEDS", "SUBMITTED", "WHY"),
        lambda t: (
            t.id,
            t.name,
            t.phase,
            f"{t.node}/{t.slot}" if t.node else None,
            t.attempt,
            t.needs,
            show_time(t.times.get("submitted")),
            t.why,
        ),
        "no tasks",
    )


def parse_states(word: str) -> frozenset[TaskState]:
    """Return the states that a word stands for (waiting: pending and taken); raises InvalidInput."""
    known = [WAITING, *(s.value for s in TaskState if s is not TaskState.GONE)]
    if word not in known:
        raise InvalidInput(f"--state {word!r} is not known: known are {', '.join(known)}")
    return WAITING_STATES if word == WAITING else frozenset((TaskState(word),))


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
    print_found(
        found,
        as_json,
        ("KIND", "WAITING", "PRIORITY", "WHY"),
        lambda kind: (kind.kind, kind.waiting, kind.priority, kind.why or None),
        "no tasks wait",
    )


def names(as_json: Json = False, url: Url = None, cluster: Cluster = None, config: Config = None) -> None:
    """Show how long the tasks of each name run, by node class too: their number, mean and 95th percentile."""
    with make_client(url, cluster, config) as client:
        found = client.names()
    print_found(
        found,
        as_json,
        ("NAME", "COUNT", "MEAN", "P95", "NODES WITH"),
        lambda one: (one.name, one.count, f"{one.mean_ms:.4g} ms", f"{one.p95_ms:.4g} ms", one.node_class),
        "no task has run yet",
    )
