"""Commands that run: scheduler, dev."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ..errors import InvalidInput
from ..logs import JSON, check_level, log_to_stderr
from ..model.ids import check_name
from ..settings import Settings
from .common import Cluster, Config, LogFormat, Url, parse_pairs
from .printer import JsonPrinter, Printer
from .stack import LocalStack

USUAL_PORT = 6379


def register(app: typer.Typer) -> None:
    """Add these commands to the app."""
    for command in (scheduler, dev):
        app.command()(command)


@contextmanager
def stop_by_signal() -> Iterator[tuple[threading.Event, list[int]]]:
    """Yield an event that SIGTERM and Ctrl-C set, and the list of signals received; a second Ctrl-C interrupts."""
    stop, came = threading.Event(), list[int]()

    def on_signal(number: int, frame: FrameType | None) -> None:
        came.append(number)
        stop.set()
        if came.count(signal.SIGINT) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop, came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def scheduler(
    name: Annotated[str | None, typer.Option(help="Its name; made up from host and process if not given.")] = None,
    partitions: Annotated[int | None, typer.Option(help="Partitions of a new cluster (8).")] = None,
    shards: Annotated[
        int | None, typer.Option(help="Shards of a new cluster's queue (1; 16 on a Redis Cluster).")
    ] = None,
    gap_s: Annotated[float | None, typer.Option(help="Synchronisation gap of a new cluster (0.5).")] = None,
    lease_s: Annotated[float | None, typer.Option(help="Lease of a new cluster (10).")] = None,
    strategy: Annotated[str | None, typer.Option(help="latency, quality or adaptive (adaptive).")] = None,
    tau_s: Annotated[float | None, typer.Option(help="adaptive: the delay above which latency counts (1.5).")] = None,
    retention_s: Annotated[int | None, typer.Option(help="How long final tasks are kept (86400).")] = None,
    max_starts: Annotated[int | None, typer.Option(help="Lost starts after which a task is dead (3).")] = None,
    password_file: Annotated[Path | None, typer.Option(help="A file with the password of the address.")] = None,
    health_file: Annotated[
        Path | None, typer.Option(help="A file to renew with each renewal of its lease, for probes.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: LogFormat = None,
    at_most: Annotated[
        int, typer.Option(min=0, max=1000, help="Stand by while the cluster has so many schedulers (0: never).")
    ] = 0,
    parent: Annotated[int, typer.Option(hidden=True, help="Stop when this process, which started it, is gone.")] = 0,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Run a scheduler until SIGTERM or Ctrl-C. The first one of a cluster sets it up. Wait while the server is away."""
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
        password_file=password_file,
        health_file=health_file,
        log_format=log_format,
    )
    if parent:
        settings = settings.model_copy(update={"health_file": None})  # that is the worker's, beside which this one runs
    from ..scheduler.start import own_name, run  # numpy and the scheduler's modules are for this command only

    name = name or own_name()
    log_to_stderr(log_level, settings.log_format, scheduler=name)
    with stop_by_signal() as (stop, came):
        if parent:
            threading.Thread(target=_stop_with, args=(parent, stop), name="parent", daemon=True).start()
        run(settings, name=name, stop=stop, at_most=at_most)
    raise typer.Exit(130 if signal.SIGINT in came else 0)


def _stop_with(parent: int, stop: threading.Event) -> None:
    """Set `stop` when the parent process is gone: an orphan gets another parent."""
    while os.getppid() == parent:
        if stop.wait(0.5):
            return
    stop.set()


def dev(
    app: Annotated[str, typer.Option("--app", "-A", help="The Celery app, as in celery -A.")],
    schedulers: Annotated[int, typer.Option(min=1, max=64, help="How many schedulers.")] = 2,
    workers: Annotated[int, typer.Option(min=0, max=64, help="How many workers: nodes n1, n2, ...")] = 2,
    slots: Annotated[int, typer.Option(min=1, max=1000, help="Slots of each worker.")] = 2,
    score: Annotated[list[float] | None, typer.Option(help="Score of n1, of n2, ... (repeat; 1).")] = None,
    label: Annotated[list[str] | None, typer.Option(help="A label of every worker: zone=a (repeat).")] = None,
    resource: Annotated[list[str] | None, typer.Option(help="An amount of every worker: mem=8GiB (repeat).")] = None,
    pool: Annotated[str, typer.Option(help="prefork, threads or solo.")] = "prefork",
    log_format: LogFormat = None,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Run a server, schedulers and workers of an app in this terminal, until Ctrl-C.

    With --url (or PARSYNC_URL, or in the settings file) that server is used and none is started. Else the server has
    Redis's usual port, 6379, if nobody else has it, so that an app with that address finds it.
    """
    labels, resources = parse_pairs("--label", label), parse_pairs("--resource", resource)
    if pool not in ("prefork", "threads", "solo"):
        raise InvalidInput(f"--pool {pool!r} is not known: known are prefork, threads, solo")
    settings = Settings.load(config, url=url, cluster=cluster, log_format=log_format)
    given = settings.url if "url" in settings.model_fields_set else None
    say = JsonPrinter() if settings.log_format == JSON else Printer()
    env = {"PARSYNC_LOG_FORMAT": settings.log_format} | (
        {"PARSYNC_CONFIG": str(Path(config).resolve())} if config else {}
    )
    with stop_by_signal() as (stop, came), LocalStack(settings.cluster, given, say, env=env) as stack:
        if not given:
            address = stack.server(port=USUAL_PORT)
            say("parsync", f"server {stack.embedded.program if stack.embedded else ''} at {address}")
            say(
                "parsync",
                f"in another terminal, unless the app names this address: export PARSYNC_URL={address} "
                f"PARSYNC_CLUSTER={settings.cluster} CELERY_BROKER_URL={address} CELERY_RESULT_BACKEND={address}",
            )
        stack.scheduler(schedulers)
        for number in range(1, workers + 1):
            own = score[(number - 1) % len(score)] if score else None
            stack.worker(app, f"n{number}", slots, own, labels, resources, pool)
        running = set(stack.processes)
        while running and not stop.wait(0.2):
            ended = running - set(stack.alive())
            running -= ended
            for name in sorted(ended):
                say(name, f"(ended with code {stack.processes[name].popen.returncode})")
        say("parsync", "stopping" if running else "everything has ended")
    if not came:
        raise typer.Exit(1)
    raise typer.Exit(130 if signal.SIGINT in came else 0)
