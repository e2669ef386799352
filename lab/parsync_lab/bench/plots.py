"""The plots of docs/performance.md."""

from pathlib import Path

from ..simulate.plots import finish_axes, line, new_figure, save
from .markdown import Runs, rungs_of


def draw_plots(runs: Runs, folder: Path) -> list[str]:
    """Rate and delay along the ladder; costs along the scale."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    rungs = [run["found"] for run in rungs_of(runs)]
    if rungs:
        figure = new_figure()
        left, right = figure.subplots(1, 2)
        offered = [found["offered_per_s"] for found in rungs]
        line(
            left, [found["placed_per_s"] for found in rungs], "placed/s", "tab:blue", "o-", offered
        )
        line(left, offered, "offered/s", "tab:gray", "--", offered)
        for name, colour in (("p50", "tab:green"), ("p99", "tab:red")):
            line(
                right,
                [found["delay_ms"][name] for found in rungs],
                f"delay {name}, ms",
                colour,
                "o-",
                offered,
            )
        right.set_yscale("log")
        for axes in (left, right):
            axes.set_xlabel("offered, tasks/s")
        finish_axes(left, right)
        save(figure, "20 schedulers, 200,000 slots", folder, "rates")
        made.append("rates")
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
        made.append("scale")
    return made
