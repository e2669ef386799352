"""The command `serve`."""

import logging
import signal
from importlib.util import find_spec
from typing import Annotated

import typer

from ..cli.common import Cluster, Config, LogFormat, Url, make_client
from ..cli.run import stop_by_signal
from ..errors import InvalidInput
from ..logs import check_level, log_to_stderr


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(serve)


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 or :: is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8787,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: LogFormat = None,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Show the cluster over HTTP: pages, metrics for Prometheus, health, and a JSON API. It only reads, once a second.

    It has no login: keep it on a private network, or behind a proxy that asks for one.
    """
    if missing := [name for name in ("starlette", "uvicorn", "prometheus_client", "jinja2") if find_spec(name) is None]:
        raise InvalidInput(f"parsync serve needs {', '.join(missing)}: pip install 'parsync-redis[serve]'")
    check_level(log_level)
    from .app import make_app
    from .asker import Asker
    from .server import hosts_of, listen, run, url_of
    from .surveyor import Surveyor

    with (
        stop_by_signal() as (_, came),  # uvicorn sees a signal first, and raises it again when it has stopped
        make_client(url, cluster, config, retry_for_s=0, log_format=log_format) as client,
        listen(host, port) as listening,
    ):
        log_to_stderr(log_level, client.settings.log_format)
        surveyor, asker = Surveyor(client), Asker(client)
        surveyor.start()
        logging.getLogger("parsync.serve").info(
            "cluster %s on %s is shown at %s", client.settings.cluster, client.store.address, url_of(listening)
        )
        try:
            run(make_app(surveyor, asker, client.settings.cluster, hosts_of(listening)), listening)
        finally:
            asker.close()
            surveyor.stop()
    raise typer.Exit(130 if signal.SIGINT in came else 0)
