"""The limits of the chaos: 1 to 5 units at once, which most of its tasks ask for."""

import random
from typing import Any, Final

from parsync_redis.store.policy import change_policy, set_values
from parsync_redis.store.store import Store

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


def accounts_left(store: Store) -> list[str]:
    """Return a sentence for each account that holds something: right only while no task is held."""
    client: Any = store.client
    holders = [*client.scan_iter(f"{store.keys.prefix('holders:', 0)}*", count=1000)]
    lines = store.read("hgetall", store.keys.queue("accounts")).items()
    return [
        *(f"account {name!r} has the line {text!r}" for name, text in lines),
        *(f"the key {key!r} is there" for key in holders),
    ]
