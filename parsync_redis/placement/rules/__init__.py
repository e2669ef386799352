"""The hard rules: which nodes could hold a task if they were empty, in the order of judgement."""

from collections.abc import Sequence
from typing import Final

from .capacity import AmountsRule, SlotsRule
from .devices import ProtectionRule
from .labels import LabelsRule, TaintsRule
from .rule import Rule

PLACEMENT_RULES: Final[Sequence[Rule]] = (
    SlotsRule(),
    AmountsRule(),
    LabelsRule(),
    TaintsRule(),
    ProtectionRule(),
)
"""All rules. A new rule is a class here and a function in lua/lib/kind/fits.lua or its includes.

The function `fits`, the view, submit and all reasons follow from this list.
"""
