"""The option `prefer`: soft rules, in order, by which a task's nodes are ranked.

    prefer=warm=llama,zone:a,pack=gpu,score

The first rule outweighs all later rules together. A rule puts each node into a bucket, 0 the best;
nodes of one bucket are equal, and the next rule decides among them (placement/preferences/). A
rule is one of the words of RULE_WORDS, which may have an argument behind `=`, or a label with a
condition (model/condition.py), or a label with ranked values, `zone:a=0|b=2`: a node with another
value has the last bucket. The text behind `prefer=` is a word of the kind, and what Redis stores.
`near=ID` is never stored: submit replaces it by the node of that task (model/near.py).
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from ..errors import InvalidInput
from .account import KEY_MARK, Account
from .condition import (
    MAX_DIGITS,
    OPERATORS,
    conditions_of,
    is_condition,
    read_condition,
    written,
)
from .ids import check_name, close_to, encode_id, is_name, shown
from .limits import MAX_WORDS
from .near import NEAR_LABEL, anchors_of
from .needs import refuse_reserved

MAX_PREFERENCES: Final = 6
"""The maximum number of rules of one task."""
MAX_RULES_TEXT: Final = 8_000
"""Maximum number of characters of the text: no preferences that are given are longer.

lua/lib/task/line_check.lua has the same bound.
"""
MAX_RANK: Final = 9
"""The worst rank that a value of a label may be given; nodes without a ranked value come behind."""

RULE_WORDS: Final[Mapping[str, str]] = {
    "pack": "resource name",
    "spread": "label name",
    "cheap": "",
    "fast": "",
    "fresh": "",
    "score": "",
    "stable": "",
    "warm": "key",
    "near": "task id",
}
"""Each rule, and what its argument is: a noun of `check_name`, or a task id; '' for a rule without
one."""

_RANKED_VALUES: Final = re.compile(r"[\w./-]{1,63}=\d(?:\|[\w./-]{1,63}=\d)*", re.ASCII)
_WRITTEN_RANKS: Final = re.compile(r"([^:=\s]+):([^:=,\s]+=\d+(?:,[^:=,\s]+=\d+)*)", re.ASCII)
"""Ranked values of a label as people write them, `zone:a=0,b=2`."""
_TEXT: Final = re.compile(r"[\w.:=|!<>*/%@+-]+(?:,[\w.:=|!<>*/%@+-]+)*", re.ASCII)
"""The text of preferences; lua/lib/task/line_check.lua has the same pattern."""
_NO_KEY: Final = re.compile(r"[^A-Za-z0-9_.:@+/-]")
_WARM: Final = re.compile(r"(?<![^,])warm(?:=([^,]*))?(?![^,])")
"""The rule `warm` in the text of preferences, and its key."""


class SoftRule(NamedTuple):
    """One rule of a task, as the text of its kind has it.

    rule: a word of RULE_WORDS; 'label' for a condition, 'ranks' for ranked values.
    argument: of a word, '' for none; the name of a node for 'near'; else the name of the label.
    condition: of the label, or the ranks of its values, 'a=0|b=2'.
    """

    rule: str
    argument: str = ""
    condition: str = ""


def are_preferences(text: str) -> bool:
    """Return whether a text may stand behind `prefer=` in a kind."""
    if len(text) > MAX_RULES_TEXT or _TEXT.fullmatch(text) is None:
        return False
    keys = [warm[1] for warm in _WARM.finditer(text) if warm[1] is not None]
    return len(keys) <= 1 and all(is_name("key", key) for key in keys)


def key_of(name: str) -> str:
    """Return the key that `warm` without a key stands for, from the name of the task.

    Characters that no key has become `-`. A name that is too long, or does not begin with a letter
    or a digit, becomes `x` and its last 127 characters.
    """
    key = _NO_KEY.sub("-", name)
    return key if is_name("key", key) else f"x{key[-127:]}"


def with_key(text: str, name: str) -> str:
    """Return the text of preferences with the key of `warm`. name: of the task."""
    if "warm" not in text:
        return text
    return _WARM.sub(lambda warm: warm[0] if warm[1] else f"warm={key_of(name)}", text)


@lru_cache(maxsize=4096)
def key_accounts(text: str) -> tuple[Account, ...]:
    """Return the account of the key in the text of preferences: `~llama`; none without `warm`."""
    keys = [rule.argument for rule in preferences_of(text) if rule.rule == "warm"]
    return tuple(Account(KEY_MARK + key) for key in keys)


def preferences_text(preferences: Sequence[object]) -> str:
    """Return the text of the option `prefer`; raises InvalidInput.

    preferences: words of rules, 'pack' or 'pack:gpu'; conditions, 'zone=a' or 'vram_gb>=24'; ranked
        values, 'zone:a=0,b=2'; or mappings of one label, {"zone": ["a", "b"]} or {"zone": {"a": 0,
        "b": 2}}.
    """
    words = [word for preference in preferences for word in _words_of(preference)]
    if len(words) > MAX_PREFERENCES:
        raise InvalidInput(
            f"{len(words)} preferences are too many: a task has {MAX_PREFERENCES} at most"
        )
    for word in words:
        if words.count(word) > 1:
            raise InvalidInput(f"preference {shown(word)} is given twice: each may come once")
    if (values := sum(1 + word.count("|") for word in words if ":" in word)) > MAX_WORDS:
        raise InvalidInput(
            f"{values} values of labels in preferences are too many: there may be {MAX_WORDS}"
        )
    if sum(word.partition("=")[0] == "warm" for word in words) > 1:
        raise InvalidInput("a task has one preference warm, because it has one key")
    return ",".join(words)


def goes_by_name(text: str) -> bool:
    """Return whether a rule in the text of a kind depends on the name of the task: `fast`."""
    return "fast" in text.split(",")


@lru_cache(maxsize=4096)
def preferences_of(text: str) -> tuple[SoftRule, ...]:
    """Return the rules in the text of a kind; without those that this version does not know."""
    return tuple(filter(None, map(_read, text.split(",")))) if text else ()


def preferences_shown(text: str) -> str:
    """Return the rules in the text of a kind as people write them: 'zone=a, pack:gpu'.

    `preferences_text` of the parts makes the same text; but for a rule that this version does not
    know, and for `near`, which has the name of the node.
    """
    return ", ".join(map(_shown, text.split(","))) if text else ""


def _shown(word: str) -> str:
    """Return a rule as people write it; a rule that this version does not know as it is."""
    rule = _read(word)
    if rule is None:
        return f"near:{anchors[0]}" if (anchors := anchors_of(word)) else word
    if rule.rule == "ranks":
        return f"{rule.argument}:{rule.condition.replace('|', ',')}"
    if rule.rule == "label":
        return written(rule.argument, rule.condition)
    return ":".join(filter(None, (rule.rule, rule.argument)))


def _read(word: str) -> SoftRule | None:
    """Return a rule by its text; None if this version does not know the rule."""
    name, _, argument = word.partition("=")
    if ":" not in name:
        is_rule = name in RULE_WORDS and name != "near" and (argument or name != "warm")
        return SoftRule(name, argument) if is_rule else None
    name, _, condition = word.partition(":")
    if name == NEAR_LABEL:
        return SoftRule("near", unquote(condition))
    if is_condition(condition):
        return SoftRule("label", name, condition)
    return SoftRule("ranks", name, condition) if _RANKED_VALUES.fullmatch(condition) else None


def _words_of(preference: object) -> list[str]:
    """Return the words of a preference in the text of a kind; raises InvalidInput."""
    if isinstance(preference, Mapping) and preference:
        return [word for name, required in preference.items() for word in _of_label(name, required)]
    if not isinstance(preference, str) or not preference.strip():
        raise InvalidInput(
            f"preference {shown(preference)} is not valid: it must be a rule "
            f"({', '.join(RULE_WORDS)}), a condition on a label, 'zone=a', or a mapping "
            '{"zone": {"a": 0, "b": 2}}'
        )
    text = preference.strip()
    rule, colon, argument = text.partition(":")
    if rule in RULE_WORDS:
        return [_of_rule(rule, argument if colon else None)]
    if (ranks := _WRITTEN_RANKS.fullmatch(text)) is not None:
        pairs = [pair.split("=") for pair in ranks[2].split(",")]
        return _of_ranks(ranks[1], [(value, _number(rank)) for value, rank in pairs])
    if (condition := read_condition(text)) is not None:
        name, sign, value = condition
        return _of_label(name, value if sign == "=" else {sign: value})
    hint = f"; did you mean {close}?" if (close := close_to(rule, RULE_WORDS)) else ""
    raise InvalidInput(
        f"unknown preference {shown(text)}: known are {', '.join(RULE_WORDS)}, and conditions on "
        f"labels such as 'zone=a'{hint}"
    )


def _of_rule(rule: str, argument: str | None) -> str:
    """Return the word of a rule; raises InvalidInput. argument: None for none."""
    noun = RULE_WORDS[rule]
    if rule == "near":
        return f"{rule}={encode_id(argument or '')}"
    if argument is None:
        return rule
    if not noun:
        raise InvalidInput(f"preference {rule}:{argument} is not valid: {rule} has no argument")
    return f"{rule}={check_name(noun, argument)}"


def _of_label(name: object, required: Any) -> list[str]:
    """Return the words of a preferred label; raises InvalidInput."""
    if isinstance(required, Mapping) and _are_ranks(required):
        return _of_ranks(name, [*required.items()])
    label = _label_name(name)
    return [f"{label}:{condition}" for condition in conditions_of(label, required, "prefer")]


def _number(rank: str) -> int | str:
    """Return a rank as a number; a text of many digits as it is, because no rank is so high."""
    return int(rank) if len(rank) < MAX_DIGITS else rank


def _of_ranks(name: object, ranks: Sequence[tuple[object, int | str]]) -> list[str]:
    """Return the word of ranked values of a label; raises InvalidInput."""
    label = _label_name(name)
    words = dict[str, str]()
    for value, rank in ranks:
        if rank not in range(MAX_RANK + 1):
            raise InvalidInput(
                f"prefer {label}: rank {shown(rank)} of {shown(value)} is not valid: it must be a "
                f"whole number from 0, the best, to {MAX_RANK}"
            )
        word = check_name("label value", value)
        if word in words:
            raise InvalidInput(f"prefer {label}: {shown(value)} has two ranks: each may have one")
        words[word] = f"{word}={rank}"
    return [f"{label}:{'|'.join(sorted(words.values()))}"]


def _label_name(name: object) -> str:
    """Return the checked name of a preferred label; raises InvalidInput."""
    label = check_name("label name", name)
    refuse_reserved(label)
    return label


def _are_ranks(required: Mapping[Any, Any]) -> bool:
    """Return whether a mapping has ranks by value; else its keys are operators of a condition."""
    ranks = required.values()
    are_whole = all(isinstance(rank, int) and not isinstance(rank, bool) for rank in ranks)
    return bool(required) and are_whole and not required.keys() & set(OPERATORS)


def ranks_of(condition: str) -> dict[str, int]:
    """Return the ranks of values by their text, {'a': 0, 'b': 2} for 'a=0|b=2'."""
    return {value: int(rank) for value, _, rank in (w.partition("=") for w in condition.split("|"))}
