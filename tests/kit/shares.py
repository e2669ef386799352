"""The way in which pytest-xdist deals the tests to its workers, for `--dist loadgroup`.

A file that has a mark or a fixture of `WHOLE` in its own text goes to one worker, which runs its
tests in their order. Such files come first, beginning with the file that has the most tests: these
tests wait more than they compute, so other tests run meanwhile. The tests of all other files are
dealt one by one, and fill the end.
"""

from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

WHOLE = ("pytest.mark.serial", 'scope="module"', 'scope="session"')
"""A file that has one of these words goes to one worker."""


class Shares(LoadScopeScheduling):
    """Deals tests; a scope is what one worker gets at once."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid, self.config.rootpath)


def scope_of(nodeid: str, root: Path) -> str:
    """Return the file of a test if its tests stay together, else the test."""
    file = nodeid.partition("::")[0]
    return file if is_whole(root / file) else nodeid


@cache
def is_whole(file: Path) -> bool:
    """Return whether the tests of a file stay together."""
    text = file.read_text(encoding="utf-8")
    return any(word in text for word in WHOLE)


def make_scheduler(config: Any, log: Any) -> Shares | None:
    """Return what deals the tests, or None for pytest-xdist's own."""
    return Shares(config, log) if config.getvalue("dist") == "loadgroup" else None
