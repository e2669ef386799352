"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """Where (a script, or module:Class.method), what stands there, what the mutant has instead.

    shards: more than 1 to hunt it on several primaries. harmless: '' or which other fence makes up
    for it, so that no schedule finds it. found_by: '' or a test that finds it by itself;
    test_mutants.py shows that it does.
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
