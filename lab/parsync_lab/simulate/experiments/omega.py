"""Omega's transactions (Schwarzkopf et al., EuroSys 2013), in two times two modes.

A job is a group of tasks that one scheduler decides at once: it reads the whole state, thinks for
0.1 s and 5 ms a task, and commits. *fine*: a claim is lost if its slot is taken; *coarse*: if
anything changed on its node since the read. *incremental*: won claims stay, and the job tries again
for its other tasks; *all-or-nothing*: one lost claim loses the whole job. Schedulers get jobs by
turns. The load keeps a single scheduler busy for nine tenths of its time. The cell is small, and
the same at every scale.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..claims import ClaimCheck, above, between, difference, ratio
from ..parameters import OF_ALL, OF_SIMULATION, Parameters, SimStrategy, Sync
from ..plots import finish_axes, line
from ..runs import SimRun
from .omega_cell import JOB_S, JOB_TASKS, TASK_S, play

TITLE = "Omega: conflicts and busyness of 1 to 32 schedulers"
OMEGA_SCHEDULERS: Final = (1, 2, 4, 8, 16, 32)
MODES: Final = (
    ("fine", "incremental"),
    ("fine", "all-or-nothing"),
    ("coarse", "incremental"),
    ("coarse", "all-or-nothing"),
)
BUSY_ALONE: Final = 0.9
RATE: Final = JOB_TASKS * BUSY_ALONE / (JOB_S + JOB_TASKS * TASK_S)
RUNS_S: Final = 30.0
UTILISATION: Final = 0.7
DEFAULTS: Final[Mapping[str, Any]] = {
    "strategy": SimStrategy.QUALITY,
    "sync": Sync.STATE,
    "schedulers": 1,
    "partitions": max(OMEGA_SCHEDULERS),
    "rate": RATE,
    "duration_s": RUNS_S,
    "slots": round(RATE * RUNS_S / UTILISATION),
}
USES: Final = OF_SIMULATION - {"scale", "gap_s", "amplifier", "sync", "prefer"}


def runs(parameters: Parameters, chosen: Sequence[str]) -> list[SimRun]:
    """Return one run per mode and number of schedulers."""
    members = [n for n in OMEGA_SCHEDULERS if n <= parameters.partitions]
    if "schedulers" in chosen:
        members = [parameters.schedulers]
    cells = [parameters.with_(schedulers=n) for n in members]
    return [
        SimRun(
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
    "conflict_fraction": (
        "in both modes most jobs that lose a claim are placed at the second try: they count once"
    ),
    "busyness": (
        "a fifth of the jobs is tried again, for 0.15 s instead of 0.105 s: little compared with "
        "the first try"
    ),
}
COARSE_WHY: Final = {
    "conflict_fraction": "",
    "busyness": (
        "a job has 0.4 more tries, of 0.105 s each, and its first try takes 0.15 s: a job loses "
        "few claims, so few are decided again"
    ),
}


def checks(
    parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[ClaimCheck]:
    """Check coarse against fine, all-or-nothing against incremental, one scheduler against many."""
    most = max(OMEGA_SCHEDULERS)
    if f"fine, incremental, N={most}" not in summary:
        return []

    def of(detect: str, commit: str, metric: str, n: int = most) -> float | None:
        value: float | None = summary[f"{detect}, {commit}, N={n}"][metric]["mean"]
        return value

    def to_base(detect: str, commit: str, metric: str) -> float | None:
        return ratio(of(detect, commit, metric), of("fine", "incremental", metric))

    claim_checks = []
    for metric, label in (("conflict_fraction", "conflicts"), ("busyness", "busyness")):
        claim_checks.append(
            between(
                f"coarse.{metric}",
                f"{label} of coarse / of fine (incremental, N={most})",
                2.0,
                3.0,
                to_base("coarse", "incremental", metric),
                COARSE_WHY[metric],
            )
        )
        claim_checks.append(
            between(
                f"whole.{metric}",
                f"{label} of all-or-nothing / of incremental (fine, N={most})",
                1.5,
                2.5,
                to_base("fine", "all-or-nothing", metric),
                WHOLE_WHY[metric],
            )
        )
    if "fine, incremental, N=1" not in summary:
        return claim_checks
    rising = [of("fine", "incremental", "conflict_fraction", n) for n in (1, most)]
    claim_checks.append(
        above(
            "rising",
            "conflict fraction at N=32 less that at N=1 (fine, incremental)",
            "rises",
            0.01,
            difference(rising[-1], rising[0]),
        )
    )
    falling = [of("fine", "incremental", "busyness", n) for n in (1, most)]
    claim_checks.append(
        above(
            "falling",
            "busyness at N=1 / at N=32 (fine, incremental)",
            "falls",
            2.0,
            ratio(falling[0], falling[-1]),
        )
    )
    return claim_checks


def draw(
    figure: Any, parameters: Parameters, series: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Draw conflict fraction and busyness over the number of schedulers, one line per mode."""
    axes = figure.subplots(1, 2)
    figure.set_size_inches(10, 4)
    for (detect, commit), colour in zip(
        MODES, ("tab:blue", "tab:green", "tab:orange", "tab:red"), strict=True
    ):
        points = [
            point for name, point in series.items() if name.startswith(f"{detect}, {commit},")
        ]
        for axis, metric in zip(axes, ("conflict_fraction", "busyness"), strict=True):
            line(
                axis,
                [point[metric] for point in points],
                f"{detect}, {commit}",
                colour,
                "o-",
                [point["n"] for point in points],
            )
    for axis, label in zip(
        axes, ("transactions with conflicts / jobs done", "busyness of a scheduler"), strict=True
    ):
        axis.set_xscale("log", base=2)
        axis.set_xlabel("schedulers")
        axis.set_ylabel(label)
    finish_axes(*axes)
