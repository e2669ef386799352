"""Pauses between tries."""

import random
from collections.abc import Iterator


def growing(first_s: float, longest_s: float) -> Iterator[float]:
    """Give seconds with jitter, without end: each time up to twice as many, up to the longest."""
    pause_s = first_s
    while True:
        yield random.uniform(0.5, 1.0) * pause_s
        pause_s = min(longest_s, 2 * pause_s)
