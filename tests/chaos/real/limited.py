"""The limits of the chaos: 1 to 5 units at once, which most of its tasks ask for."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from parsync_redis.store.policy import change_policy, set_values
from parsync_redis.store.store import Store
from tests.kit.unit_locks import Units

from .history import Event, Run

AT_ONCE: Final = {f"limit-{n}": n for n in range(1, 6)}
"""How many units of each limit run at once."""

UNLIMITED: Final = 0.3
"""The part of the tasks that have no limit."""


def set_limits(store: Store) -> None:
    """Write the policy of the chaos."""
    values = [f"limits.{name}.at_once={units}" for name, units in AT_ONCE.items()]
    change_policy(store, set_values(values), "chaos")


def draw_limits(dice: random.Random) -> dict[str, int]:
    """Return units by limit: mostly of one limit."""
    if dice.random() < UNLIMITED:
        return {}
    names = dice.sample(sorted(AT_ONCE), dice.choice((1, 1, 1, 2)))
    return {name: dice.randint(1, min(2, AT_ONCE[name])) for name in names}


def freed_after_s(runs: Iterable[Run], events: Iterable[Event], units: Units) -> list[float]:
    """Return, of each killed run under a limit whose task went back, the seconds from its last tick
    until then: its units were free again.
    """
    back_s = {
        (event.task, event.item["attempt"]): event.back_s
        for event in events
        if event.verb == "requeue" and event.word in ("pending", "dead", "cancelled")
    }
    return [
        max(0.0, back_s[run.task, run.attempt] - run.last_s)
        for run in runs
        if (run.task, run.attempt, run.pid) in units.of_runs
        and not run.ended
        and (run.task, run.attempt) in back_s
    ]


def accounts_left(store: Store) -> list[str]:
    """Return a sentence for each account that holds something: right only while no task is held."""
    client: Any = store.client
    left = []
    for shard in range(store.keys.shards):
        holders = client.scan_iter(f"{store.keys.prefix('holders:', shard)}*", count=1000)
        lines = store.read("hgetall", store.keys.queue("accounts", shard)).items()
        left += [f"account {name!r} of q{shard} has the line {text!r}" for name, text in lines]
        left += [f"the key {key!r} is there" for key in holders]
    return left


def excess_allotments(store: Store) -> list[str]:
    """Return a sentence for each limit whose shards may hold more than the limit together."""
    keys = store.keys
    sums = Counter[str]()
    for shard in range(keys.shards if keys.shards > 1 else 0):
        allotments = store.read("hmget", keys.queue("policy", shard), [f"={n}" for n in AT_ONCE])
        for name, text in zip(AT_ONCE, allotments, strict=True):
            sums[name] += int((text or b"").decode().rpartition("units=")[2] or 0)
    return [
        f"the shards may hold {units} units of {name}, which has {AT_ONCE[name]}"
        for name, units in sums.items()
        if units > AT_ONCE[name]
    ]
