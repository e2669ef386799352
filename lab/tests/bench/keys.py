"""The CPU time of a scheduler's decision for tasks with `warm`, by the number of keys in turn.

`python -m lab.tests.bench.keys` prints it. A scheduler keeps the rings of MAX_RANKED keys.
"""

import sys
from statistics import mean, median

from parsync_lab.bench.decide import SLOTS_OF_NODE, Decider, needs_of
from parsync_redis.model.kind import Kind


def decide_in_turn(slots: int, keys: int) -> str:
    """Return what a decision costs when tasks of these keys come one after another."""
    decider = Decider(slots)
    took_ms = []
    for number in range(2 * keys):
        if number % 50 == 0:
            decider.read_next()
        kind = Kind("work", needs_of(1).text, prefer=f"warm=k{number % keys}")
        took_ms.append(1000 * decider.decide([kind], 1))
    again_ms = took_ms[keys:]
    return (
        f"{slots // SLOTS_OF_NODE:,} nodes, {keys:,} keys in turn: a decision takes "
        f"{median(again_ms):.2f} ms (median), {mean(again_ms):.2f} ms (mean)"
    )


if __name__ == "__main__":
    for slots in map(int, sys.argv[1:] or ("10000", "100000")):
        for keys in (100, 1000, 2000):
            print(decide_in_turn(slots, keys), flush=True)
