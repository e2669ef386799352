"""The command `dev`: a whole stack in this terminal, quiet, with its logs in files and a last word
when it is ready.
"""

import json
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from ..client import ParsyncClient
from ..errors import InvalidInput, ServerUnreachable
from ..logs import JSON_FORMAT
from ..model.address import safe_url
from ..model.node import NodeState
from ..settings import Settings
from ..store.reads.schedulers import read_schedulers
from ..store.reads.views import read_names
from .common import Cluster, Config, LogFormat, Url, parse_pairs
from .node_words import NodeWords, read_node_words
from .printer import JsonPrinter, Printer
from .run import stop_by_signal
from .stack import LocalStack

USUAL_PORT: Final = 6379
_LAST_LINES: Final = 12
_LOOK_S: Final = 0.2
_TELL_S: Final = 30.0
"""After so long a stack that is not ready says what is missing."""


def register(app: typer.Typer) -> None:
    """Add this command to the app."""
    app.command()(dev)


def dev(
    app: Annotated[str, typer.Option("--app", "-A", help="The Celery app, as in celery -A.")],
    schedulers: Annotated[int, typer.Option(min=1, max=64, help="How many schedulers.")] = 2,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="How many equal workers: nodes n1, n2, ... (2; none if there are --node).",
        ),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=1000, help="Slots of each worker.")] = 2,
    score: Annotated[
        list[float] | None, typer.Option(help="Score of n1, of n2, ... (repeat; 1).")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="A label of every worker: zone=a (repeat).")
    ] = None,
    resource: Annotated[
        list[str] | None, typer.Option(help="An amount of every worker: mem=8GiB (repeat).")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "One more worker: gpu:slots=2,gpu=1,kind=a. A number is an amount, a word is a "
                "label (repeat)."
            )
        ),
    ] = None,
    pool: Annotated[str, typer.Option(help="prefork, threads or solo.")] = "prefork",
    logs: Annotated[
        Path | None, typer.Option(help="The folder of the logs; a new one if not given.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also print what the processes log.")
    ] = False,
    log_format: LogFormat = None,
    url: Url = None,
    cluster: Cluster = None,
    config: Config = None,
) -> None:
    """Run a server, schedulers and workers of an app in this terminal, until Ctrl-C.

    When all are ready it says so last, with what to type next. The logs of the processes are in
    files. With --url (or PARSYNC_URL, or in the settings file) that server is used and none is
    started. Else the server has Redis's usual port, 6379, if nobody else has it, so that an app
    with that address finds it.
    """
    labels = parse_pairs("--label", label)
    resources = parse_pairs("--resource", resource)
    if pool not in ("prefork", "threads", "solo"):
        raise InvalidInput(f"--pool {pool!r} is not known: known are prefork, threads, solo")
    nodes = _nodes(workers, score or (), labels, resources, node or ())
    settings = Settings.load(config, url=url, cluster=cluster, log_format=log_format)
    given = settings.url if "url" in settings.model_fields_set else None
    say = JsonPrinter() if settings.log_format == JSON_FORMAT else Printer()
    env = {"PARSYNC_LOG_FORMAT": settings.log_format} | (
        {"PARSYNC_CONFIG": str(Path(config).resolve())} if config else {}
    )
    folder = _log_folder(logs)
    sink = say if follow else None
    with (
        stop_by_signal() as (stop, came),
        LocalStack(settings.cluster, given, sink, folder, env=env) as stack,
    ):
        if not given:
            address = stack.server(port=USUAL_PORT)
            say("parsync", f"server {address} ({stack.embedded.program if stack.embedded else ''})")
        say(
            "parsync",
            f"starting {schedulers} schedulers and {len(nodes)} workers; their logs are in "
            f"{folder}",
        )
        stack.scheduler(schedulers)
        for one in nodes:
            stack.worker(
                app,
                one.name,
                one.slots or slots,
                one.score,
                one.labels,
                one.resources,
                pool,
                extra=one.flags,
            )
        run = _Run(stack, folder, say, stop)
        if run.wait_until_ready(schedulers, [one.name for one in nodes]):
            for line in ready_lines(
                stack, settings.cluster, folder, len(nodes), _signatures(app, stack)
            ):
                say("parsync", line)
            run.wait_until_stopped()
        say("parsync", "stopping")
    if not came:
        raise typer.Exit(1)
    raise typer.Exit(130 if signal.SIGINT in came else 0)


def _nodes(
    workers: int | None,
    scores: Sequence[float],
    labels: dict[str, str],
    resources: dict[str, str],
    more: Sequence[str],
) -> list[NodeWords]:
    """Return the nodes to start: the equal ones, then those with words of their own; raises
    InvalidInput.
    """
    own = [read_node_words(text) for text in more]
    count = (0 if own else 2) if workers is None else workers
    score_of = [scores[at % len(scores)] if scores else None for at in range(count)]
    found = [NodeWords(f"n{at + 1}", None, score_of[at], labels, resources) for at in range(count)]
    for one in own:
        if one.name in {other.name for other in found}:
            raise InvalidInput(f"--node {one.name} is not valid: two nodes have that name")
        found.append(
            replace(one, labels={**labels, **one.labels}, resources={**resources, **one.resources})
        )
    return found


