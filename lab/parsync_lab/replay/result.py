"""The result of a replay: result.json, speed.json and the figure."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from parsync_redis import __version__
from parsync_redis.errors import InvalidInput
from parsync_redis.inspect.audit import audit
from parsync_redis.model.amount import THOUSANDTHS

from ..bench.watch import Say
from ..simulate.plots import line, new_figure, save
from ..simulate.runs import tidy
from .gpu_trace import GpuTrace
from .live import live_store
from .models import use_of_models
from .reasons import MOST_REASONS, count_reasons
from .records import DAY_S
from .replay import Replay, ReplayParameters
from .timeline import Timeline
from .virtual_store import VirtualStore

POINTS: Final = 400
"""Points of a curve."""

REPLAY_TITLE: Final = "Alibaba's GPU nodes and pods of 2023, replayed"


@dataclass(slots=True)
class ReplayOutcome:
    """The result of a replay: the content of result.json, and how long it took."""

    result: dict[str, Any]
    wall_s: float
    cpu_s: float


def replay_gpu(
    trace: GpuTrace,
    parameters: ReplayParameters,
    live: bool,
    url: str | None,
    say: Say = lambda text: None,
) -> ReplayOutcome:
    """Replay a trace in virtual time.

    live: through the scripts of the server at `url`, or of a server started for the replay.
    """
    if not trace.pods:
        raise InvalidInput("there is no pod to replay: --limit must be at least 1")
    begun = time.monotonic(), time.process_time()
    with live_store(url, parameters) if live else nullcontext(VirtualStore("replay")) as store:
        replay = Replay(trace, store, parameters)
        timeline = replay.run(say)
        say("the pods that wait are explained")
        result = {
            "trace": _of_trace(trace),
            "version": __version__,
            "live": live,
            "parameters": asdict(parameters),
            **_figures(trace, timeline),
            "claims": sum(core.counters.claims for core in replay.cores),
            "lost_claims": sum(core.counters.conflicts for core in replay.cores),
            "ticks": replay.ticks,
            "models": [asdict(use) for use in use_of_models(trace, timeline)],
            "reasons": [asdict(reason) for reason in count_reasons(replay.cores[0])[:MOST_REASONS]],
            **({"audit": audit(store)} if live else {}),
        }
    return ReplayOutcome(result, time.monotonic() - begun[0], time.process_time() - begun[1])


def _of_trace(trace: GpuTrace) -> dict[str, Any]:
    asked_milli = sum(pod.gpu_milli for pod in trace.pods)
    return {
        "nodes": len(trace.nodes),
        "gpus": trace.gpu_milli // THOUSANDTHS,
        "pods": len(trace.pods),
        "gpus_asked": asked_milli / THOUSANDTHS,
        "limit": trace.limit,
    }


def _figures(trace: GpuTrace, timeline: Timeline) -> dict[str, Any]:
    steps = [*timeline.arrived.steps, *timeline.used.steps]
    first_s = min(at_s for at_s, _ in steps)
    end_s = max(at_s for at_s, _ in steps)
    arrivals = sorted(at_s for at_s, _ in timeline.arrived.steps)
    pods_a_point = max(1, len(arrivals) // POINTS)
    times_s = [first_s + (end_s - first_s) * point / POINTS for point in range(POINTS + 1)]
    total = trace.gpu_milli or 1
    last_s = max(end_s, *(at_s for at_s, _ in timeline.placed.steps or [(0.0, 0)]))
    return {
        "placed": len(timeline.places),
        "waiting": len(trace.pods) - len(timeline.places),
        "gpu_share": {
            "mean": tidy(timeline.used.mean(end_s) / total),
            "most": tidy(timeline.used.most / total),
            "last": tidy(timeline.used.values_at([last_s])[0] / total),
        },
        "decisions": sha256(repr(timeline.decisions()).encode()).hexdigest()[:16],
        "over_time": _table(timeline, times_s, total),
        "over_pods": _table(timeline, [*arrivals[pods_a_point - 1 :: pods_a_point], last_s], total),
    }


def _table(timeline: Timeline, times_s: Sequence[float], total: int) -> dict[str, list[Any]]:
    return {
        "time_s": [tidy(at_s) for at_s in times_s],
        "arrived": timeline.arrived.values_at(times_s),
        "placed": timeline.placed.values_at(times_s),
        "gpu_asked": [tidy(level / total) for level in timeline.requested.values_at(times_s)],
        "gpu_used": [tidy(level / total) for level in timeline.used.values_at(times_s)],
    }


def as_json(result: Mapping[str, Any]) -> str:
    """Render result.json; equal results give equal text."""
    return json.dumps(result, indent=1, allow_nan=False)


def write_result(outcome: ReplayOutcome, folder: Path, plots: bool) -> list[Path]:
    """Write result.json, speed.json and, with `plots`, the figure; create the folder if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "result.json"
        path.write_text(as_json(outcome.result) + "\n", encoding="utf-8")
        speed = {"wall_s": round(outcome.wall_s, 1), "cpu_s": round(outcome.cpu_s, 1)}
        (folder / "speed.json").write_text(json.dumps(speed) + "\n", encoding="utf-8")
        return [path, *(draw(outcome.result, folder) if plots else [])]
    except OSError as error:
        raise InvalidInput(f"--out {folder} cannot be written: {error.strerror or error}") from None


def draw(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the shares of GPUs that pods hold and asked for, over time and over the arrived pods."""
    figure = new_figure()
    figure.set_size_inches(11, 4)
    left_axes, right_axes = figure.subplots(1, 2)
    over_time = result["over_time"]
    over_pods = result["over_pods"]
    _draw_one(left_axes, over_time, [at_s / DAY_S for at_s in over_time["time_s"]], result)
    _draw_one(right_axes, over_pods, over_pods["arrived"], result)
    left_axes.set_xlabel("time in the trace, days")
    right_axes.set_xlabel("pods that have arrived")
    return save(figure, REPLAY_TITLE, folder, "replay-gpu")


def _draw_one(
    axes: Any, table: Mapping[str, Any], xs: Sequence[float], result: Mapping[str, Any]
) -> None:
    if not result["parameters"]["ends"]:
        line(
            axes,
            [100 * share for share in table["gpu_asked"]],
            "asked for by all pods so far",
            "tab:gray",
            ":",
            xs,
        )
    line(
        axes,
        [100 * share for share in table["gpu_used"]],
        "held by placed pods",
        "tab:blue",
        "-",
        xs,
    )
    axes.set_ylabel("share of all GPUs, %")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, framealpha=0.8)
