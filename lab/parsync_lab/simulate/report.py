"""docs/reproduction.md: the claims and the plots of all experiments whose results a folder has."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from parsync_redis.errors import InvalidInput

from .experiment import figures_of, rows_of
from .experiments import EXPERIMENTS
from .parameters import flag_of

REPRODUCTION_PAGE_HEAD: Final = """# Reproduction: the paper's results by our own schedulers

Made by `make reproduce`; do not edit. Each experiment runs the product's scheduler core, view, sampling and
strategies in virtual time against the store in memory; property tests compare that store with the Lua scripts.
[decisions/0018](decisions/0018-simulator.md) says what the paper leaves open and what we chose. The paper's figures
are from Feng et al., "Scaling Large Production Clusters with Partitioned Synchronization", USENIX ATC 2021, from the
authors' own article, from reviews that quote it, and from its plots. All claims of an experiment have the same
parameters. A claim that does not hold stays here, with the reason that we found. The parameters are those that the
runs used, with all values if they differ; slots and rate are those at scale 1.
"""

AIM: Final = 25_000

OF_TRACE: Final = ("trace", "jobs")
"""The experiments on a file, which is not part of the project."""

NOTES: Final[Mapping[str, str]] = {
    "strategies": "Quality-first is weighted sampling over the whole view. Delays run from submit to commit, are "
    "grouped by the second of the commit, and include a wait for a tick.",
    "extra-slots": "Extra slots are idle slots, in addition to R d busy ones. The delay is unchanged if as many "
    "claims of a gap win as tasks arrive in it. All points of a sweep share their random numbers.",
    "omega": "A conflict is a transaction that loses a claim; the conflict fraction is relative to the finished "
    "jobs. The cell is small, and the same at any scale.",
    "trace": "Alibaba's batch tasks of 2017: bursts of thousands of equal tasks. The file is not "
    "part of the project: `parsync simulate trace FILE`.",
    "fairness": "No experiment of the paper: the bars are ours. The wait of B counts from second 2 "
    "on, the shares from second 10 on. A against C: the difference of their shares, as a part of "
    "all slots. L has tasks of 8 slots beside a flood S of one-slot tasks with the same weight: "
    "half of the slots is due to L. This run takes 2.4 times as long, and counts from second 20 "
    "on.",
    "jobs": "No experiment of the paper: the bars are ours, and `paper` is our goal. Alibaba's "
    "batch tasks of 2017; the file is not part of the project. A tenth of the jobs is drawn, and "
    "each job is a tenant. A slowdown is the time from the first submission to the last end of a "
    "job, over the same time without a wait. "
    "[decisions/0077](decisions/0077-jobs-of-a-trace-as-tenants.md) says what is drawn, and how "
    "the figures depend on the load.",
    "unequal": "No experiment of the paper: the bars are ours, and `paper` is our goal. The speeds "
    "are those of 26 job types on K80, P100 and V100, from the table that Gavel's authors publish; "
    "the file is not part of the project, and without `--trace` the speeds are drawn. 36 slots are "
    "of each class, on nodes of 4 slots; a V100 has the best score, a K80 the least. A task runs "
    "30 to 90 s on the class on which its name runs fastest. `batch`: all 2,000 tasks come at "
    "once. 1.0, 0.8 and 0.6: they come at random, at this part of the rate that the slots could "
    "do if each class did the best part of each name. `of_bound`: the makespan, over the least "
    "that is possible. `fast, known`: the run times are known before the first task comes; else "
    "they are learnt as tasks end, from a cold start. "
    "[decisions/0084](decisions/0084-run-times-decide.md) has the rule.",
}


def write_report(results: Path, document: Path) -> list[str]:
    """Write the document, and the plots into a folder beside it; return the experiments' names."""
    paths = {
        name: results / name / "result.json"
        for name in EXPERIMENTS
        if (results / name / "result.json").exists()
    }
    if not paths:
        raise InvalidInput(
            f"no results in {results}: parsync simulate NAME --out {results}/NAME makes them"
        )
    folder = document.with_suffix("")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = []
        summary = []
        slow = list[str]()
        for name, path in paths.items():
            result = json.loads(path.read_text(encoding="utf-8"))
            speed = path.with_name("speed.json")
            speed_figures = json.loads(speed.read_text(encoding="utf-8")) if speed.exists() else {}
            claims = result["claims"]
            holding = sum(claim["holds"] for claim in claims)
            rate = (
                f"{speed_figures['placements'] / speed_figures['wall_s']:,.0f}"
                if speed_figures
                else ""
            )
            if speed_figures and speed_figures["placements"] / speed_figures["wall_s"] < AIM:
                slow.append(name)
            cpu_rate = (
                f"{speed_figures['placements'] / speed_figures['cpu_s']:,.0f}"
                if speed_figures.get("cpu_s")
                else ""
            )
            placements = f"{speed_figures['placements']:,}" if speed_figures else ""
            summary.append(
                (f"[{name}](#{name})", f"{holding} of {len(claims)}", placements, rate, cpu_rate)
            )
            plot = path.with_name(f"{name}.png")
            for kind in ("png", "svg"):
                if plot.with_suffix(f".{kind}").exists():
                    shutil.copyfile(plot.with_suffix(f".{kind}"), folder / f"{name}.{kind}")
            parts.append(
                _section(name, result, f"{folder.name}/{name}.png" if plot.exists() else "")
            )
        columns = (
            "experiment",
            "claims that hold",
            "placements",
            "per wall second",
            "per CPU second",
        )
        speed_of_all = f"Placements are claims that won. The target is {AIM:,} per wall second, {_speed_text(slow)}."
        head = f"{REPRODUCTION_PAGE_HEAD}\n{_table(columns, summary)}\n\n{speed_of_all}"
        document.write_text("\n\n".join([head, *parts]) + "\n", encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"the report of {results} cannot be written: {error}") from None
    return list(paths)


