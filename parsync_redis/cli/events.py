"""The command `events`: what happened in the cluster, and when."""

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput
from ..model.events import EVENT_IN_WORDS, Event
from ..model.moments import local_text, read_moment
from ..store.repair.lost_leases import now_ms
from .common import (
    RETRY_FOR_S,
    Cluster,
    Config,
    Json,
    Url,
    end_if_missing,
    explain_empty,
    make_client,
    plain,
    print_json,
    say,
)

FOLLOW_FOR_S = 600.0
"""For how long a command that follows waits for a server that does not answer."""


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command(epilog=f"Events: {', '.join(EVENT_IN_WORDS)}.")(events)


def events(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with the events that come.")
    ] = False,
    task: Annotated[
        str | None,
        typer.Option(help="Only of this task, with the times of its steps.", metavar="ID"),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="Only of this node, and of tasks there.", metavar="NODE")
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(help="Only these: failed, down, ...; repeatable.", metavar="EVENT"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only from then on: 14:02, 10m (ago), 2026-11-25T14:02.", metavar="TIME"),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only until then.", metavar="TIME")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The newest so many.")] = 100,
    as_json: Json = False,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Show what happened out of the ordinary: to tasks, nodes, schedulers and the cluster.

    Times are local.
    """
    if follow and until is not None:
        raise InvalidInput("--follow has no end: leave out --until")
    with make_client(url, cluster, config, FOLLOW_FOR_S if follow else RETRY_FOR_S) as client:
        since_ms, until_ms = _span(client, since, until)
        found = client.events(
            since_ms=since_ms,
            until_ms=until_ms,
            task=task,
            node=node,
            events=event or (),
            limit=limit,
            follow=follow,
        )
        _follow(found, as_json) if follow else _list(client, found, as_json, limit)


def _span(
    client: ParsyncClient, since: str | None, until: str | None
) -> tuple[int | None, int | None]:
    """Return from when to when, by the server's clock; None where nothing is said."""
    if since is None and until is None:
        return None, None
    now = client.requests.do(lambda: now_ms(client.store))
    since_ms = None if since is None else read_moment("--since", since, now)
    return since_ms, None if until is None else read_moment(
        "--until", until, now, after_ms=since_ms
    )


def _list(client: ParsyncClient, stream: Iterator[Event], as_json: bool, limit: int) -> None:
    events = list(stream)
    missing = explain_empty(client, events)
    if as_json:
        print_json(events)
        end_if_missing(missing, as_json)
        return
    for event in events:
        say(line_of(event))
    if not events:
        say(missing or "no events")
        end_if_missing(missing, as_json)
    elif len(events) == limit:
        say(f"these are the newest {limit:,}: --limit shows more", to_stderr=True)


def _follow(stream: Iterator[Event], as_json: bool) -> None:
    for event in stream:
        say(json.dumps(plain(event)).replace("\x7f", "\\u007f") if as_json else line_of(event))
        sys.stdout.flush()


def line_of(event: Event) -> str:
    """Return an event as one line, with the time of this machine."""
    return f"{local_text(event.at_ms)} {event.text}"
