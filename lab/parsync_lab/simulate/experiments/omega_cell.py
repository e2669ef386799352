"""The cell of the Omega experiment: a scheduler reads all, thinks, and commits a job at once."""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from parsync_redis.model.claim import Claim, ClaimOutcome, Verdict
from parsync_redis.model.replies import Judged, Took
from parsync_redis.model.task import Taken
from parsync_redis.scheduler.core.core import Core
from parsync_redis.scheduler.core.plan import Plan

from ..cluster import SimCluster
from ..modes import make_core
from ..parameters import Parameters
from ..runs import RunFigures
from ..simulation import Progress

JOB_TASKS: Final = 10
JOB_S = 0.1
TASK_S = 0.005
CELL_LENGTH_S: Final = 120.0
CELL_WARM_UP_S: Final = 45.0


@dataclass(slots=True)
class _Member:
    """A scheduler of the cell: its jobs, its current tasks and plan, and its counts."""

    core: Core
    jobs: deque[list[Taken]] = field(default_factory=deque)
    job: dict[str, Taken] = field(default_factory=dict)
    seatless: list[Taken] = field(default_factory=list)
    plan: Plan | None = None
    read_s: float = 0.0
    busy_s: float = 0.0
    commits: int = 0
    conflicts: int = 0


def play(
    parameters: Parameters,
    dice: np.random.SeedSequence,
    progress: Progress,
    detect: str,
    commit: str,
) -> RunFigures:
    """Play a cell for two minutes, of which 45 s are warm-up, from its usual load on."""
    return _Cell(parameters, dice, detect == "coarse", commit == "all-or-nothing").run(
        CELL_LENGTH_S * parameters.length, CELL_WARM_UP_S * parameters.length, progress
    )