def _speed_text(slow: Sequence[str]) -> str:
    return f"which this run missed in: {', '.join(slow)}" if slow else "reached in all"


def _section(name: str, result: Mapping[str, Any], plot: str) -> str:
    lines = [
        f"## {name}",
        "",
        f"{result['title']}. `{_command(name, result)}`",
        "",
        f"Runs: {_used(result['runs'])}.",
    ]
    if name in NOTES:
        lines += ["", NOTES[name]]
    if plot:
        lines += ["", f"![{result['title']}]({plot})"]
    columns, figures = figures_of(result)
    if figures:
        lines += ["", _table(columns, figures)]
    rows = rows_of(result["claims"])
    if rows:
        lines += ["", _table(("claim", "paper", "ours", "tolerance", "holds"), rows)]
    return "\n".join(lines)


def _command(name: str, result: Mapping[str, Any]) -> str:
    """Return the command that reproduces a result."""
    options = [
        f" {flag_of(option)} {_shown(result['parameters'][option])}"
        for option in result["given"]
        if option in EXPERIMENTS[name].USES | {"seed"} and option != "trace"
    ]
    file = " FILE" if name in OF_TRACE else " --trace FILE" if "trace" in result["given"] else ""
    repeat = f" --repeat {result['repeat']}" if result["repeat"] > 1 else ""
    return f"parsync simulate {name}{file}{''.join(options)}{repeat}"


def _used(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the parameters of all runs; of one that differs, each value."""
    names = list(
        dict.fromkeys(
            name for run in runs.values() for name in run if name not in ("trace", "seed")
        )
    )
    values = {
        name: list(dict.fromkeys(_shown(run[name]) for run in runs.values() if name in run))
        for name in names
    }
    return "; ".join(f"{name} {', '.join(texts)}" for name, texts in values.items())


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, (str, int)) else f"{value:g}"


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
