"""The rule: one hard condition on a task's needs and an empty node, in all its forms.

Rules are the validators of Protean (Hadary et al., OSDI 2020): a node that fails one is no
candidate. The rules are judged in the order of PLACEMENT_RULES. Each rule can say why it turned
nodes away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ...model.needs import Resources

if TYPE_CHECKING:
    from ..columns import Columns, Mask


class Rule(ABC):
    """A hard rule. All its forms say the same; tests/store/model/test_rules.py compares them.

    name: for people.
    reads: the parts of needs and offer that the rule reads.
    lua: the function that judges the same in scripts, `lua(offer, needs)` in lua/lib/kind/fits.lua.
    """

    name: ClassVar[str]
    reads: ClassVar[str]
    lua: ClassVar[str]

    @abstractmethod
    def concerns(self, needs: Resources) -> bool:
        """Return whether the rule could turn a node away; if not, it need not be judged."""

    @abstractmethod
    def admits(self, offer: Resources, needs: Resources) -> bool:
        """Return whether an empty node with this offer passes. This form defines the rule."""

    @abstractmethod
    def mask(self, columns: Columns, needs: Resources) -> Mask:
        """Return which of many nodes pass."""

    @abstractmethod
    def lacking(self, needs: Resources, offer: Resources) -> Sequence[str]:
        """Return what a node lacks, each as 'slots=4 (has 2)'; nothing if the node passes."""

    @abstractmethod
    def nowhere(self, needs: Resources, offers: Mapping[str, Resources]) -> Sequence[str]:
        """Return a sentence for each need that no node meets, with the most there is.

        offers: by node, what it has when it is empty.
        """


def there_are(plural: str, names: Sequence[str]) -> str:
    """Return which things exist, as the end of a sentence. plural: what the things are."""
    return f"there are {plural} {', '.join(names)}" if names else f"there are no {plural}"
