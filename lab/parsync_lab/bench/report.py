"""Run every bench, keep its output, and write docs/performance.md from the outputs."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from parsync_lab import Stopped
from parsync_redis.errors import ServerUnreachable

from .placement import Say
from .tables import render

LADDER: Final = (8_000, 10_000, 12_000, 14_000, 16_000, 18_000, 20_000, 24_000, 30_000, 38_000)
"""The rates to try in turn, until a rate twice fails: other users share the machine."""

RUN_SUFFIXES: Final = ("", "-again")
LADDER_SLOTS: Final = 200_000
LADDER_LOAD: Final = 0.95
"""The share of the slots that tasks hold at the end; the duration of a task follows from it."""

RIVALS: Final = ("parsync", "state", "central", "queues")
TABLE_RATE: Final = 600
"""The load of all rivals: low enough for plain Celery's publisher, their slowest part."""

KINDS_RATE: Final = 2_000
CLUSTER_RATE: Final = 2_000
_CLUSTER_COST: Final = [
    "cost",
    "--primaries",
    "4",
    "--shards",
    "16",
    "--tasks",
    "1600",
    "--rounds",
    "3",
]
RUNS: Final[dict[str, list[str]]] = {
    "read": ["read"],
    "submit": ["submit"],
    "cost": ["cost"],
    "cluster-cost": _CLUSTER_COST,
    "cluster-mixed": [*_CLUSTER_COST, "--mixed"],
    "memory": ["memory"],
    "idle": ["idle"],
    "queue": ["queue", "--waiting", "1000000"],
    "scale": ["scale", "--seconds", "6"],
    "celery": ["celery", "--rounds", "3"],
}


def measure_all(
    keep: Path, measure_anew: bool, highest_rate: float, stop: threading.Event, say: Say
) -> None:
    """Run every bench; each writes a file with its command and its output."""
    keep.mkdir(parents=True, exist_ok=True)
    best = 0.0
    for rate in (rate for rate in LADDER if rate <= highest_rate):
        if not any(
            _keep(keep, f"ladder-{rate}{n}", _full(rate), measure_anew, stop, say)["sustained"]
            for n in RUN_SUFFIXES
        ):
            break
        best = float(rate)
    if best:
        _keep(keep, "eased", _full(0.8 * best), measure_anew, stop, say)
        million = _placement(0.8 * best, ["--seconds", "20", "--slots", "1000000"])
        _keep(keep, "million", million, measure_anew, stop, say)
    for system in RIVALS:
        words = [
            *_placement(TABLE_RATE, ["--seconds", "12"]),
            "--system",
            system,
            "--slots",
            "4000",
        ]
        _keep(keep, f"rival-{system}", words, measure_anew, stop, say)
    for system in ("parsync", "central"):
        words = [
            *_placement(KINDS_RATE, ["--seconds", "20"]),
            "--system",
            system,
            "--slots",
            "40000",
            "--kinds",
            "50",
        ]
        _keep(
            keep,
            f"kinds-{system}",
            [*words, "--node-slots", "4", "--duration", "15"],
            measure_anew,
            stop,
            say,
        )
    for primaries in (1, 2):
        words = _placement(CLUSTER_RATE, ["--seconds", "20", "--primaries", f"{primaries}"])
        _keep(keep, f"primaries-{primaries}", words, measure_anew, stop, say)
    for name, words in RUNS.items():
        _keep(keep, name, words, measure_anew, stop, say)


def _placement(rate: float, options: Sequence[str]) -> list[str]:
    return ["placement", "--rate", f"{rate:g}", *options]


def _full(rate: float) -> list[str]:
    duration_s = LADDER_LOAD * LADDER_SLOTS / rate
    return _placement(
        rate, ["--seconds", f"{max(30, duration_s + 15):.4g}", "--duration", f"{duration_s:.4g}"]
    )


def _keep(
    keep: Path, name: str, words: list[str], measure_anew: bool, stop: threading.Event, say: Say
) -> dict[str, Any]:
    """Return a command's JSON output, from the file of an earlier run unless `measure_anew`."""
    path = keep / f"{name}.json"
    if measure_anew or not path.exists():
        say(f"{name}: parsync bench {' '.join(words)}")
        path.write_text(
            json.dumps({"command": words, "found": _run(words, stop)}, indent=1), encoding="utf-8"
        )
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["found"]
    return figures


def _run(words: list[str], stop: threading.Event) -> dict[str, Any]:
    command = [sys.executable, "-m", "parsync_redis.cli", "bench", *words, "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    outputs: list[str] = []
    reader = threading.Thread(
        target=lambda: outputs.append(process.stdout.read() if process.stdout else "")
    )
    reader.start()
    while reader.is_alive():
        if stop.is_set():
            process.terminate()
            process.wait()
            raise Stopped
        time.sleep(0.1)
    if process.wait() not in (0, 1) or not outputs[0].strip():
        raise ServerUnreachable(
            f"parsync bench {' '.join(words)} ended with {process.returncode} and told nothing"
        )
    figures: dict[str, Any] = json.loads(outputs[0])
    return figures


def write_report(keep: Path, out: Path) -> None:
    """Write the document and its plots from the kept files."""
    runs = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(keep.glob("*.json"))
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(render(runs, out), encoding="utf-8")
