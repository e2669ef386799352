"""Shrinks a schedule that broke a promise: leaves out steps as long as the same promise still
breaks.
"""

import redis

from .ghost import Violation
from .schedule import Schedule, Step, run_schedule
from .wire import Scripts


def shrink(
    client: redis.Redis, scripts: Scripts, schedule: Schedule, violation: Violation, most: int = 300
) -> tuple[list[Step], Violation]:
    """Return the shortest list of steps that delta debugging finds in `most` runs, and what it
    breaks.
    """
    steps = schedule.steps
    size = max(1, len(schedule.steps) // 2)
    runs = 0
    while runs < most:
        at = 0
        shorter = False
        while at < len(steps) and runs < most:
            fewer = steps[:at] + steps[at + size :]
            runs += 1
            found = (
                run_schedule(client, scripts, Schedule(schedule.seed, fewer, schedule.shards))[0]
                if fewer
                else None
            )
            if found is not None and found.promise == violation.promise:
                steps = fewer
                violation = found
                shorter = True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return steps, violation
