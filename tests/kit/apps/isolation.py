"""The app of the tests of isolation: its task leaves a tick in a file every 20 ms.

A tick is 'node slot attempt pid seconds'. TEST_UNLOCKED and TEST_UNGUARDED name slots whose runs do
without locks or without the guard. With neither, the tests must see two runs in one slot.
"""

import ctypes
import os
import resource
import subprocess
import time
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from celery import Celery

from parsync_redis import Parsync
from parsync_redis.worker.celery import isolated_pool
from parsync_redis.worker.isolation import locks, machine, tie

BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
FOLDER = Path(os.environ.get("TEST_ISOLATION_FOLDER", "/nowhere"))
TICK_S = 0.02

app = Celery("isolation", broker=BROKER, backend=BROKER)
app.conf.task_ignore_result = True
app.conf.broker_connection_retry_on_startup = True
Parsync(app)


def slots_of(variable: str) -> set[int]:
    return {int(slot) for slot in os.environ.get(variable, "").split()}


def take_away(unlocked: set[int], unguarded: set[int]) -> None:
    """Take the locks or the guard away from these slots, in this process and those of its pool."""
    real_hold = locks.hold
    real_tied = tie.tied
    real_busy = locks.busy_slots
    here: set[int] = set()  # the slots of the run of this pool process

    def hold(file: str, slots: Collection[int], to_children: bool) -> AbstractContextManager[None]:
        here.clear()
        here.update(slots)
        return real_hold(file, [slot for slot in slots if slot not in unlocked], to_children)

    def tied(guard: str) -> AbstractContextManager[None]:
        return nullcontext() if here & unguarded else real_tied(guard)

    def busy_slots(file: Path, slots: Collection[int]) -> list[int]:
        return real_busy(file, [slot for slot in slots if slot not in unlocked])

    for module, name, ours in (
        (isolated_pool, "hold", hold),
        (isolated_pool, "tied", tied),
        (machine, "busy_slots", busy_slots),
    ):
        assert hasattr(module, name)
        setattr(module, name, ours)


if slots_of("TEST_UNLOCKED") | slots_of("TEST_UNGUARDED"):
    take_away(slots_of("TEST_UNLOCKED"), slots_of("TEST_UNGUARDED"))


@app.task(bind=True, parsync=True)
def ticks(self: Any, name: str) -> None:
    """Tick into the file `name` until there is another, `name`.end."""
    place = self.request.parsync
    with (FOLDER / name).open("a", buffering=1) as file:
        while not (FOLDER / f"{name}.end").exists():
            words = (
                place["node"],
                place["slot"],
                place["attempt"],
                os.getpid(),
                f"{time.monotonic():.3f}",
            )
            file.write(" ".join(str(word) for word in words) + "\n")
            time.sleep(TICK_S)


@app.task(bind=True, parsync=True)
def leaves(self: Any, name: str) -> None:
    """Leave a program behind; write the slot and the process id of the program into a file."""
    left = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (FOLDER / name).write_text(f"{self.request.parsync['slot']} {left.pid}")


@app.task(parsync=True)
def uses_up_descriptors(name: str) -> None:
    """Leave its pool process, whose id is in a file, without a descriptor to open
    anything with.
    """
    (FOLDER / name).write_text(str(os.getpid()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@app.task(parsync=True)
def holds_the_interpreter(name: str, seconds: float) -> None:
    """Let no other thread of its process run, as C code may; the ticks tell begin and end."""
    # sleeps with the lock of the interpreter: a loop would cost a core
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    (FOLDER / name).touch()


@app.task(parsync=True)
def holds_in_c(name: str, seconds: float) -> None:
    """Hold the interpreter in one call of C code, as loading a model may."""
    (FOLDER / name).touch()
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
