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
"""Rates that are tried one after the other, until one is not sustained, twice: others have the
machine as well.
"""

TRIES: Final = ("", "-again")
SLOTS: Final = 200_000
LOAD: Final = 0.95
"""The share of the slots that the tasks hold in the end: they hold them for as long as
that takes.
"""

RIVALS: Final = ("parsync", "state", "central", "queues")
TABLE_RATE: Final = 600
"""The load offered to all rivals: little enough for plain Celery's publisher, the slowest part of
them.
"""

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


def measure_all(keep: Path, again: bool, most: float, stop: threading.Event, say: Say) -> None:
    """Run every bench; each leaves a file with its command and its output."""
    keep.mkdir(parents=True, exist_ok=True)
    best = 0.0
    for rate in (rate for rate in LADDER if rate <= most):
        if not any(
            _keep(keep, f"ladder-{rate}{n}", _full(rate), again, stop, say)["sustained"]
            for n in TRIES
        ):
            break
        best = float(rate)
    if best:
        _keep(keep, "eased", _full(0.8 * best), again, stop, say)
        million = _placement(0.8 * best, ["--seconds", "20", "--slots", "1000000"])
        _keep(keep, "million", million, again, stop, say)
    for system in RIVALS:
        words = [
            *_placement(TABLE_RATE, ["--seconds", "12"]),
            "--system",
            system,
            "--slots",
            "4000",
        ]
        _keep(keep, f"rival-{system}", words, again, stop, say)
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
            again,
            stop,
            say,
        )
    for primaries in (1, 2):
        words = _placement(CLUSTER_RATE, ["--seconds", "20", "--primaries", f"{primaries}"])
        _keep(keep, f"primaries-{primaries}", words, again, stop, say)
    for name, words in RUNS.items():
        _keep(keep, name, words, again, stop, say)


def _placement(rate: float, more: Sequence[str]) -> list[str]:
    return ["placement", "--rate", f"{rate:g}", *more]


def _full(rate: float) -> list[str]:
    duration_s = LOAD * SLOTS / rate
    return _placement(
        rate, ["--seconds", f"{max(30, duration_s + 15):.4g}", "--duration", f"{duration_s:.4g}"]
    )


def _keep(
    keep: Path, name: str, words: list[str], again: bool, stop: threading.Event, say: Say
) -> dict[str, Any]:
    """Return a command's JSON output, from the file of an earlier run unless `again`."""
    path = keep / f"{name}.json"
    if again or not path.exists():
        say(f"{name}: parsync bench {' '.join(words)}")
        path.write_text(
            json.dumps({"command": words, "found": _run(words, stop)}, indent=1), encoding="utf-8"
        )
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["found"]
    return found


def _run(words: list[str], stop: threading.Event) -> dict[str, Any]:
    command = [sys.executable, "-m", "parsync_redis.cli", "bench", *words, "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    told: list[str] = []
    reader = threading.Thread(
        target=lambda: told.append(process.stdout.read() if process.stdout else "")
    )
    reader.start()
    while reader.is_alive():
        if stop.is_set():
            process.terminate()
            process.wait()
            raise Stopped
        time.sleep(0.1)
    if process.wait() not in (0, 1) or not told[0].strip():
        raise ServerUnreachable(
            f"parsync bench {' '.join(words)} ended with {process.returncode} and told nothing"
        )
    found: dict[str, Any] = json.loads(told[0])
    return found


def write_report(keep: Path, out: Path) -> None:
    """Write the document and its plots from the kept files."""
    runs = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(keep.glob("*.json"))
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(render(runs, out), encoding="utf-8")
