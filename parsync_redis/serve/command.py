"""The commands `serve`: run the service, and make the secrets that its two files have."""

import getpass
import logging
import secrets
import signal
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..cli.common import ClusterName, Config, LogFormat, Url, make_client, say
from ..cli.run import stop_by_signal
from ..errors import InvalidInput
from ..logs import check_level, log_to_stderr
from .passwords import line_of


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.command("serve run")(serve)
    app.command("serve token")(serve_token)
    app.command("serve password")(serve_password)


def serve(
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 or :: is all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 8787,
    submitters: Annotated[
        Path | None,
        typer.Option(
            help="Let programs submit tasks with the tokens of this TOML file.", metavar="FILE"
        ),
    ] = None,
    submit_only: Annotated[
        bool, typer.Option("--submit-only", help="Serve submitters, and show nothing.")
    ] = False,
    operators: Annotated[
        Path | None,
        typer.Option(
            help="Let operators drain, cancel and requeue, with the passwords of this file.",
            metavar="FILE",
        ),
    ] = None,
    operator_header: Annotated[
        str,
        typer.Option(help="Let those operate whom a proxy names in this header.", metavar="NAME"),
    ] = "",
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="The address of a proxy whose headers are believed (repeat)."),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: LogFormat = None,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Show the cluster over HTTP: pages, metrics for Prometheus, health, and a JSON API.

    The process reads the cluster twice a second.

    Whoever reaches its port sees all: keep it on a private network, or behind a proxy that asks for
    a login. It changes nothing, unless --submitters, --operators or --operator-header lets somebody
    do so.
    """
    if missing := [
        name
        for name in ("starlette", "uvicorn", "prometheus_client", "jinja2")
        if find_spec(name) is None
    ]:
        raise InvalidInput(
            f"parsync serve needs {', '.join(missing)}: pip install 'parsync-redis[serve]'"
        )
    check_level(log_level)
    from .app import make_app
    from .asker import Asker
    from .connection import count_places
    from .feed import EventFeed
    from .server import MOST_CONNECTIONS, hosts_of, listen, run, url_of
    from .surveyor import Surveyor
    from .write_access import Flags, WriteAccess

    flags = Flags(submitters, submit_only, operators, operator_header, trusted_proxy or ())
    with (
        # uvicorn sees a signal first, and raises it again when it has stopped
        stop_by_signal() as (_, signals),
        make_client(url, cluster, config, retry_for_s=0, log_format=log_format) as client,
        closing(WriteAccess.read(flags, client)) as write_access,
        listen(host, port) as listening,
    ):
        log_to_stderr(log_level, client.settings.log_format)
        surveyor = Surveyor(client)
        asker = Asker(client)
        feed = EventFeed(client)
        surveyor.start()
        feed.start()
        logging.getLogger("parsync.serve").info(
            "cluster %s on %s is shown at %s",
            client.settings.cluster,
            client.store.address,
            url_of(listening),
        )

        def end() -> None:
            feed.end_all()
            surveyor.announcer.end()

        try:
            resting = count_places(MOST_CONNECTIONS) // 3
            hosts = hosts_of(listening)
            app = make_app(
                surveyor, asker, feed, client.settings.cluster, hosts, write_access, 2 * resting
            )
            run(app, listening, end, signals, resting)
        finally:
            asker.close()
            feed.stop()
            surveyor.stop()
    raise typer.Exit(130 if signal.SIGINT in signals else 0)


def serve_token() -> None:
    """Make a token for a submitter, and its hash for the file of submitters."""
    from .submitters import hash_token

    token = secrets.token_urlsafe(32)
    say(f"token: {token}")
    say(f'token_sha256 = ["{hash_token(token)}"]')


def serve_password(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The operator's name.")],
) -> None:
    """Make an operator's line for the file of operators.

    It asks for the password, or reads a line from a pipe.
    """
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {name}: ")
        if getpass.getpass("Again: ") != password:
            raise InvalidInput("the two passwords differ: type the same one twice")
    else:
        password = sys.stdin.readline().rstrip("\n")
    say(line_of(name, password))
