"""Shared parts of the benches: flags, a line of progress, and an orderly end."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Annotated

import typer

from parsync_lab import Stopped
from parsync_redis.cli.run import stop_by_signal
from parsync_redis.errors import ParsyncError

BenchSchedulers = Annotated[int, typer.Option(help="Scheduler processes.")]
BenchSlots = Annotated[int, typer.Option(help="Slots of all nodes together.")]
BenchPartitions = Annotated[int, typer.Option(help="Partitions, at least as many as schedulers.")]
BenchGap = Annotated[float, typer.Option(help="Synchronisation gap, seconds.")]
Seconds = Annotated[float, typer.Option(help="How long the load lasts.")]
BenchStrategy = Annotated[str, typer.Option(help="latency, quality or adaptive.")]
NodeSlots = Annotated[int, typer.Option(help="Slots of each node.")]
Agents = Annotated[int, typer.Option(help="Processes that stand in for the nodes' agents.")]
BenchPrimaries = Annotated[
    int, typer.Option(help="Primaries of a Redis Cluster; 1: one server without a cluster.")
]
BenchShards = Annotated[
    int, typer.Option(help="Shards of the queue; 0: 1 on one server, 16 on a cluster.")
]
Generators = Annotated[int, typer.Option(help="Processes that submit.")]


class ProgressLine:
    """Shows progress on stderr.

    On a terminal it overwrites one line; elsewhere it writes a line every few seconds.
    """

    def __init__(self) -> None:
        self._said_s = float("-inf")
        self._terminal = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Show the text."""
        now_s = time.monotonic()
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        elif now_s - self._said_s >= 5.0:
            self._said_s = now_s
            sys.stderr.write(text + "\n")

    def done(self) -> None:
        """Clear the line."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")


@contextmanager
def measuring() -> Iterator[tuple[Event, ProgressLine]]:
    """Run a bench: Ctrl-C ends it in order; an error is one line."""
    line = ProgressLine()
    with stop_by_signal() as (stop, signals):
        try:
            yield stop, line
        except Stopped:
            raise typer.Exit(130 if 2 in signals else 143) from None
        except TimeoutError as error:
            raise ParsyncError(str(error)) from None
        finally:
            line.done()
