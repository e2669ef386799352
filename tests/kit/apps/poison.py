"""Tasks that do their worker no good: the app of the poison test."""

import os
import signal
import time

from tests.kit.apps.marks import app, mark


@app.task(parsync=True)
def leaves(key: str) -> None:
    """Kill its pool process without a word, each time."""
    mark("leaves", key)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(parsync=True)
def exits(key: str) -> None:
    """End its pool process by itself."""
    mark("exits", key)
    os._exit(3)


@app.task(parsync=True, time_limit=1)
def deaf(key: str) -> None:
    """Ignore what it may and never end by itself."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    mark("deaf", key)
    while True:
        time.sleep(0.05)


@app.task(parsync=True)
def chatty(key: str) -> str:
    """Print some megabytes, with bytes that are no text."""
    for _ in range(300):
        os.write(1, b"\xff\x00 noise\n" * 1000)
    return key


@app.task(parsync=True)
def unpackable(key: str) -> object:
    """Return what no serializer takes."""
    mark("unpackable", key)
    return object()


@app.task(parsync=True)
def deep(key: str) -> None:
    """Recurse without end."""
    deep.run(key)
