"""How tests wait: for a fact, not for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(fact: Callable[[], T], what: str = "", patience_s: float = 180.0) -> T:
    """Wait for a fact and return it; fail if it does not come."""
    deadline_s = time.monotonic() + patience_s
    while not (found := fact()):
        assert time.monotonic() < deadline_s, f"not seen within {patience_s:g} s: {what or fact.__doc__ or fact}"
        time.sleep(0.01)
    return found