class _Cell:
    """The cell with its schedulers and coming events.

    An event is (time, number, scheduler); None as the scheduler is the arrival of a job.
    """

    def __init__(
        self, parameters: Parameters, dice: np.random.SeedSequence, coarse: bool, whole: bool
    ) -> None:
        jobs, runs, nodes, fill, *scheduler_rngs = (
            np.random.default_rng(seed) for seed in dice.spawn(4 + parameters.schedulers)
        )
        self.parameters = parameters
        self.coarse = coarse
        self.whole = whole
        self.jobs_rng = jobs
        self.runs_rng = runs
        self.cluster = SimCluster(parameters, 1, nodes)
        busy = min(round(parameters.rate * parameters.duration_s), parameters.slots)
        self.cluster.fill(busy, parameters.duration_s, fill)
        self._held: list[int] = []
        self.members = [
            _Member(make_core(f"s{i}", parameters, seed)) for i, seed in enumerate(scheduler_rngs)
        ]
        self._ahead: list[tuple[float, int, _Member | None]] = []
        self._number = self._jobs = self._placed = 0

    def run(self, length_s: float, warm_s: float, progress: Progress) -> RunFigures:
        """Run the cell; return busyness and conflicts after the warm-up."""
        self._schedule(0.0, None)
        warm = False
        while self._ahead and self._ahead[0][0] < length_s:
            now_s, _, member = heapq.heappop(self._ahead)
            if not warm and now_s >= warm_s:
                warm = True
                for each_member in self.members:
                    each_member.busy_s = 0.0
                    each_member.commits = 0
                    each_member.conflicts = 0
                self._held.clear()
            self.cluster.finish_until(now_s)
            if member is None:
                self._arrive(now_s)
                self._schedule(
                    now_s + float(self.jobs_rng.exponential(JOB_TASKS / self.parameters.rate)), None
                )
                progress(now_s / length_s)
            else:
                self._commit(member, now_s)
        measured_s = length_s - warm_s
        commits = sum(each_member.commits for each_member in self.members)
        busyness = (
            sum(min(each_member.busy_s, measured_s) for each_member in self.members)
            / measured_s
            / len(self.members)
        )
        fraction = (
            sum(each_member.conflicts for each_member in self.members) / commits
            if commits
            else None
        )
        waiting = sum(len(each_member.jobs) for each_member in self.members)
        utilisation = float(np.mean(self._held)) / self.parameters.scaled_slots
        summary = {
            "n": len(self.members),
            "busyness": busyness,
            "conflict_fraction": fraction,
            "jobs": commits,
            "waiting": waiting,
            "utilisation": utilisation,
        }
        return RunFigures(dict(summary), summary, self._placed)

    def _schedule(self, at_s: float, member: _Member | None) -> None:
        self._number += 1
        heapq.heappush(self._ahead, (at_s, self._number, member))

    def _arrive(self, now_s: float) -> None:
        self._held.append(self.cluster.held[0])
        member = self.members[self._jobs % len(self.members)]
        for i in range(JOB_TASKS):
            self.cluster.submit(0, f"j{self._jobs}-{i}", now_s)
        self._jobs += 1
        member.jobs.append(self.cluster.take_all(0, member.core.name, JOB_TASKS))
        if member.plan is None:
            self._think(member, now_s)

    def _think(self, member: _Member, now_s: float) -> None:
        """Start the next job unless one is in flight: read everything and decide.

        The commit comes when the scheduler has thought.
        """
        core = member.core
        cluster = self.cluster
        if not (core.in_flight or member.seatless):
            if not member.jobs:
                member.plan = None
                return
            member.seatless = member.jobs.popleft()
            member.job = {task.id: task for task in member.seatless}
        core.on_took(Took("1", 0, tasks=member.seatless))
        core.on_stale()
        while due := core.plan(place=False):
            for p in due.read_nodes:
                core.on_nodes(p, cluster.nodes[p], cluster.partitions[p].epoch)
            for p in due.read:
                core.on_snapshot(cluster.read(p, -1), now_s)
        member.plan = core.plan()
        member.read_s = now_s
        member.seatless = [member.job[id] for id, _, _ in member.plan.give_back]
        thinks_s = JOB_S + TASK_S * sum(map(len, member.plan.commit.values()))
        member.busy_s += thinks_s
        self._schedule(now_s + thinks_s, member)

    def _commit(self, member: _Member, now_s: float) -> None:
        assert member.plan is not None
        claims = [
            (p, claim)
            for p, partition_claims in member.plan.commit.items()
            for claim in partition_claims
        ]
        verdicts = self._judge(member, claims, now_s)
        for p, partition_claims in member.plan.commit.items():
            partition_verdicts = [
                verdict
                for (partition, _), verdict in zip(claims, verdicts, strict=True)
                if partition == p
            ]
            member.core.on_judged(
                Judged(p, 0, self.cluster.store.now_ms, partition_claims, partition_verdicts)
            )
        lost = sum(not verdict.won for verdict in verdicts)
        member.conflicts += lost > 0
        member.commits += not (member.core.in_flight or member.seatless)
        self._think(member, now_s)

    def _judge(
        self, member: _Member, claims: Sequence[tuple[int, Claim]], now_s: float
    ) -> list[Verdict]:
        """Return the verdicts of one transaction.

        Stale claims are refused first. In all-or-nothing mode one refusal refuses all claims.
        """
        cluster = self.cluster
        refused = Verdict(ClaimOutcome.CONFLICT, "")

        def stale(p: int, claim: Claim) -> bool:
            changed = self.coarse and cluster.changed_s.get(claim.node, -1.0) > member.read_s
            return changed or cluster.partitions[p].judge(claim) is not None

        are_stale = [stale(p, claim) for p, claim in claims]
        if self.whole and any(are_stale):
            return [refused] * len(claims)
        verdicts = []
        for (p, claim), is_stale in zip(claims, are_stale, strict=True):
            verdict = refused if is_stale else cluster.commit(p, [claim], now_s)[0]
            if verdict.won:
                cluster.start(
                    0, claim, now_s, float(self.runs_rng.exponential(self.parameters.duration_s))
                )
                self._placed += 1
            verdicts.append(verdict)
        return verdicts
