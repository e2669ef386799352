"""The description of a planted bug."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug: where (a script, or module:Class.method), the right text, and the wrong text.

    shards: more than 1 to hunt the bug on several primaries.
    harmless: '', or the other check that makes up for the bug, so that no schedule finds it.
    found_by: '', or a test that finds the bug by itself, as test_mutants.py shows.
    """

    name: str
    where: str
    old: str
    new: str
    shards: int = 1
    harmless: str = ""
    found_by: str = ""

    @property
    def in_lua(self) -> bool:
        """Return whether it is a change of a script."""
        return ":" not in self.where
