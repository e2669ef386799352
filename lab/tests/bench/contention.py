"""Measure what several schedulers waste in a full cluster, and whether tasks report the delay that
they had.

    python -m lab.tests.bench.contention [ROUNDS]

Each round has a server, schedulers and stand-ins of its own, and takes about ten seconds.
"""

import statistics
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

from parsync_lab.bench.load import task_id
from parsync_lab.bench.queue_rig import Home, running
from parsync_redis.inspect.audit import audit
from parsync_redis.model.needs import Resources
from parsync_redis.model.task import TaskState

SCHEDULERS: Final = 3
NODES: Final = 24
SLOTS: Final = 1
HOLD_S: Final = 0.4
TASKS: Final = 200
LONGEST_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Contention:
    """One round.

    takes, given_back: as the schedulers count. true_ms: from submit to start, by the client's
    clock.
    """

    takes: int
    given_back: int
    true_ms: float
    reported_ms: float
    beyond_starts: int
    findings: int
    seconds: float

    @property
    def wasted(self) -> float:
        """Return the share of the takes that were given back."""
        return self.given_back / self.takes

    @property
    def told(self) -> float:
        """Return the reported delay as a share of the true one."""
        return self.reported_ms / self.true_ms


def measure(
    schedulers: int = SCHEDULERS,
    nodes: int = NODES,
    slots: int = SLOTS,
    tasks: int = TASKS,
    hold_s: float = HOLD_S,
) -> Contention:
    """Submit tasks at once to a cluster that has few slots, and wait until all have ended."""
    homes = [Home(f"n{number}", Resources.of(slots, {}, {}), hold_s) for number in range(nodes)]
    with running(homes, schedulers, threading.Event()) as rig:
        submitted_ms = time.time() * 1e3
        numbers = rig.submit([{}] * tasks)
        if not rig.until(numbers, TaskState.SUCCEEDED, LONGEST_S):
            raise TimeoutError(f"after {LONGEST_S:g} s not all {tasks} tasks have ended")
        seconds = time.time() - submitted_ms / 1e3
        statuses = rig.client.statuses([task_id(number) for number in numbers])
        counters = rig.processes.finish("schedulers")
        rig.processes.finish("agents")
        findings = audit(rig.store)
    times = [status.times for status in statuses]
    return Contention(
        takes=sum(row["taken"] for row in counters),
        given_back=sum(row["given_back"] for row in counters),
        true_ms=statistics.median((found["started"] or 0) - submitted_ms for found in times),
        reported_ms=statistics.median(
            (found["placed"] or 0) - (found["ready"] or 0) for found in times
        ),
        beyond_starts=max(status.attempt - status.starts for status in statuses),
        findings=len(findings),
        seconds=seconds,
    )


def main(rounds: int) -> None:
    """Print a line for each round."""
    print(
        "takes  wasted  true p50  reported p50  reported/true  attempts beyond starts  findings  "
        "seconds"
    )
    for _ in range(rounds):
        found = measure()
        print(
            f"{found.takes:5}  {found.wasted:6.1%}  {found.true_ms:5.0f} ms  "
            f"{found.reported_ms:9.0f} ms"
            f"  {found.told:13.2f}  {found.beyond_starts:22}  {found.findings:8}  "
            f"{found.seconds:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
