"""The soft rules of the option `prefer`, made from the text of a kind."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from ...model.preferences import preferences_of
from .marks import (
    CheapPreference,
    ElsewherePreference,
    FreshPreference,
    LabelPreference,
    NearPreference,
    RankPreference,
    ScarcePreference,
    ScorePreference,
)
from .preference import Preference
from .rooms import PackPreference, SpreadPreference

_WORDS: Final[Mapping[str, Callable[[str], Preference]]] = {
    "pack": PackPreference,
    "spread": SpreadPreference,
    "cheap": lambda _: CheapPreference(),
    "fresh": lambda _: FreshPreference(),
    "score": lambda _: ScorePreference(),
    "near": NearPreference,
}
"""The classes of RULE_WORDS (model/preferences.py), made with the argument."""


SCARCE: Final = ScarcePreference()
FRESH: Final = FreshPreference()


@lru_cache(maxsize=4096)
def wishes_of(text: str) -> Sequence[Preference]:
    """Return the soft rules of a kind in their order. text: behind `prefer=`, '' for none."""
    rules = list[Preference]()
    for rule in preferences_of(text):
        if rule.rule == "label":
            rules.append(LabelPreference(rule.argument, rule.condition))
        elif rule.rule == "ranks":
            rules.append(RankPreference(rule.argument, rule.condition))
        else:
            rules.append(_WORDS[rule.rule](rule.argument))
    return tuple(rules)


def rules_of(text: str, latency: bool = False, last: str = "") -> Sequence[Preference]:
    """Return all soft rules by which nodes are ranked for a task, in their order.

    text: the task's own rules, behind `prefer=` in its kind.
    latency: fresh copies go before the task's own rules.
    last: the node that the task avoids, '' for none.
    """
    elsewhere = (ElsewherePreference(last),) if last else ()
    wishes = wishes_of(text)
    if latency and wishes:
        wishes = (FRESH, *(rule for rule in wishes if rule.name != FRESH.name))
    return (SCARCE, *elsewhere, *wishes)
