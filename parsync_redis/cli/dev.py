"""The command `dev`: runs a whole stack in this terminal.

The logs of its processes go to files; when the stack is ready, `dev` prints what to type next.
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
from rich.console import Console
from rich.text import Text

from ..client import ParsyncClient
from ..errors import InvalidInput, ServerUnreachable
from ..logs import JSON_FORMAT
from ..model.address import safe_url
from ..model.node import NodeState
from ..settings import Settings
from ..store.reads.schedulers import read_schedulers
from ..store.reads.views import read_names
from .common import ClusterName, Config, LogFormat, Url, parse_pairs, say
from .node_words import NodeWords, read_node_words
from .run import stop_by_signal
from .stack import LocalStack

REDIS_PORT: Final = 6379
_LAST_LINES: Final = 12
"""Number of log lines that are printed of a process that has ended."""

_CHECK_INTERVAL_S: Final = 0.2
_PROGRESS_INTERVAL_S: Final = 30.0
"""Seconds between two lines about what a stack still waits for."""

_PROCESS_COLORS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "bright_cyan",
    "bright_magenta",
    "bright_green",
)


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
    cluster: ClusterName = None,
    config: Config = None,
) -> None:
    """Run a server, schedulers and workers of an app in this terminal, until Ctrl-C.

    When all processes are ready, it prints what to type next. The logs of the processes are in
    files. With an address (--url, PARSYNC_URL, or in the settings file) no server is started. Else
    the server uses Redis's usual port, 6379, if that port is free, so that an app with that
    address finds the server.
    """
    labels = parse_pairs("--label", label)
    resources = parse_pairs("--resource", resource)
    if pool not in ("prefork", "threads", "solo"):
        raise InvalidInput(f"--pool {pool!r} is not known: known are prefork, threads, solo")
    nodes = _nodes(workers, score or (), labels, resources, node or ())
    settings = Settings.load(config, url=url, cluster=cluster, log_format=log_format)
    server_url = settings.url if "url" in settings.model_fields_set else None
    say = JsonPrinter() if settings.log_format == JSON_FORMAT else Printer()
    env: dict[str, str] = {"PARSYNC_LOG_FORMAT": settings.log_format}
    if config:
        env["PARSYNC_CONFIG"] = str(Path(config).resolve())
    folder = _log_folder(logs)
    sink = say if follow else None
    with (
        stop_by_signal() as (stop, received),
        LocalStack(settings.cluster, server_url, sink, folder, env=env) as stack,
    ):
        if not server_url:
            address = stack.server(port=REDIS_PORT)
            program = stack.embedded.program if stack.embedded else ""
            say("parsync", f"server {address} ({program})")
        say(
            "parsync",
            f"starting {schedulers} schedulers and {len(nodes)} workers; their logs are in "
            f"{folder}",
        )
        stack.scheduler(schedulers)
        for words in nodes:
            stack.worker(
                app,
                words.name,
                words.slots or slots,
                words.score,
                words.labels,
                words.resources,
                pool,
                extra=words.flags,
            )
        run = _Run(stack, folder, say, stop)
        if run.wait_until_ready(schedulers, [words.name for words in nodes]):
            arguments = _signatures(app, stack)
            for line in ready_lines(stack, settings.cluster, folder, len(nodes), arguments):
                say("parsync", line)
            run.wait_until_stopped()
        say("parsync", "stopping")
    if not received:
        raise typer.Exit(1)
    raise typer.Exit(130 if signal.SIGINT in received else 0)


def _nodes(
    workers: int | None,
    scores: Sequence[float],
    labels: dict[str, str],
    resources: dict[str, str],
    node_flags: Sequence[str],
) -> list[NodeWords]:
    """Return the nodes to start: first `workers` equal nodes, then a node for each --node.

    workers: None for 2, or 0 if there is any --node. Raises InvalidInput.
    """
    named_nodes = [read_node_words(text) for text in node_flags]
    count = workers
    if count is None:
        count = 0 if named_nodes else 2
    nodes = []
    for index in range(count):
        score = scores[index % len(scores)] if scores else None
        nodes.append(NodeWords(f"n{index + 1}", None, score, labels, resources))
    for node in named_nodes:
        if node.name in [earlier.name for earlier in nodes]:
            raise InvalidInput(f"--node {node.name} is not valid: two nodes have that name")
        all_labels = {**labels, **node.labels}
        all_resources = {**resources, **node.resources}
        nodes.append(replace(node, labels=all_labels, resources=all_resources))
    return nodes


def _log_folder(logs: Path | None) -> Path:
    try:
        if logs is None:
            return Path(tempfile.mkdtemp(prefix="parsync-dev-"))
        logs.mkdir(parents=True, exist_ok=True)
        return logs.resolve()
    except OSError as error:
        raise InvalidInput(f"--logs {logs} cannot be used: {error.strerror}") from None


class _Run:
    """Waits until a started stack is ready or stopped, and prints which of its processes end."""

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
        """Return True when schedulers and nodes are up; False after a signal or a process's end."""
        waited_s = 0.0
        with ParsyncClient(
            Settings.load(url=self._stack.url, cluster=self._stack.cluster), retry_for_s=0
        ) as client:
            while (missing := _missing(client, schedulers, nodes)) and not self._stop.wait(
                _CHECK_INTERVAL_S
            ):
                if self._print_ended():
                    return False
                waited_s += _CHECK_INTERVAL_S
                if waited_s > _PROGRESS_INTERVAL_S:
                    waited_s = 0.0
                    self._say("parsync", f"not ready yet: {missing}")
        return not self._stop.is_set()

    def wait_until_stopped(self) -> None:
        """Wait for a signal, or until every process has ended."""
        while self._running and not self._stop.wait(_CHECK_INTERVAL_S):
            self._print_ended()
        if not self._running:
            self._say("parsync", "everything has ended")

    def _print_ended(self) -> bool:
        """Print which processes have ended since the last call, with the ends of their logs.

        Return whether a process has ended.
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
    """Return the schedulers and nodes that are not ready yet, as a text; '' if all are ready."""
    try:
        alive = sum(scheduler.alive for scheduler in read_schedulers(client.store))
        nodes_up = {
            node.name for node in client.nodes() if node.state in (NodeState.UP, NodeState.DRAINING)
        }
    except ServerUnreachable as error:
        return str(error)
    absent = [name for name in nodes if name not in nodes_up]
    parts = []
    if alive < schedulers:
        parts.append(f"{alive} of {schedulers} schedulers")
    if absent:
        parts.append(f"no node {', '.join(absent)}")
    return ", ".join(parts)


def _signatures(app: str, stack: LocalStack) -> dict[str, list[str]]:
    """Return the required arguments of the app's tasks by name; {} if the app does not load."""
    done = subprocess.run(
        [sys.executable, "-m", "parsync_redis.cli.signatures", app],
        env=stack.env,
        capture_output=True,
        text=True,
    )
    if done.returncode or not done.stdout:
        return {}
    arguments: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return arguments