def _log_folder(logs: Path | None) -> Path:
    try:
        if logs is None:
            return Path(tempfile.mkdtemp(prefix="parsync-dev-"))
        logs.mkdir(parents=True, exist_ok=True)
        return logs.resolve()
    except OSError as error:
        raise InvalidInput(f"--logs {logs} cannot be used: {error.strerror}") from None


class _Run:
    """A stack that was started: waits until it is ready, or until somebody stops it, and tells
    which process ends.
    """

    def __init__(
        self,
        stack: LocalStack,
        folder: Path,
        say: Callable[[str, str], None],
        stop: threading.Event,
    ) -> None:
        self._stack = stack
        self._folder = folder
        self._say = say
        self._stop = stop
        self._running = set(stack.processes)

    def wait_until_ready(self, schedulers: int, nodes: Sequence[str]) -> bool:
        """Return True when all are members; False if one has ended, or somebody stops it."""
        waited_s = 0.0
        with ParsyncClient(
            Settings.load(url=self._stack.url, cluster=self._stack.cluster), retry_for_s=0
        ) as client:
            while (missing := _missing(client, schedulers, nodes)) and not self._stop.wait(_LOOK_S):
                if self._tell_ended():
                    return False
                waited_s += _LOOK_S
                if waited_s > _TELL_S:
                    waited_s = 0.0
                    self._say("parsync", f"not ready yet: {missing}")
        return not self._stop.is_set()

    def wait_until_stopped(self) -> None:
        """Wait for a signal, or until every process has ended."""
        while self._running and not self._stop.wait(_LOOK_S):
            self._tell_ended()
        if not self._running:
            self._say("parsync", "everything has ended")

    def _tell_ended(self) -> bool:
        """Say which processes have ended, with the last lines of their logs; return whether any
        has.
        """
        ended = self._running - set(self._stack.alive())
        self._running -= ended
        for name in sorted(ended):
            process = self._stack.processes[name]
            process.settle()
            self._say(
                "parsync",
                f"{name} ended with code {process.popen.returncode}; {self._folder / name}.log "
                "ends:",
            )
            for line in list(process.lines)[-_LAST_LINES:]:
                self._say(name, line)
        return bool(ended)


def _missing(client: ParsyncClient, schedulers: int, nodes: Sequence[str]) -> str:
    """Return what is not ready yet, '' if all are."""
    try:
        alive = sum(one.alive for one in read_schedulers(client.store))
        up = {one.name for one in client.nodes() if one.state in (NodeState.UP, NodeState.DRAINING)}
    except ServerUnreachable as error:
        return str(error)
    absent = [name for name in nodes if name not in up]
    parts = [f"{alive} of {schedulers} schedulers"] if alive < schedulers else []
    return ", ".join([*parts, *([f"no node {', '.join(absent)}"] if absent else [])])


def _signatures(app: str, stack: LocalStack) -> dict[str, list[str]]:
    """Return the arguments that each task of the app must have; nothing if the app
    cannot be asked.
    """
    done = subprocess.run(
        [sys.executable, "-m", "parsync_redis.cli.signatures", app],
        env=stack.env,
        capture_output=True,
        text=True,
    )
    found: dict[str, list[str]] = (
        json.loads(done.stdout.splitlines()[-1]) if not done.returncode and done.stdout else {}
    )
    return found


def ready_lines(
    stack: LocalStack, cluster: str, folder: Path, nodes: int, arguments: dict[str, list[str]]
) -> list[str]:
    """Return the last word of a stack that is ready."""
    url = stack.url or ""
    with ParsyncClient.from_url(url, cluster) as client:
        names = [
            name
            for name in client.requests.do(lambda: read_names(client.store))
            if name in arguments
        ]
        slots = sum(one.slots for one in client.nodes())
    schedulers = sum(name.startswith("scheduler-") for name in stack.processes)
    exports = f"export PARSYNC_URL={shlex.quote(url)} PARSYNC_CLUSTER={cluster}"
    if safe_url(url) != url:
        exports = f"export PARSYNC_CLUSTER={cluster}  # and PARSYNC_URL as here"
    lines = [
        "",
        f"ready: {schedulers} schedulers, {nodes} nodes with {slots} slots, server {safe_url(url)}",
        f"logs:  tail -f {shlex.quote(str(folder))}/*.log",
        "next, in another terminal:",
        f"  {exports}",
    ]
    if stack.embedded:
        lines.append("  export CELERY_BROKER_URL=$PARSYNC_URL CELERY_RESULT_BACKEND=$PARSYNC_URL")
    first = min(names, key=lambda name: (len(arguments[name]), len(name)), default=None)
    if first is not None:
        words = " ".join([first, *("1" for _ in arguments[first])])
        told = "    # as JSON: " + ", ".join(arguments[first]) if arguments[first] else ""
        lines += [f"  parsync submit {words} --wait{told}", "  parsync status last"]
    return [*lines, "  parsync nodes", "  parsync top", "Ctrl-C here stops everything.", ""]
