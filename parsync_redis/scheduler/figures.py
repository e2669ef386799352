"""The figures that a scheduler reports of itself, for people and metrics: they go with each renewal."""

import os
from dataclasses import asdict

from ..model.views import DELAYS, WAITS
from .core import Core
from .membership import Stats


def first_figures() -> Stats:
    """Return the figures of a scheduler that has not turned yet: their age tells when it renewed."""
    return {"pid": os.getpid()}


def figures_of(core: Core, now_s: float) -> Stats:
    """Return the figures of a scheduler."""
    return {
        "strategy": core.selector.strategy,
        "selector": core.selector.resolve(""),
        "delay_ms": round(core.selector.delay_s * 1e3, 1),
        "in_flight": core.in_flight,
        "free": core.view.free_count,
        **core.view.age_figures(now_s),
        **first_figures(),
        **asdict(core.counters),
        DELAYS: core.waits.all.text,
        WAITS: core.waits.text,
    }
