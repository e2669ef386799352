"""Layer 1 in short: seeded schedules without a broken promise, and planted bugs that must be found.

`make chaos-many` and `make chaos-mutants` do the same at length. Numbers of promises are those of
docs/invariants.md.
"""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
import redis

from parsync_redis.store.server.connection import connect
from parsync_redis.store.server.embedded import EmbeddedServer
from tests.chaos.mutants import MUTANTS, hunt
from tests.chaos.schedule import SHARDS, Schedule, of_text, run_schedule, to_text
from tests.chaos.wire import Scripts

REACHED = (
    "start ok",
    "start refused",
    "commit conflict",
    "reclaim down",
    "confirm stale",
    "requeue pending",
    "ring rung",
    "late requests",
    "finish again",
    "server restarts",
    "slept past a lease",
    "stood still",
)
REACHED_ON_SEVERAL = (
    "primaries away",
    "requests to a primary that is away",
    "server restarts",
    "rollbacks",
    "slots moved",
)
QUICK = {
    "commit does not look at the slot": 1,
    "start leaves the task in taken": 1,
    "shut seats take claims": 1,
}
"""Planted bugs, and the seed to hunt from."""


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    logging.disable(logging.CRITICAL)
    with EmbeddedServer() as server, connect(server.url) as client:
        yield client
    logging.disable(logging.NOTSET)


def test_promises_1_to_9_hold_in_every_schedule_of_a_fixed_list_of_seeds(
    client: redis.Redis,
) -> None:
    coverage = Counter[str]()
    scripts = Scripts()
    for seed in (*range(1, 31), 54, 117, 125, 132, 146, 233, 31004):
        violation, reached = run_schedule(client, scripts, Schedule(seed))
        assert violation is None, (
            f"seed {seed}: {violation}; python -m tests.chaos many -n 1 --seed {seed} shrinks it"
        )
        coverage += reached
    missing = [what for what in REACHED if not coverage[what]]
    assert not missing, f"the schedules have grown tame: never {missing}"


def test_promises_1_to_9_hold_on_several_primaries_that_go_away_restart_lose_writes_and_move_slots(
    client: redis.Redis,
) -> None:
    coverage = Counter[str]()
    scripts = Scripts()
    for seed in (*range(1, 13), 1030, 7019):
        violation, reached = run_schedule(client, scripts, Schedule(seed, shards=SHARDS))
        assert violation is None, (
            f"seed {seed}: {violation}; many --cluster -n 1 --seed {seed} shrinks it"
        )
        coverage += reached
    missing = [what for what in REACHED_ON_SEVERAL if not coverage[what]]
    assert not missing, f"the schedules have grown tame: never {missing}"


def test_a_schedule_is_replayed_to_the_letter_from_its_seed_and_steps(client: redis.Redis) -> None:
    logs: list[list[str]] = []
    for steps in (None, of_text(to_text(Schedule(7).steps))):
        log: list[str] = []
        run_schedule(client, Scripts(), Schedule(7, steps), log)
        # the call tells the process id, which differs
        logs.append([line for line in log if "renew_scheduler" not in line])
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(client: redis.Redis, name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    schedules, violation = hunt(client, mutant, 40, QUICK[name])
    assert violation is not None, f"{name} was not found in {schedules} schedules"
