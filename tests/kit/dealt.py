"""Deals the cases of a large matrix to the server programs: each case runs on one of them, not on
each.

What a script does with a damage or an argument is the same on each server. What differs between
servers (types, errors, encodings) is in other tests, which run on each. The thorough profile runs
each case on each server.
"""

import os
from collections import defaultdict
from zlib import crc32

import pytest

SERVERS = ("server_kind", "guarded")
"""The parameters that name a server program."""

MARK = "dealt: a matrix whose cases are dealt to the server programs (tests/kit/dealt.py)"


def deal(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave one of the servers for each case of a test that is marked as `dealt`; a case that is
    alone stays.
    """
    if os.environ.get("PARSYNC_TEST_PROFILE") == "thorough":
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("dealt"):
            params = item.callspec.params  # type: ignore[attr-defined]
            kind = next(params[name] for name in SERVERS if name in params)
            cases[item.nodeid.replace(kind, "", 1)].append(item)
    left_out = {
        id(item)
        for case, same in cases.items()
        for item in same
        if item is not same[crc32(case.encode()) % len(same)]
    }
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]
