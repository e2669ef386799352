"""The same requests to ten models, with and without `warm`, on a cluster of this machine.

make models                       all of it, as `python -m examples.models` in a checkout
parsync dev -A examples.models.app   its app, for tasks of your own
"""

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Final

import typer

from examples.demo.report import percentile
from parsync_redis.cli.common import print_table
from parsync_redis.cli.run import stop_by_signal
from parsync_redis.cli.stack import LocalStack
from parsync_redis.client import ParsyncClient
from parsync_redis.errors import ParsyncError, ServerUnreachable
from parsync_redis.model.printable import printable
from parsync_redis.store.reads.schedulers import read_schedulers

from .app import ANSWER_TASK, make_app
from .loaded import MODELS_KEPT

MODELS_CLUSTER: Final = "models"
MODELS: Final = 10
WORKERS: Final = 4
WORKER_SLOTS: Final = 4
SCHEDULERS: Final = 2
GAP_S: Final = 0.2
REQUEST_GAP_S: Final = 0.1
"""The time from one request to the next."""
START_S: Final = 60.0
END_S: Final = 120.0
"""The time in which the workers must come up, and all requests must end."""

RUNS: Final = {"without": "without warm", "warm": "with warm"}


class Stopped(Exception):
    """Ctrl-C or SIGTERM came."""


def models(
    requests: Annotated[int, typer.Option(min=1, help="Requests of each of the two runs.")] = 300,
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests.")] = 1,
) -> None:
    """Send the same requests to ten models without and with `warm`; print cold starts and p95."""
    with (
        stop_by_signal() as (stop, signals),
        tempfile.TemporaryDirectory(prefix="parsync-models-") as logs,
    ):
        try:
            with LocalStack(MODELS_CLUSTER, logs=Path(logs)) as stack:
                rows = _compare(stack, requests, seed, stop)
        except Stopped:
            print("stopped; nothing is left running", file=sys.stderr)
            raise typer.Exit(130 if 2 in signals else 143) from None
    print_table(("", "REQUESTS", "COLD STARTS", "P50 S", "P95 S"), rows, "")


def _compare(stack: LocalStack, requests: int, seed: int, stop: Event) -> list[tuple[Any, ...]]:
    """Start all processes and do both runs; return a row for each."""
    url = stack.server()
    print(
        f"{WORKERS} workers with {WORKER_SLOTS} slots, each keeps {MODELS_KEPT} of {MODELS} models",
        file=sys.stderr,
    )
    stack.scheduler(SCHEDULERS, partitions=WORKERS, gap_s=GAP_S)
    for number in range(WORKERS):
        stack.worker("examples.models.app", f"w{number}", WORKER_SLOTS, pool="threads")
    rows = list[tuple[Any, ...]]()
    with ParsyncClient.from_url(url, MODELS_CLUSTER) as client:
        _wait_for_workers(client, stack, stop)
        for run, title in RUNS.items():
            print(f"{requests} requests {title}", file=sys.stderr)
            chosen = choose_models(run, requests, seed)
            rows.append((title, requests, *_send(client, chosen, run == "warm", stop)))
    return rows


def choose_models(run: str, requests: int, seed: int) -> list[str]:
    """Return the model of each request: the second model is asked half as often as the first, ...

    The runs have models of different names, so that the second run finds none loaded.
    """
    names = [f"{run}-{number}" for number in range(MODELS)]
    weights = [1 / (number + 1) for number in range(MODELS)]
    return random.Random(seed).choices(names, weights, k=requests)


def _wait_for_workers(client: ParsyncClient, stack: LocalStack, stop: Event) -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        _pause(stop, 0.1)
        schedulers = read_schedulers(client.store) if client.store.config() else ()
        workers = [node for node in client.nodes() if node.state == "up"]
        if len(schedulers) == SCHEDULERS and len(workers) == WORKERS:
            return
        if len(stack.alive()) < len(stack.processes) or time.monotonic() > deadline_s:
            raise ServerUnreachable(f"the workers did not come up within {START_S:g} s")


def _pause(stop: Event, seconds: float) -> None:
    if stop.wait(seconds):
        raise Stopped


def _send(
    client: ParsyncClient, chosen: Sequence[str], warm: bool, stop: Event
) -> tuple[str, str, str]:
    """Send a request to each of these models; return cold starts, p50 and p95 as texts."""
    app = make_app(client.settings.url, client.settings.cluster)
    other: dict[str, Any] = {} if warm else {"parsync": {"prefer": []}}
    results = []
    for number, model in enumerate(chosen):
        results.append(app.tasks[ANSWER_TASK].apply_async((model, f"{number}?"), **other))
        _pause(stop, REQUEST_GAP_S)
    deadline_s = time.monotonic() + END_S
    while not all(result.ready() for result in results):
        _pause(stop, 0.1)
        if time.monotonic() > deadline_s:
            raise ServerUnreachable(f"the requests did not end within {END_S:g} s")
    cold = sum(result.get()["cold"] for result in results)
    seconds = list[float]()
    for status in client.statuses([result.id for result in results]):
        ready = status.times["ready"]
        finished = status.times["finished"]
        if ready is not None and finished is not None:
            seconds.append((finished - ready) / 1000)
    cold_text = f"{cold} ({cold / len(chosen):.0%})"
    return cold_text, f"{percentile(seconds, 50):.2f}", f"{percentile(seconds, 95):.2f}"


def main() -> None:
    """Run the comparison; an error is one line on stderr and exit code 2."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(models)
    try:
        app()
    except ParsyncError as error:
        print(f"error: {printable(error)}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
