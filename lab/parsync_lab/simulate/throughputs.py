"""How fast tasks of each name run on each node class: read from a file, or drawn.

The file is Gavel's table of throughputs (Narayanan et al., OSDI 2020), as its authors publish it:
`simulation_throughputs.json`, steps a second by GPU type, by job type and number of GPUs.
"""

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from parsync_redis.errors import InvalidInput

GPU_CLASSES: Final = ("k80", "p100", "v100")
"""The GPU types of the table, the one with the least score first."""
STANDIN_NAMES: Final = 26
_JOB: Final = re.compile(r"\('(.+)', 1\)")

Throughputs = Mapping[str, tuple[float, ...]]
"""Steps a second by name, on each of GPU_CLASSES."""


def read_throughputs(path: Path) -> Throughputs:
    """Return the throughputs of the job types on one GPU; raises InvalidInput."""
    try:
        open_file = gzip.open if path.suffix == ".gz" else open
        with open_file(path, "rt", encoding="utf-8") as file:
            table = json.load(file)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InvalidInput(f"trace {path} cannot be read: {error}") from None
    try:
        throughputs = {
            _name(match[1]): tuple(float(table[gpu][job]["null"]) for gpu in GPU_CLASSES)
            for job in table[GPU_CLASSES[0]]
            if (match := _JOB.fullmatch(job))
        }
    except (KeyError, TypeError, ValueError):
        throughputs = {}
    if not throughputs or any(min(steps) <= 0 for steps in throughputs.values()):
        raise InvalidInput(
            f"trace {path} is not a table of throughputs: it must have steps a second above 0 by "
            f"GPU type ({', '.join(GPU_CLASSES)}) and job type, as Gavel publishes them"
        )
    return throughputs


def _name(job: str) -> str:
    """Return the name of the tasks of a job type: 'ResNet-18-batch-size-16'."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", job).strip("-")


def draw_throughputs(rng: np.random.Generator) -> Throughputs:
    """Return a table that stands in for the file: some names gain much by faster GPUs, some little.

    A P100 has 1 to 10 times, and a V100 0.5 to 2 times of that, the throughput of a K80.
    """
    gains = 10 ** rng.uniform(0, 1, STANDIN_NAMES)
    factors = 2 ** rng.uniform(-1, 1, STANDIN_NAMES)
    return {
        f"kind-{number}": (1.0, float(gain), float(gain * factor))
        for number, (gain, factor) in enumerate(zip(gains, factors, strict=True))
    }


def least_makespan_s(work_s: Mapping[str, float], speeds: Throughputs, slots: Any) -> float:
    """Return a time (s) in which no scheduler could do more than this work: a lower bound.

    It is the optimum of a linear program (how much of each name's work is done on each class), by
    its dual: prices of the classes, the best of a grid. Any prices give a lower bound.

    work_s: by name, the time at speed 1. speeds: by name, of each class. slots: of each class.
    """
    shares = np.linspace(0.0, 1.0, 101)
    first, second = (axis.ravel() for axis in np.meshgrid(shares, shares))
    below = first + second <= 1.0
    parts = np.stack([first[below], second[below], 1.0 - first[below] - second[below]])
    prices = parts / np.array(slots, dtype=float)[:, None]
    least = sum(
        seconds * np.min(prices / np.array(speeds[name])[:, None], axis=0)
        for name, seconds in work_s.items()
    )
    return float(np.max(least))