def ready_lines(
    stack: LocalStack, cluster: str, folder: Path, nodes: int, arguments: dict[str, list[str]]
) -> list[str]:
    """Return the lines that are printed when a stack is ready: what there is, and what to type.

    arguments: the required arguments of each task of the app, by name.
    """
    url = stack.url or ""
    with ParsyncClient.from_url(url, cluster) as client:
        names = [
            name
            for name in client.requests.do(lambda: read_names(client.store))
            if name in arguments
        ]
        slots = sum(node.slots for node in client.nodes())
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
        comment = f"    # as JSON: {', '.join(arguments[first])}" if arguments[first] else ""
        lines += [f"  parsync submit {words} --wait{comment}", "  parsync status last"]
    return [*lines, "  parsync nodes", "  parsync top", "Ctrl-C here stops everything.", ""]


class Printer:
    """Prints lines of several processes, each line behind the name of its process in color.

    Lines of the process "parsync" are printed without a name.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._lock = threading.Lock()
        self._colors: dict[str, str] = {}

    def __call__(self, name: str, line: str) -> None:
        """Print one line."""
        with self._lock:
            if name == "parsync":
                self._console.print(Text(line))
                return
            color = self._colors.setdefault(
                name, _PROCESS_COLORS[len(self._colors) % len(_PROCESS_COLORS)]
            )
            # from_ansi keeps the program's own colors, and takes no brackets for markup
            self._console.print(Text.assemble((f"{name:<12} ", color)) + Text.from_ansi(line))


class JsonPrinter:
    """Prints each line as a JSON object, with the name of its process as `source`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, name: str, line: str) -> None:
        """Print a line; a line that is no JSON object becomes the field `message`."""
        try:
            parsed = json.loads(line)
        except ValueError:
            parsed = None
        fields = parsed if isinstance(parsed, dict) else {"message": line}
        with self._lock:
            say(json.dumps({"source": name, **fields}))
            sys.stdout.flush()
