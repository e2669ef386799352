"""Helpers for plots, and their files.

matplotlib is an extra: `pip install 'parsync-lab[simulate]'`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from parsync_redis.errors import InvalidInput

COLOURS: Final = {
    "A": "tab:red",
    "B": "tab:blue",
    "latency": "tab:blue",
    "adaptive": "tab:green",
    "quality": "tab:orange",
    "quality-partition": "tab:brown",
    "statesync": "tab:red",
}


def new_figure() -> Any:
    """Make an empty figure; raise InvalidInput if matplotlib is not installed."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInput(
            "plots need matplotlib: pip install 'parsync-lab[simulate]', or go without by "
            "--no-plots"
        ) from None
    mpl.rcParams["svg.hashsalt"] = "parsync"  # equal plots are equal files
    mpl.rcParams["font.size"] = 9
    return Figure(layout="constrained", dpi=110)


def save(figure: Any, title: str, folder: Path, name: str) -> list[Path]:
    """Write NAME.png and NAME.svg."""
    figure.suptitle(title, fontsize=11)
    files = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        path = folder / f"{name}.{kind}"
        figure.savefig(path, metadata=metadata)
        files.append(path)
    return files


def line(
    axes: Any,
    values: Sequence[float | None],
    label: str,
    colour: str,
    style: str = "-",
    xs: Sequence[float] = (),
) -> None:
    """Draw a line of values, one per second unless `xs` is given; None is a gap."""
    positions = list(xs) or list(range(len(values)))
    axes.plot(
        positions,
        [float("nan") if value is None else value for value in values],
        style,
        label=label,
        color=colour,
        linewidth=1.3,
    )


def finish_axes(*axes: Any) -> None:
    """Add a small legend if there are several lines."""
    for axis in axes:
        axis.legend(fontsize=7, framealpha=0.8)


def draw_bars(
    axes: Any,
    labels: Sequence[str],
    values: Sequence[float],
    colour: str,
    offset: float,
    label: str,
) -> None:
    """Draw a group of bars at `offset` from the middle of each label."""
    axes.bar(
        [i + offset for i in range(len(labels))], values, width=0.38, label=label, color=colour
    )
    axes.set_xticks(range(len(labels)), labels, fontsize=7)


Draw = Callable[[Any], None]
