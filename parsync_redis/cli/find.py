"""The command `tasks list`: tasks by state, name, node, age and what they hold."""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from ..errors import InvalidInput
from ..model.account import check_limit, check_tenant
from ..model.human import age_text, needs_shown
from ..model.ids import check_name
from ..model.status import TaskStatus
from ..store.reads.cancel import server_ms
from ..store.reads.find_tasks import SORTS, TaskQuery, find_tasks
from ..store.reads.tasks import ANY, HOLDING, UNENDED
from .common import (
    ClusterName,
    Config,
    Json,
    Url,
    explain_empty,
    make_client,
    parse_seconds,
    print_rows,
    say,
    screen_width,
    show_time,
)
from .completion import complete_name, complete_node, complete_state
from .listing import listing
from .states import parse_states
from .table import Column, short_ids, shorten_ids
from .tasks import run_text

_COLUMNS: Final = (
    Column("ID", text=True),
    Column("NAME", cut="left"),
    "STATE",
    Column("PLACE", cut="right"),
    Column("ATTEMPT", 4),
    Column("AGE"),
    Column("RUN"),
    Column("NEEDS", 2, cut="right"),
    Column("SUBMITTED", 3),
    Column("WHY", prose=True),
)


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command("tasks list")(listing(list_matching))


def list_matching(
    state: Annotated[
        str | None,
        typer.Option(
            help=(
                "Only tasks in this state: waiting, placed, running, succeeded, failed, cancelled, "
                "dead, ended or any."
            ),
            autocompletion=complete_state,
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            help="Only tasks that have their place on this node.", autocompletion=complete_node
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            help="Only tasks of names that match a pattern: 'proj.*'.", autocompletion=complete_name
        ),
    ] = "*",
    holds: Annotated[
        str | None,
        typer.Option(
            help="Only tasks that hold some of this resource now: gpu.", show_default=False
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="Only tasks of this tenant, and of tenants below it: research."),
    ] = None,
    under: Annotated[
        str | None, typer.Option(help="Only tasks under this limit: stripe.", metavar="LIMIT")
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            help="Only tasks that were submitted, or have ended, so long ago: 90s 10m 2h."
        ),
    ] = "0s",
    sort: Annotated[
        str | None,
        typer.Option(
            help=f"By {', '.join(SORTS)}: the oldest, the longest run or the latest end first.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 50,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """List tasks: first those that have not ended. WHY says why a task waits now.

    --node, --name, --holds, --tenant, --under, --older-than and --sort look at tasks that have not
    ended, unless --state says otherwise.
    """
    if sort is not None and sort not in SORTS:
        raise InvalidInput(f"--sort {sort!r} is not known: known are {', '.join(SORTS)}")
    if node is not None:
        check_name("node name", node)
    if tenant is not None:
        check_tenant(tenant)
    if under is not None:
        check_limit(under)
    age_s = parse_seconds("--older-than", older_than)
    has_filter = any((node, name != "*", holds, tenant, under, age_s, sort))
    default_states = UNENDED if has_filter else ANY
    states = default_states if state is None else parse_states(state)
    if holds and not states & HOLDING:
        raise InvalidInput(
            f"--state {state} holds nothing: --holds is about tasks that are placed or running"
        )
    query = TaskQuery(
        states,
        name,
        node or "",
        holds or "",
        age_s,
        sort or "",
        limit,
        tenant or "",
        under or "",
    )
    with make_client(url, cluster, config) as client:
        client.check()
        answer = find_tasks(client.store, query)
        tasks = client.with_reasons(answer.tasks)
        now_ms = server_ms(client.store)
        missing = explain_empty(client, tasks)
    print_rows(tasks, as_json, _COLUMNS, task_row(tasks, now_ms), "no tasks", missing)
    if answer.part:
        say(f"this answer is a part: {answer.part} (--state looks at fewer)", to_stderr=True)
    elif len(tasks) == limit:
        say(f"{limit} tasks are listed, and there may be more: --limit", to_stderr=True)


def task_row(tasks: list[TaskStatus], now_ms: int) -> Callable[[TaskStatus], tuple[object, ...]]:
    """Return a function that makes the row of a task; a terminal gets short ids.

    now_ms: the server's clock.
    """
    is_terminal = screen_width() is not None
    ids = short_ids(task.id for task in tasks)

    def row(task: TaskStatus) -> tuple[object, ...]:
        since_ms = task.times.get("finished") or task.times.get("submitted")
        return (
            ids[task.id] if is_terminal else task.id,
            task.name,
            task.state.value,
            f"{task.node}/{task.slot}" if task.node else None,
            task.attempt,
            None if since_ms is None else age_text((now_ms - since_ms) / 1000),
            run_text(task, now_ms),
            needs_shown(task.needs),
            show_time(task.times.get("submitted")),
            shorten_ids(task.why) if is_terminal else task.why,
        )

    return row
