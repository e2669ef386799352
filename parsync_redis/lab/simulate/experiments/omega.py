"""Omega's transactions (Schwarzkopf et al., EuroSys 2013): fine or coarse conflicts, incremental or all-or-nothing.

A job is some tasks that one scheduler decides in one go: it reads the whole state, thinks for 0.1 s and 5 ms a task,
and commits. *fine*: a claim is lost if its slot is taken; *coarse*: if anything changed on its node since the reading.
*incremental*: what is won stays, the rest is tried again; *all-or-nothing*: one lost claim loses the job's all. The
jobs are dealt to the schedulers by turns; the load is such that one scheduler alone is busy for nine tenths of its
time. The cell is a small one, and the same at every scale.
"""

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ....model.claim import Claim, ClaimOutcome, Verdict
from ....model.replies import Judged, Took
from ....model.task import Taken
from ....scheduler.core import Core, Plan
from ..claims import Check, above, between, difference, ratio
from ..cluster import SimCluster
from ..modes import make_core
from ..parameters import OF_ALL, OF_SIMULATION, Parameters, SimStrategy, Sync
from ..plots import finish_axes, line
from ..runs import Found, Run
from ..simulation import Progress

TITLE = "Omega: conflicts and busyness of 1 to 32 schedulers"
MEMBERS: Final = (1, 2, 4, 8, 16, 32)
MODES: Final = (
    ("fine", "incremental"),
    ("fine", "all-or-nothing"),
    ("coarse", "incremental"),
    ("coarse", "all-or-nothing"),
)
JOB_TASKS: Final = 10
JOB_S, TASK_S = 0.1, 0.005
BUSY_ALONE: Final = 0.9
RATE: Final = JOB_TASKS * BUSY_ALONE / (JOB_S + JOB_TASKS * TASK_S)
RUNS_S: Final = 30.0
UTILISATION: Final = 0.7
LENGTH_S: Final = 120.0
WARM_S: Final = 45.0
DEFAULTS: Final[Mapping[str, Any]] = {
    "strategy": SimStrategy.QUALITY,
    "sync": Sync.STATE,
    "schedulers": 1,
    "partitions": max(MEMBERS),
    "rate": RATE,
    "duration_s": RUNS_S,
    "slots": round(RATE * RUNS_S / UTILISATION),
}
USES: Final = OF_SIMULATION - {"scale", "gap_s", "amplifier", "sync"}


def runs(parameters: Parameters, given: Sequence[str]) -> list[Run]:
    """A run a mode and number of schedulers."""
    members = [n for n in MEMBERS if n <= parameters.partitions]
    if "schedulers" in given:
        members = [parameters.schedulers]
    cells = [parameters.with_(schedulers=n) for n in members]
    return [
        Run(
            f"{detect}, {commit}, N={cell.schedulers}",
            play,
            cell,
            (detect, commit),
            {**cell.only(USES | OF_ALL), "detect": detect, "commit": commit},
        )
        for detect, commit in MODES
        for cell in cells
    ]


WHOLE_WHY: Final = {
    "conflict_fraction": "most jobs that lose a claim are placed at the second try in either mode: they count once",
    "busyness": "a fifth of the jobs is tried again, for 0.15 s instead of 0.105 s: little beside the first try",
}
COARSE_WHY: Final = {
    "conflict_fraction": "",
    "busyness": "a job is tried 0.4 times more often, 0.105 s each, beside the 0.15 s of the first try: as few claims "
    "of a job are lost, few are decided again",
}


@dataclass(slots=True)
class _Member:
    """A scheduler: its jobs, the one that it thinks about, and what became of them."""

    core: Core
    jobs: deque[list[Taken]] = field(default_factory=deque)
    plan: Plan | None = None
    read_s: float = 0.0
    busy_s: float = 0.0
    commits: int = 0
    conflicts: int = 0


def play(parameters: Parameters, dice: np.random.SeedSequence, progress: Progress, detect: str, commit: str) -> Found:
    """One cell for two minutes, of which 45 s are to confirm; it begins as full as its load keeps it."""
    return _Cell(parameters, dice, detect == "coarse", commit == "all-or-nothing").run(
        LENGTH_S * parameters.length, WARM_S * parameters.length, progress
    )


