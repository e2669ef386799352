"""The server's cost of each verb in a task's life, by the number of tasks in a call.

The figures do not depend on other load of the machine. The cost of several servers is their sum.
The servers have the settings of a production cluster, and some running tasks, so that their hashes
are as in a large cluster.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from parsync_lab import Stopped
from parsync_redis.errors import InvalidInput, ServerUnfit
from parsync_redis.store.server.connection import set_timeouts
from parsync_redis.store.server.server_info import LIST_SETTINGS
from parsync_redis.store.store import Store

from ..flags import check_flag
from .cost_life import COST_CASES, VERBS, WITH_CONFIRM, Life
from .meters import Instructions, Meter, Microseconds, callgrind_words, find_valgrind
from .placement import Say, facts_of
from .servers import Servers, start_servers

CALLGRIND = "callgrind"
COMMANDSTATS = "commandstats"
CALL_SIZES: Final = (100, 10, 1)
ROUNDS_BY_METER: Final = {CALLGRIND: 5, COMMANDSTATS: 20}
"""The number of rounds: Lua collects its garbage in some calls only."""

_TIMEOUT_S: Final = 60.0
"""The time-out of calls; callgrind makes a server some fifty times slower."""

_QUIET: Final = {"hz": 1, "activerehashing": "no"}
"""Settings of a server under callgrind: it does little by itself between calls."""

_QUIET_PEERS: Final = {**_QUIET, "cluster-node-timeout": 60_000}
"""Settings of a cluster's servers: they seldom ask each other whether they live."""


@dataclass(frozen=True, slots=True)
class CostParameters:
    """The parameters of the measurement.

    tasks: the most tasks of a round.
    sizes: the numbers of tasks in a call.
    held: the tasks that run meanwhile.
    calls: the most calls of a verb in a round; a server collects Lua's garbage once in 50 calls, so
        each verb gets its part.
    by: '' is callgrind if it is installed.
    program: the server, '' for the usual server.
    options: further settings of the server.
    primaries: of a cluster; 1 is a single server.
    shards: of the queue, 0 is the usual number.
    mixed: the tasks of a call are of any shards, as Celery's ids are; otherwise of one shard, as a
        client makes ids.
    """

    tasks: int = 200
    calls: int = 50
    held: int = 600
    rounds: int = 0
    sizes: tuple[int, ...] = CALL_SIZES
    by: str = ""
    program: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    primaries: int = 1
    shards: int = 0
    mixed: bool = False

    def meter(self) -> str:
        """Return the name of the meter.

        Raises InvalidInput for an unknown name, ServerUnfit if valgrind is missing.
        """
        if self.by not in ("", CALLGRIND, COMMANDSTATS):
            raise InvalidInput(
                f"--by {self.by!r} is not known: known are {CALLGRIND}, {COMMANDSTATS}"
            )
        if self.by == CALLGRIND and not find_valgrind():
            raise ServerUnfit(
                "--by callgrind needs valgrind: apt-get install valgrind, or measure --by "
                "commandstats"
            )
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
            ("--primaries", (self.primaries,), 1, 16),
            ("--shards", (self.shards,), 0, 256),
        ):
            for value in values:
                check_flag(flag, value, least, most)


@contextmanager
def metered(parameters: CostParameters) -> Iterator[tuple[Servers, Meter]]:
    """Start the servers and their meter."""
    valgrind = find_valgrind() if parameters.meter() == CALLGRIND else None
    program = parameters.program or None
    quiet = _QUIET if parameters.primaries == 1 else _QUIET_PEERS
    if not valgrind:
        with start_servers(parameters.primaries, program, parameters.options) as servers:
            yield servers, Microseconds(servers.all)
        return
    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(TemporaryDirectory(prefix="parsync-cost-")))
            for _ in range(parameters.primaries)
        ]
        launchers = [callgrind_words(valgrind, folder) for folder in folders]
        servers = stack.enter_context(
            start_servers(parameters.primaries, program, {**quiet, **parameters.options}, launchers)
        )
        yield servers, Instructions(dict(zip(folders, servers.all, strict=True)))


def run_cost(parameters: CostParameters, stop: threading.Event, say: Say) -> dict[str, Any]:
    """Measure each verb; costs are for one task. Raise InvalidInput, ServerUnfit or Stopped."""
    parameters.check()
    by = parameters.meter()
    rounds = parameters.rounds or ROUNDS_BY_METER[by]
    with metered(parameters) as (servers, meter):
        costs: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for name, case in COST_CASES.items():
            say(f"{name}: {parameters.held} tasks start")
            store = Store.from_url(servers.url, f"cost-{name}")
            set_timeouts(store.client, _TIMEOUT_S)
            store.load_scripts()
            life = Life(store, case, parameters.shards)
            _bring(life, parameters.held, ("submit", "take", "commit", "start"))
            _bring(life, min(100, parameters.tasks), WITH_CONFIRM)
            costs[name] = {}
            for size in parameters.sizes:
                costs_by_verb: dict[str, list[float]] = {}
                for number in range(rounds):
                    if stop.is_set():
                        raise Stopped
                    say(f"{name}, calls of {size}: round {number + 1} of {rounds}")
                    _add_round(costs_by_verb, life, meter, parameters, size)
                costs[name][str(size)] = {
                    verb: _figure(values) for verb, values in costs_by_verb.items()
                }
        return {
            "by": by,
            "unit": meter.unit,
            "tasks": parameters.tasks,
            "rounds": rounds,
            "primaries": parameters.primaries,
            "shards": life.shards,
            "mixed": parameters.mixed,
            "options": {**LIST_SETTINGS, **parameters.options},
            "cost": costs,
            "facts": facts_of(servers.all[0]),
        }


def _bring(life: Life, count: int, verbs: tuple[str, ...]) -> None:
    life.begin(count)
    for verb in verbs:
        life.step(verb, 100)


def _add_round(
    costs_by_verb: dict[str, list[float]],
    life: Life,
    meter: Meter,
    parameters: CostParameters,
    size: int,
) -> None:
    """Measure a life without `confirm`, then a short life for `confirm`; add each cost per task."""
    count = min(parameters.tasks, parameters.calls * size)
    of_one = 0 if parameters.mixed else size
    life.begin(count, of_one)
    costs = {verb: meter.measure(partial(life.step, verb, size)) / count for verb in VERBS}
    costs["life"] = sum(costs.values())
    confirmed = min(count, max(parameters.calls, size))
    life.begin(confirmed, of_one)
    for verb in WITH_CONFIRM:
        spent = meter.measure(partial(life.step, verb, size))
        if verb == "confirm":
            costs[verb] = spent / confirmed
    for verb, cost in costs.items():
        costs_by_verb.setdefault(verb, []).append(cost)


def _figure(values: list[float]) -> dict[str, float]:
    return {"least": round(min(values), 2), "median": round(median(values), 2)}
