"""What a rule is: one hard condition on a task's needs and a node that is empty, in all its forms.

Rules are the validators of Protean (Hadary et al., OSDI 2020): a node that fails one is no
candidate. They are judged in the order of RULES, and each can say why it turned nodes away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ...model.needs import Resources

if TYPE_CHECKING:
    from ..columns import Columns, Mask


class Rule(ABC):
    """A hard rule. All forms of a rule say the same; tests/model/test_rules.py compares them.

    name: for people. reads: what it reads of the needs and of the offer. lua: the function that
    judges the same in scripts, `lua(offer, needs)` of lua/lib/kind/fits.lua.
    """

    name: ClassVar[str]
    reads: ClassVar[str]
    lua: ClassVar[str]

    @abstractmethod
    def concerns(self, needs: Resources) -> bool:
        """Return whether the rule could turn a node away; others need not be judged."""

    @abstractmethod
    def admits(self, offer: Resources, needs: Resources) -> bool:
        """Return whether one node passes: the definition."""

    @abstractmethod
    def mask(self, columns: Columns, needs: Resources) -> Mask:
        """Return which of many nodes pass."""

    @abstractmethod
    def lacking(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Return what a node lacks, each as 'slots=4 (has 2)'; nothing if it passes."""

    @abstractmethod
    def nowhere(self, needs: Resources, offers: Mapping[str, Resources]) -> Sequence[str]:
        """Return a sentence for each need that no node of `offers` (node -> offer) meets, with the
        most there is.
        """


def there_are(what: str, names: Sequence[str]) -> str:
    """Return which of some things there are, for the end of a sentence."""
    return f"there are {what} {', '.join(names)}" if names else f"there are no {what}"
