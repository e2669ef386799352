"""The server's cost of each verb of a task's life, by the size of its calls; the same on a busy machine.

The server has the settings that a cluster's server should have, and some held slots and running tasks, so that its
hashes are as in a large cluster.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from ...demo.driver import Stopped
from ...errors import InvalidInput, ServerUnfit
from ...store.connection import connect
from ...store.embedded import EmbeddedServer
from ...store.server_info import LIST_SETTINGS
from ...store.store import Store
from .cost_life import CASES, VERBS, WITH_CONFIRM, Life
from .meters import Instructions, Meter, Microseconds, callgrind_words, find_valgrind
from .placement import Say, facts_of

CALLGRIND, COMMANDSTATS = "callgrind", "commandstats"
SIZES: Final = (100, 10, 1)
ROUNDS: Final = {CALLGRIND: 5, COMMANDSTATS: 20}
"""Some rounds, because Lua collects its garbage in some calls and not in others."""

_TIMEOUT_S: Final = 60.0
"""Callgrind makes a server some fifty times slower."""

_QUIET: Final = {"hz": 1, "activerehashing": "no"}
"""Settings of a server under callgrind: it does little by itself between calls."""


@dataclass(frozen=True, slots=True)
class CostParameters:
    """The size of the measurement: `tasks` at most in each round, in calls of `sizes`, while `held` others run.

    calls: the most of a verb in a round; a server has Lua collect its garbage once in 50 calls, so each verb gets its
    part. by: '' is callgrind if there is one. program: the server, '' for the usual one. options: of the server,
    besides the usual ones.
    """

    tasks: int = 200
    calls: int = 50
    held: int = 600
    rounds: int = 0
    sizes: tuple[int, ...] = SIZES
    by: str = ""
    program: str = ""
    options: Mapping[str, object] = field(default_factory=dict)

    def meter(self) -> str:
        """Return how to measure; raise InvalidInput for an unknown way, ServerUnfit for a missing valgrind."""
        if self.by not in ("", CALLGRIND, COMMANDSTATS):
            raise InvalidInput(f"--by {self.by!r} is not known: known are {CALLGRIND}, {COMMANDSTATS}")
        if self.by == CALLGRIND and not find_valgrind():
            raise ServerUnfit("--by callgrind needs valgrind: apt-get install valgrind, or measure --by commandstats")
        return self.by or (CALLGRIND if find_valgrind() else COMMANDSTATS)

    def check(self) -> None:
        """Check the values; raise InvalidInput with the wrong value and what would be right."""
        self.meter()
        for flag, values, least, most in (
            ("--tasks", (self.tasks,), 1, 5000),
            ("--calls", (self.calls,), 1, 1000),
            ("--held", (self.held,), 0, 5000),
            ("--rounds", (self.rounds,), 0, 1000),
            ("--sizes", self.sizes or (0,), 1, 500),
        ):
            for value in values:
                if not least <= value <= most:
                    raise InvalidInput(f"{flag} {value} is not valid: it must be from {least} to {most:,}")


@contextmanager
def metered(asked: CostParameters) -> Iterator[tuple[EmbeddedServer, Meter]]:
    """Start a server and its meter."""
    program = asked.program or None
    valgrind = find_valgrind() if asked.meter() == CALLGRIND else None
    if not valgrind:
        with EmbeddedServer(program, options=asked.options) as server:
            yield server, Microseconds(server)
        return
    with TemporaryDirectory(prefix="parsync-cost-") as folder:
        words = callgrind_words(valgrind, Path(folder))
        with EmbeddedServer(program, options={**_QUIET, **asked.options}, launcher=words) as server:
            yield server, Instructions(server, Path(folder))


def run_cost(asked: CostParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Measure each verb; costs are for one task. Raise InvalidInput, ServerUnfit or Stopped."""
    asked.check()
    by = asked.meter()
    rounds = asked.rounds or ROUNDS[by]
    with metered(asked) as (server, meter):
        costs: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for name, case in CASES.items():
            say(f"{name}: {asked.held} tasks start")
            store = Store(connect(server.url, _TIMEOUT_S), f"cost-{name}")
            store.load_scripts()
            life = Life(store, case)
            _bring(life, asked.held, ("submit", "take", "commit", "start"))
            _bring(life, 100, WITH_CONFIRM)
            costs[name] = {}
            for size in asked.sizes:
                found: dict[str, list[float]] = {}
                for number in range(rounds):
                    if stop.is_set():
                        raise Stopped
                    say(f"{name}, calls of {size}: round {number + 1} of {rounds}")
                    _add_round(found, life, meter, asked, size)
                costs[name][str(size)] = {verb: _figure(values) for verb, values in found.items()}
        return {
            "by": by,
            "unit": meter.unit,
            "tasks": asked.tasks,
            "rounds": rounds,
            "options": {**LIST_SETTINGS, **asked.options},
            "cost": costs,
            "facts": facts_of(server),
        }


def _bring(life: Life, count: int, verbs: tuple[str, ...]) -> None:
    life.begin(count)
    for verb in verbs:
        life.step(verb, 100)


def _add_round(found: dict[str, list[float]], life: Life, meter: Meter, asked: CostParameters, size: int) -> None:
    """Measure a life without `confirm`, then `confirm` in a short one with it; add each verb's cost for one task."""
    count = min(asked.tasks, asked.calls * size)
    life.begin(count)
    costs = {verb: meter.measure(partial(life.step, verb, size)) / count for verb in VERBS}
    costs["life"] = sum(costs.values())
    some = min(count, max(asked.calls, size))
    life.begin(some)
    for verb in WITH_CONFIRM:
        spent = meter.measure(partial(life.step, verb, size))
        if verb == "confirm":
            costs[verb] = spent / some
    for verb, cost in costs.items():
        found.setdefault(verb, []).append(cost)


def _figure(values: list[float]) -> dict[str, float]:
    return {"least": round(min(values), 2), "median": round(median(values), 2)}
