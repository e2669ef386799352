"""docs/replay-gpu.md: the results of all replays that a folder has, and how a trace is read."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from parsync_redis.errors import InvalidInput

from .replay import ReplayParameters

REPLAY_PAGE_HEAD: Final = """# Replay of a GPU cluster: Alibaba's nodes and pods of 2023

Made by `make replay TRACE=DIR`; do not edit. The trace is `cluster-trace-gpu-v2023` of
[alibaba/clusterdata](https://github.com/alibaba/clusterdata). It is not part of the project. The trace has
several lists of pods. This page is of `openb_node_list_all_node.csv` and `openb_pod_list_gpuspec33.csv`. `DIR` must
have exactly one file `openb_node_list*.csv` and exactly one `openb_pod_list*.csv`; each may also be `.csv.gz`.

Several schedulers of the product place the pods. Each has a view of its own, which the others outdate. Plans, rules and
commit are the product's own: in virtual time against the store in memory, with `--live` through the scripts of a real
server. Both make the same calls in the same order. If two replays have the same *decisions*, every pod has the same
node, slot and devices in both, and they were given in the same order.

The replay reads the trace as follows:

- **A node** offers `cpu`, `mem` and the label `gpu_model`, and its GPUs as devices `gpu@0`, `gpu@1`, ... All nodes have
  one score. A node with GPUs is protected: it takes only pods that ask for a GPU.
- **A pod** needs `cpu_milli` and `memory_mib`, and `gpu_milli` of one GPU or `num_gpu` whole GPUs. `gpu_spec` names the
  models that it accepts: `require={"gpu_model": [...]}`. Its phase and its class of service are not read.
- **Slots** never run out. A pod needs one, and a node has as many as the smallest pods of the trace could
  fill.
- **Pods stay** once they are placed, so the cluster fills up. With `--ends` a pod runs for the time from its creation
  to its deletion in the trace, and ends.
- **Time** runs 100,000 times faster than in the trace (`--speedup`), so that tens of pods arrive between two ticks and
  views are stale. To place a pod takes no time, but it waits for a tick. An ended pod frees its amounts at
  the next tick. So `--ends` is played with a smaller `--speedup`.
- **Strategy**: quality-first, which *adaptive* is while delays are short.

The GPU share is the share of all GPUs that placed pods hold. Its mean is over the trace's time, in which most pods come
late. Seconds were measured on a machine that did other work too.
"""

REPLAY_COLUMNS: Final = (
    "replay",
    "pods placed",
    "wait",
    "GPU share at the end",
    "most",
    "mean",
    "claims",
    "lost",
    "decisions",
    "seconds",
    "CPU seconds",
)
MODELS: Final = (
    "model",
    "GPUs",
    "asked for by pods that accept no other model",
    "held",
    "held by pods that accept others too",
)
REASONS: Final = ("pods wait", "accepted models", "nodes fit", "obstacle at the nearest node")


def write_page(results: Path, document: Path) -> list[str]:
    """Write the document, and the figures into a folder beside it; return the replays' names."""
    paths = {path.parent.name: path for path in sorted(results.glob("*/result.json"))}
    if not paths:
        raise InvalidInput(
            f"no results in {results}: parsync replay gpu DIR --out {results}/NAME makes them"
        )
    try:
        folder = document.with_suffix("")
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        parts = []
        for name, path in paths.items():
            result, speed = (
                json.loads(path.with_name(file).read_text("utf-8"))
                for file in ("result.json", "speed.json")
            )
            rows.append(_row(name, result, speed))
            for kind in ("png", "svg"):
                plot = path.with_name(f"replay-gpu.{kind}")
                if plot.exists():
                    shutil.copyfile(plot, folder / f"{name}.{kind}")
            parts.append(
                _section(
                    name,
                    result,
                    f"{folder.name}/{name}.png" if (folder / f"{name}.png").exists() else "",
                )
            )
        document.write_text(
            "\n\n".join([f"{REPLAY_PAGE_HEAD}\n{_table(REPLAY_COLUMNS, rows)}", *parts]) + "\n",
            encoding="utf-8",
        )
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"the report of {results} cannot be written: {error}") from None
    return list(paths)


def _row(name: str, result: Mapping[str, Any], speed: Mapping[str, Any]) -> tuple[str, ...]:
    share = result["gpu_share"]
    return (
        f"[{name}](#{name})",
        f"{result['placed']:,} of {result['trace']['pods']:,}",
        f"{result['waiting']:,}",
        *(f"{100 * share[moment]:.1f} %" for moment in ("last", "most", "mean")),
        f"{result['claims']:,}",
        f"{result['lost_claims']:,}",
        f"`{result['decisions']}`",
        f"{speed['wall_s']:g}",
        f"{speed['cpu_s']:g}",
    )


def _section(name: str, result: Mapping[str, Any], plot: str) -> str:
    trace = result["trace"]
    parameters = result["parameters"]
    lines = [
        f"## {name}",
        "",
        f"`{_command(result)}`",
        "",
        f"{trace['nodes']:,} nodes with {trace['gpus']:,} GPUs; {trace['pods']:,} pods, which ask "
        "for "
        f"{trace['gpus_asked']:,.1f} GPUs. {parameters['schedulers']} schedulers, {parameters['partitions']} "
        "partitions, "
        f"a gap of {parameters['gap_s']:g} s.",
    ]
    if "audit" in result:
        lines += [
            "",
            f"After it, an audit of the server's state found {len(result['audit'])} faults.",
        ]
    if plot:
        lines += ["", f"![GPU share of the replay {name}]({plot})"]
    uses = [use for use in result["models"] if use["held"]]
    if uses:
        lines += [
            "",
            "GPUs of each model at the end:",
            "",
            _table(MODELS, [_use(use) for use in uses]),
        ]
    if not result["reasons"]:
        return "\n".join([*lines, "", "No pod waits at the end."])
    rows = [
        (str(row["pods"]), row["models"] or "any", str(row["fitting"]), row["why"])
        for row in result["reasons"]
    ]
    whole = result["reasons"][0]["sentence"]
    lines += ["", "The most frequent reasons:", "", _table(REASONS, rows)]
    return "\n".join(
        [*lines, "", "A scheduler wrote this reason to pods of the first row:", "", f"> {whole}"]
    )


def _use(use: Mapping[str, Any]) -> list[str]:
    return [
        use["model"],
        f"{use['gpus']:,}",
        *(f"{use[name]:,.1f}" for name in ("asked", "held", "held_by_others")),
    ]


def _command(result: Mapping[str, Any]) -> str:
    """Return the command that reproduces a result."""
    usual = ReplayParameters()
    flags = ["--live"] if result["live"] else []
    flags += [f"--limit {result['trace']['limit']}"] if result["trace"]["limit"] else []
    for field in fields(ReplayParameters):
        value = result["parameters"][field.name]
        if value != getattr(usual, field.name):
            flag = "--" + field.name.removesuffix("_s")
            flags.append(flag if value is True else f"{flag} {value:g}")
    return " ".join(["parsync replay gpu DIR", *flags])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---" for _ in columns], *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
