"""Choose the cases that run, and judge answers: the same as plain Celery's, or declared to differ
and different.
"""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from .app import PARSYNC, PLAIN
from .case import Case
from .cases import CASES
from .rig import CELERY

Answers = Mapping[str, Mapping[str, "Future[Any]"]]
SHORT = bool(os.environ.get("PARITY_SHORT"))
ANSWER_S = 600
"""Seconds for which a test waits for the answer of its case.

All cases of a module are asked at once.
"""


def these(pool: str) -> list[Case]:
    """Return the cases for a pool and the installed version of Celery."""
    return [
        case
        for case in CASES
        if pool in case.pools and case.since <= CELERY and (case.short or not SHORT)
    ]


def selected(items: Iterable[Any], module: str) -> list[Case]:
    """Return the cases of the tests that pytest will run."""
    return [item.callspec.params["case"] for item in items if item.module.__name__ == module]


def check(case: Case, answers: Mapping[str, "Future[Any]"], pool: str) -> None:
    """Fail if the answers differ and no difference is declared, or if a declared difference is not there."""
    plain = answers[PLAIN].result(ANSWER_S)[0]
    parsync = answers[PARSYNC].result(ANSWER_S)[0]
    said = f"\nplain Celery: {plain}\nwith parsync: {parsync}"
    if case.differs and pool in case.differs_on:
        assert plain != parsync, f"the difference is gone: take {case.differs!r} away{said}"
    else:
        assert plain == parsync, f"the answers differ{said}"
        assert "the case raised" not in str(plain), f"the case itself is wrong{said}"
