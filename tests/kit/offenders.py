"""A test of many pages, scripts or files is one test for its rule, and fails with every
offender.
"""

from collections.abc import Iterable

import pytest


def none_wrong(rule: str, offenders: Iterable[object]) -> None:
    """Fail if there are offenders, with the rule and each of them on a line."""
    lines = [str(offender) for offender in offenders]
    if lines:
        pytest.fail("\n  ".join([f"{rule}; {len(lines)} wrong:", *lines]), pytrace=False)
