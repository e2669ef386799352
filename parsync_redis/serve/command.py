"""The command `serve`."""

import logging
import signal
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from ..cli.common import Cluster, Config, Url, make_client
from ..cli.run import stop_by_signal
from ..errors import InvalidInput


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(serve)


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 or :: is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8787,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Show the cluster over HTTP: pages, metrics for Prometheus, health, and a JSON API. It only reads, once a second.

    It has no login: keep it on a private network, or behind a proxy that asks for one.
    """
    if missing := [name for name in ("starlette", "uvicorn", "prometheus_client", "jinja2") if find_spec(name) is None]:
        raise InvalidInput(f"parsync serve needs {', '.join(missing)}: pip install 'parsync-redis[serve]'")
    if log_level not in ("debug", "info", "warning", "error"):
        raise InvalidInput(f"--log-level {log_level!r} is not known: known are debug, info, warning, error")
    from .app import make_app
    from .asker import Asker
    from .feed import EventFeed
    from .server import hosts_of, listen, run, url_of
    from .surveyor import Surveyor

    logging.basicConfig(level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    with (
        stop_by_signal() as (_, came),  # uvicorn sees a signal first, and raises it again when it has stopped
        make_client(url, cluster, config, retry_for_s=0) as client,
        listen(host, port) as listening,
    ):
        surveyor, asker, feed = Surveyor(client), Asker(client), EventFeed(client)
        surveyor.start()
        feed.start()
        logging.getLogger("parsync.serve").info(
            "cluster %s on %s is shown at %s", client.settings.cluster, client.store.address, url_of(listening)
        )
        try:
            run(make_app(surveyor, asker, feed, client.settings.cluster, hosts_of(listening)), listening, feed.end_all)
        finally:
            asker.close()
            feed.stop()
            surveyor.stop()
    raise typer.Exit(130 if signal.SIGINT in came else 0)
