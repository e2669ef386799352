"""The run of an experiment, from its parameters to result.json and the plots."""

import json
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from parsync_redis import __version__
from parsync_redis.errors import InvalidInput

from .claims import ClaimCheck
from .experiments import EXPERIMENTS, Experiment
from .parameters import OF_ALL, Parameters, flag_of
from .plots import new_figure, save
from .runs import SimRun, carry_out, merge, merge_with_interval, tidy
from .simulation import Progress

NO_REASON_SOUGHT: Final = (
    "no reason was sought: other parameters, or another scale, than in docs/reproduction.md"
)


@dataclass(slots=True)
class Outcome:
    """The outcome of an experiment: the content of result.json, and figures of this execution."""

    result: dict[str, Any]
    checks: list[ClaimCheck]
    placements: int
    wall_s: float
    cpu_s: float


def run_experiment(
    name: str,
    chosen: Mapping[str, Any],
    repeat: int = 1,
    jobs: int = 0,
    tell: Progress = lambda done: None,
) -> Outcome:
    """Run an experiment; parameters that are not given have its defaults. Raise InvalidInput."""
    if not 1 <= repeat <= 1000:
        raise InvalidInput(
            f"--repeat {repeat} is not valid: it must be a whole number from 1 to 1000"
        )
    experiment = EXPERIMENTS[name]
    check_used(name, chosen)
    if "scale" not in experiment.USES:
        chosen = {**chosen, "scale": 1.0}
    parameters = Parameters(**{**experiment.DEFAULTS, **chosen})
    runs = experiment.runs(parameters, sorted(chosen))
    begun_s = time.monotonic()
    outcomes = carry_out(runs, range(parameters.seed, parameters.seed + repeat), jobs, tell)
    series = {
        run.name: merge([outcome.series for outcome in of_run])
        for run, of_run in zip(runs, outcomes, strict=True)
    }
    summary = {
        run.name: merge_with_interval([outcome.summary for outcome in of_run])
        for run, of_run in zip(runs, outcomes, strict=True)
    }
    checks = experiment.checks(parameters, series, summary)
    if _has_unusual_parameters(experiment, parameters, runs):
        checks = [
            replace(check, why=NO_REASON_SOUGHT) if check.why and check.ours is not None else check
            for check in checks
        ]
    used = {
        run.name: run.parameters.only(experiment.USES) if run.used is None else dict(run.used)
        for run in runs
    }
    result = {
        "experiment": name,
        "title": experiment.TITLE,
        "version": __version__,
        "given": sorted(chosen),
        "parameters": _common_parameters(parameters, chosen, list(used.values())),
        "runs": used,
        "seed": parameters.seed,
        "repeat": repeat,
        "series": series,
        "summary": summary,
        "claims": [_tidied(check.as_dict()) for check in checks],
    }
    all_outcomes = [outcome for of_run in outcomes for outcome in of_run]
    wall_s = max(time.monotonic() - begun_s, 1e-9)
    return Outcome(
        result,
        checks,
        sum(outcome.placements for outcome in all_outcomes),
        wall_s,
        sum(outcome.cpu_s for outcome in all_outcomes),
    )


def check_used(name: str, names: Iterable[str]) -> None:
    """Raise InvalidInput for a parameter that the experiment does not use.

    scale and seed are always allowed.
    """
    uses = EXPERIMENTS[name].USES
    if unused := [flag_of(option) for option in names if option not in uses | OF_ALL]:
        meant = ", ".join(
            flag_of(field.name) for field in fields(Parameters) if field.name in uses - {"trace"}
        )
        verb = "has" if len(unused) == 1 else "have"
        raise InvalidInput(f"{', '.join(unused)} {verb} no meaning for {name}: it takes {meant}")


def _has_unusual_parameters(
    experiment: Experiment, parameters: Parameters, runs: Sequence[SimRun]
) -> bool:
    """Return True if the reasons of failed checks do not apply, because parameters differ.

    A choice of runs does not count as a difference.
    """
    free = {"seed", "trace"} | (
        {"strategy"} if all(run.name == run.parameters.strategy for run in runs) else set()
    )
    usual = {**{field.name: field.default for field in fields(Parameters)}, **experiment.DEFAULTS}
    return any(
        value != usual[name] for name, value in parameters.only(experiment.USES - free).items()
    )


def _common_parameters(
    parameters: Parameters, names: Container[str], used: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the chosen parameters, and those that all runs share.

    Parameters of single runs are under `runs`.
    """
    return {
        name: value
        for name, value in asdict(parameters).items()
        if name in names or all(name in run and run[name] == value for run in used)
    }


def write_result(outcome: Outcome, folder: Path, plots: bool = True) -> list[Path]:
    """Write result.json and, with `plots`, NAME.png and NAME.svg into a folder; create the folder.

    How fast it went is in speed.json, because result.json is the same for the same seed.
    """
    result = outcome.result
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "result.json"
        path.write_text(as_json(result) + "\n", encoding="utf-8")
        speed = {"placements": outcome.placements, "wall_s": outcome.wall_s, "cpu_s": outcome.cpu_s}
        (folder / "speed.json").write_text(json.dumps(speed) + "\n", encoding="utf-8")
        return [path, *(draw(result, folder, result["experiment"]) if plots else [])]
    except OSError as error:
        raise InvalidInput(f"--out {folder} cannot be written: {error.strerror or error}") from None


def draw(result: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """Draw the plot of a result."""
    figure = new_figure()
    experiment = EXPERIMENTS[result["experiment"]]
    parameters = Parameters(**{**experiment.DEFAULTS, **result["parameters"]})
    experiment.draw(figure, parameters, result["series"], result["summary"])
    return save(figure, experiment.TITLE, folder, name)


def as_json(result: Mapping[str, Any]) -> str:
    """Render result.json; equal results give equal text."""
    return json.dumps(result, indent=1, allow_nan=False)


WITH_FIGURES: Final = ("fairness", "jobs", "unequal")
"""The experiments whose figures people see beside the claims."""


def figures_of(result: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table of the figures of each run: its columns, and its lines.

    Without lines for experiments that are judged by their claims only.
    """
    summary = result["summary"] if result["experiment"] in WITH_FIGURES else {}
    figures = dict.fromkeys(figure for run in summary.values() for figure in run)
    rows = [(figure, *(_shown(run.get(figure)) for run in summary.values())) for figure in figures]
    return ("figure", *summary), rows


def _shown(value: Mapping[str, float | None] | None) -> str:
    """Return a mean, with half the width of its 95 % interval if there is one."""
    if value is None or value["mean"] is None:
        return ""
    half = value["ci95"]
    return f"{value['mean']:.5g}" if half is None else f"{value['mean']:.5g} +-{half:.4g}"


def rows_of(claims: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str, str]]:
    """Return the lines of the table of claims: claim, paper, ours, tolerance, holds."""
    rows = []
    for claim in claims:
        measured = "none" if claim["ours"] is None else f"{claim['ours']:.4g}"
        no = f"NO: {claim['why']}" if claim.get("why") else "NO"
        holds = "yes" if claim["holds"] else no
        rows.append((claim["claim"], claim["paper"], measured, claim["tolerance"], holds))
    return rows


def _tidied(claim: dict[str, Any]) -> dict[str, Any]:
    return {**claim, "ours": None if claim["ours"] is None else tidy(float(claim["ours"]))}
