"""The rules [place] of the settings file, which place tasks without own options."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

CELERYS_OWN: Final = "celery."


class Rules:
    """Rules by task name.

    A rule by name takes precedence over patterns. Of the patterns that match, the first in the file
    counts. A pattern does not match Celery's own tasks (chord_unlock, backend_cleanup): a rule must
    name them.
    """

    def __init__(self, rules: Mapping[str, object]) -> None:
        self._rules = rules
        self._found: dict[str, object] = {}

    def of(self, name: str) -> object:
        """Return the rule for a task: options, True or False; None if there is none."""
        if not self._rules:
            return None
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> object:
        if name in self._rules or name.startswith(CELERYS_OWN):
            return self._rules.get(name)
        return next(
            (rule for pattern, rule in self._rules.items() if fnmatchcase(name, pattern)), None
        )
