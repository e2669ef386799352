"""The command `scheduler`, and the signals that stop a command that runs."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ..logs import check_level, log_to_stderr
from ..model.ids import check_name
from ..settings import Settings
from .common import ClusterName, Config, LogFormat, Url


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(scheduler)


@contextmanager
def stop_by_signal() -> Iterator[tuple[threading.Event, list[int]]]:
    """Yield an event that SIGTERM and Ctrl-C set, and the list of received signals.

    A second Ctrl-C raises KeyboardInterrupt.
    """
    stop = threading.Event()
    received = list[int]()

    def on_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        stop.set()
        if received.count(signal.SIGINT) > 1:
            raise KeyboardInterrupt

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop, received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def scheduler(
    name: Annotated[
        str | None, typer.Option(help="Its name; made of host and process if not given.")
    ] = None,
    partitions: Annotated[int | None, typer.Option(help="Partitions of a new cluster (8).")] = None,
    shards: Annotated[
        int | None, typer.Option(help="Shards of a new cluster's queue (1; 16 on a Redis Cluster).")
    ] = None,
    gap_s: Annotated[
        float | None, typer.Option(help="Synchronisation gap of a new cluster (0.5).")
    ] = None,
    lease_s: Annotated[float | None, typer.Option(help="Lease of a new cluster (10).")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="latency, quality or adaptive (adaptive).")
    ] = None,
    tau_s: Annotated[
        float | None, typer.Option(help="adaptive: the delay above which latency counts (1.5).")
    ] = None,
    retention_s: Annotated[
        int | None, typer.Option(help="How long final tasks are kept (86400).")
    ] = None,
    max_starts: Annotated[
        int | None, typer.Option(help="Lost starts after which a task is dead (3).")
    ] = None,
    forget_s: Annotated[
        float | None, typer.Option(help="How long a lost node is kept as down (3600).")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="A file with the password of the address.")
    ] = None,
    health_file: Annotated[
        Path | None,
        typer.Option(help="A file to renew with each renewal of its lease, for probes."),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: LogFormat = None,
    at_most: Annotated[
        int,
        typer.Option(
            min=0, max=1000, help="Stand by while the cluster has so many schedulers (0: never)."
        ),
    ] = 0,
    parent: Annotated[
        int, typer.Option(hidden=True, help="Stop when this process, which started it, is gone.")
    ] = 0,
    url: Url = None,
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Run a scheduler until SIGTERM or Ctrl-C.

    The first scheduler of a cluster sets it up. While the server is away, schedulers wait.
    """
    if name is not None:
        check_name("scheduler name", name)
    check_level(log_level)
    settings = Settings.load(
        config,
        url=url,
        cluster=cluster,
        partitions=partitions,
        shards=shards,
        gap_s=gap_s,
        lease_s=lease_s,
        strategy=strategy,
        tau_s=tau_s,
        retention_s=retention_s,
        max_starts=max_starts,
        forget_s=forget_s,
        password_file=password_file,
        health_file=health_file,
        log_format=log_format,
    )
    if parent:
        # the health file is the file of the worker that started this scheduler
        settings = settings.model_copy(update={"health_file": None})
    # numpy and the scheduler's modules are for this command only
    from ..scheduler.process.start import own_name, run

    name = name or own_name()
    log_to_stderr(log_level, settings.log_format, scheduler=name)
    with stop_by_signal() as (stop, received):
        if parent:
            threading.Thread(
                target=_stop_with, args=(parent, stop), name="parent", daemon=True
            ).start()
        run(settings, name=name, stop=stop, at_most=at_most)
    raise typer.Exit(130 if signal.SIGINT in received else 0)


def _stop_with(parent: int, stop: threading.Event) -> None:
    """Set `stop` when the parent process is gone: the system gives an orphan another parent."""
    while os.getppid() == parent:
        if stop.wait(0.5):
            return
    stop.set()
