"""The plots of docs/performance.md."""

from pathlib import Path

from ..simulate.plots import finish_axes, line, new_figure, save
from .markdown import BenchRuns, rungs_of


def draw_plots(runs: BenchRuns, folder: Path) -> list[str]:
    """Draw rate and delay along the ladder, and costs along the scale; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    rungs = [run["found"] for run in rungs_of(runs)]
    if rungs:
        figure = new_figure()
        left_axes, right_axes = figure.subplots(1, 2)
        offered = [figures["offered_per_s"] for figures in rungs]
        line(
            left_axes,
            [figures["placed_per_s"] for figures in rungs],
            "placed/s",
            "tab:blue",
            "o-",
            offered,
        )
        line(left_axes, offered, "offered/s", "tab:gray", "--", offered)
        for name, colour in (("p50", "tab:green"), ("p99", "tab:red")):
            line(
                right_axes,
                [figures["delay_ms"][name] for figures in rungs],
                f"delay {name}, ms",
                colour,
                "o-",
                offered,
            )
        right_axes.set_yscale("log")
        for axes in (left_axes, right_axes):
            axes.set_xlabel("offered, tasks/s")
        finish_axes(left_axes, right_axes)
        save(figure, "20 schedulers, 200,000 slots", folder, "rates")
        files.append("rates")
    if "scale" in runs:
        figure = new_figure()
        for axes, by in zip(figure.subplots(1, 2), ("slots", "schedulers"), strict=True):
            rows = runs["scale"]["found"][f"by_{by}"]
            xs = [row[by] for row in rows]
            line(
                axes, [row["redis_us_per_placement"] for row in rows], "Redis", "tab:red", "o-", xs
            )
            line(
                axes,
                [row["us_per_placement"]["schedulers"] for row in rows],
                "schedulers",
                "tab:blue",
                "o-",
                xs,
            )
            axes.set_xlabel(by)
            axes.set_ylabel("CPU us a placement")
            axes.set_ylim(bottom=0)
            if by == "slots":
                axes.set_xscale("log")
            finish_axes(axes)
        save(figure, "What a placement costs", folder, "scale")
        files.append("scale")
    return files