class _Cell:
    """The cell, its schedulers, and the events ahead: (time, number, scheduler), None where a job arrives."""

    def __init__(self, parameters: Parameters, dice: np.random.SeedSequence, coarse: bool, whole: bool) -> None:
        jobs, runs, nodes, fill, *own = (np.random.default_rng(seed) for seed in dice.spawn(4 + parameters.schedulers))
        self.parameters, self.coarse, self.whole = parameters, coarse, whole
        self.jobs_rng, self.runs_rng = jobs, runs
        self.cluster = SimCluster(parameters, 1, nodes)
        busy = min(round(parameters.rate * parameters.duration_s), parameters.slots)
        self.cluster.fill(busy, parameters.duration_s, fill, equal=False)
        self._held: list[int] = []
        self.members = [_Member(make_core(f"s{i}", parameters, seed)) for i, seed in enumerate(own)]
        self._ahead: list[tuple[float, int, _Member | None]] = []
        self._number = self._jobs = self._placed = 0

    def run(self, length_s: float, warm_s: float, progress: Progress) -> Found:
        """Busyness and conflicts of what began after the warm-up."""
        self._at(0.0, None)
        warm = False
        while self._ahead and self._ahead[0][0] < length_s:
            now_s, _, member = heapq.heappop(self._ahead)
            if not warm and now_s >= warm_s:
                warm = True
                for one in self.members:
                    one.busy_s, one.commits, one.conflicts = 0.0, 0, 0
                self._held.clear()
            self.cluster.finish_until(now_s)
            if member is None:
                self._arrive(now_s)
                self._at(now_s + float(self.jobs_rng.exponential(JOB_TASKS / self.parameters.rate)), None)
                progress(now_s / length_s)
            else:
                self._commit(member, now_s)
        measured_s = length_s - warm_s
        commits = sum(one.commits for one in self.members)
        busyness = sum(min(one.busy_s, measured_s) for one in self.members) / measured_s / len(self.members)
        fraction = sum(one.conflicts for one in self.members) / commits if commits else None
        waiting = sum(len(one.jobs) for one in self.members)
        utilisation = float(np.mean(self._held)) / self.parameters.scaled_slots
        summary = {
            "n": len(self.members),
            "busyness": busyness,
            "conflict_fraction": fraction,
            "jobs": commits,
            "waiting": waiting,
            "utilisation": utilisation,
        }
        return Found(dict(summary), summary, self._placed)

    def _at(self, at_s: float, member: _Member | None) -> None:
        self._number += 1
        heapq.heappush(self._ahead, (at_s, self._number, member))

    def _arrive(self, now_s: float) -> None:
        self._held.append(self.cluster.held[0])
        member = self.members[self._jobs % len(self.members)]
        for i in range(JOB_TASKS):
            self.cluster.submit(0, f"j{self._jobs}-{i}", now_s)
        self._jobs += 1
        member.jobs.append(self.cluster.queues[0].take_tasks(member.core.name, JOB_TASKS))
        if member.plan is None:
            self._think(member, now_s)

    def _think(self, member: _Member, now_s: float) -> None:
        """Takes the next job, unless one is in hand; reads everything and decides; the commit comes later."""
        core, cluster = member.core, self.cluster
        if not core.in_flight:
            if not member.jobs:
                member.plan = None
                return
            core.on_took(Took(0, 0, member.jobs.popleft()))
        core.on_stale()
        while due := core.plan(place=False):
            core.wants_tasks = False
            for p in due.read_nodes:
                core.on_nodes(p, cluster.nodes[p], cluster.partitions[p].epoch)
            for p in due.read:
                core.on_snapshot(cluster.read(p, -1), now_s)
        member.plan, member.read_s = core.plan(), now_s
        thinks_s = JOB_S + TASK_S * sum(map(len, member.plan.commit.values()))
        member.busy_s += thinks_s
        self._at(now_s + thinks_s, member)

    def _commit(self, member: _Member, now_s: float) -> None:
        assert member.plan is not None
        claims = [(p, claim) for p, some in member.plan.commit.items() for claim in some]
        verdicts = self._judge(member, claims, now_s)
        for p, some in member.plan.commit.items():
            mine = [verdict for (at, _), verdict in zip(claims, verdicts, strict=True) if at == p]
            member.core.on_judged(Judged(p, 0, self.cluster.store.now_ms, some, mine))
        lost = sum(not verdict.won for verdict in verdicts)
        member.conflicts += lost > 0
        member.commits += not member.core.in_flight
        self._think(member, now_s)

    def _judge(self, member: _Member, claims: Sequence[tuple[int, Claim]], now_s: float) -> list[Verdict]:
        """One transaction: who is refused before the store is asked, and whether any refusal refuses all."""
        cluster, refused = self.cluster, Verdict(ClaimOutcome.CONFLICT, "")

        def stale(p: int, claim: Claim) -> bool:
            changed = self.coarse and cluster.changed_s.get(claim.node, -1.0) > member.read_s
            return changed or cluster.partitions[p].judge(claim) is not None

        held_back = [stale(p, claim) for p, claim in claims]
        if self.whole and any(held_back):
            return [refused] * len(claims)
        verdicts = []
        for (p, claim), held in zip(claims, held_back, strict=True):
            verdict = refused if held else cluster.commit(p, [claim], now_s)[0]
            if verdict.won:
                cluster.start(0, claim, now_s, float(self.runs_rng.exponential(self.parameters.duration_s)))
                self._placed += 1
            verdicts.append(verdict)
        return verdicts


