"""The command `events`: prints what happened in the cluster, and when."""

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput
from ..model.events import EVENT_IN_WORDS, Event
from ..model.human import local_text, read_moment
from ..store.repair.lost_leases import now_ms
from .common import (
    READ_RETRY_S,
    ClusterName,
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

FOLLOW_RETRY_S: Final = 600.0
"""Seconds for which `--follow` waits for a server that does not answer."""


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command(epilog=f"Events: {', '.join(EVENT_IN_WORDS)}.")(events)


def events(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with the events that come.")
    ] = False,
    task: Annotated[
        str | None,
        typer.Option(help="Only events of this task, with the times of its steps.", metavar="ID"),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(help="Only events of this node, and of tasks there.", metavar="NODE"),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(help="Only these events: failed, down, ... (repeat).", metavar="EVENT"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only events from this time on: 14:02, 10m (ago), 2026-11-25T14:02.",
            metavar="TIME",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Only events until this time.", metavar="TIME")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The newest so many.")] = 100,
    as_json: Json = False,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Show what happened out of the ordinary: to tasks, nodes, schedulers and the cluster.

    Times are local.
    """
    if follow and until is not None:
        raise InvalidInput("--follow has no end: leave out --until")
    with make_client(url, cluster, config, FOLLOW_RETRY_S if follow else READ_RETRY_S) as client:
        since_ms, until_ms = _span(client, since, until)
        stream = client.events(
            since_ms=since_ms,
            until_ms=until_ms,
            task=task,
            node=node,
            events=event or (),
            limit=limit,
            follow=follow,
        )
        _follow(stream, as_json) if follow else _list(client, stream, as_json, limit)


def _span(
    client: ParsyncClient, since: str | None, until: str | None
) -> tuple[int | None, int | None]:
    """Return first and last moment in ms, by the server's clock; None for an absent flag."""
    if since is None and until is None:
        return None, None
    now = client.requests.do(lambda: now_ms(client.store))
    since_ms = None
    until_ms = None
    if since is not None:
        since_ms = read_moment("--since", since, now)
    if until is not None:
        until_ms = read_moment("--until", until, now, after_ms=since_ms)
    return since_ms, until_ms


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
    """Return an event as one line, with its time in the zone of this machine."""
    return f"{local_text(event.at_ms)} {event.text}"