def checks(parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]) -> list[Check]:
    """Coarse against fine, all-or-nothing against incremental, one scheduler against many."""
    most = max(MEMBERS)
    if f"fine, incremental, N={most}" not in summary:
        return []

    def of(detect: str, commit: str, what: str, n: int = most) -> float | None:
        value: float | None = summary[f"{detect}, {commit}, N={n}"][what]["mean"]
        return value

    def to_base(detect: str, commit: str, what: str) -> float | None:
        return ratio(of(detect, commit, what), of("fine", "incremental", what))

    found = []
    for what, said in (("conflict_fraction", "conflicts"), ("busyness", "busyness")):
        found.append(
            between(
                f"coarse.{what}",
                f"{said} of coarse / of fine (incremental, N={most})",
                2.0,
                3.0,
                to_base("coarse", "incremental", what),
                COARSE_WHY[what],
            )
        )
        found.append(
            between(
                f"whole.{what}",
                f"{said} of all-or-nothing / of incremental (fine, N={most})",
                1.5,
                2.5,
                to_base("fine", "all-or-nothing", what),
                WHOLE_WHY[what],
            )
        )
    if "fine, incremental, N=1" not in summary:
        return found
    rising = [of("fine", "incremental", "conflict_fraction", n) for n in (1, most)]
    found.append(
        above(
            "rising",
            "conflict fraction at N=32 less that at N=1 (fine, incremental)",
            "rises",
            0.01,
            difference(rising[-1], rising[0]),
        )
    )
    falling = [of("fine", "incremental", "busyness", n) for n in (1, most)]
    found.append(
        above("falling", "busyness at N=1 / at N=32 (fine, incremental)", "falls", 2.0, ratio(falling[0], falling[-1]))
    )
    return found


def draw(figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """Conflict fraction and busyness over the number of schedulers, a line a mode."""
    axes = figure.subplots(1, 2)
    figure.set_size_inches(10, 4)
    for (detect, commit), colour in zip(MODES, ("tab:blue", "tab:green", "tab:orange", "tab:red"), strict=True):
        points = [one for name, one in series.items() if name.startswith(f"{detect}, {commit},")]
        for one, what in zip(axes, ("conflict_fraction", "busyness"), strict=True):
            line(
                one,
                [point[what] for point in points],
                f"{detect}, {commit}",
                colour,
                "o-",
                [point["n"] for point in points],
            )
    for one, label in zip(axes, ("transactions with conflicts / jobs done", "busyness of a scheduler"), strict=True):
        one.set_xscale("log", base=2)
        one.set_xlabel("schedulers")
        one.set_ylabel(label)
    finish_axes(*axes)
