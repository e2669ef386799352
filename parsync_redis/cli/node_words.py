"""Read the value of `parsync dev --node`: 'gpu:slots=2,gpu=1,gpu_model=a100'."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..errors import InvalidInput
from ..model.amount import parse_amount
from ..model.ids import check_name, shown

FORM: Final = (
    "it must be NAME, or NAME:WORD,WORD with words slots=2, score=9.5, taint=spot, mem=8GiB (a "
    "number is an amount), zone=a (another word is a label) or year:2024 (a label that is a number)"
)


@dataclass(frozen=True, slots=True)
class NodeWords:
    """A node of `parsync dev --node`. slots, score: None for the default."""

    name: str
    slots: int | None = None
    score: float | None = None
    labels: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()

    @property
    def flags(self) -> Sequence[str]:
        """Return the flags for the node's worker that LocalStack.worker has no argument for."""
        return [word for taint in self.taints for word in ("--parsync-taint", taint)]


def read_node_words(text: str) -> NodeWords:
    """Read the value of --node; raises InvalidInput."""
    name, _, words = text.partition(":")
    check_name("node name", name)
    slots = None
    score = None
    labels = dict[str, str]()
    resources = dict[str, str]()
    taints = list[str]()
    for word in words.split(",") if words else ():
        position = min((word.find(sign) for sign in "=:" if sign in word), default=-1)
        key = word[:position]
        value = word[position + 1 :]
        if position < 1 or not value:
            raise InvalidInput(f"--node {shown(text)} is not valid at {shown(word)}: {FORM}")
        if word[position] == ":":
            labels[check_name("label name", key)] = check_name("label value", value)
        elif key == "slots":
            slots = _slots(text, value)
        elif key == "score":
            score = _score(text, value)
        elif key == "taint":
            taints.append(check_name("taint", value))
        elif _is_amount(key, value):
            resources[check_name("resource name", key)] = value
        else:
            labels[check_name("label name", key)] = check_name("label value", value)
    return NodeWords(name, slots, score, labels, resources, tuple(taints))


def _slots(text: str, value: str) -> int:
    if not (value.isdecimal() and len(value) < 5 and 1 <= int(value) <= 1000):
        raise InvalidInput(
            f"--node {shown(text)} is not valid: slots={value} must be a whole number from 1 to "
            "1000"
        )
    return int(value)


def _score(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidInput(
            f"--node {shown(text)} is not valid: score={value} must be a number"
        ) from None


def _is_amount(name: str, value: str) -> bool:
    try:
        parse_amount(name, value)
    except InvalidInput:
        return False
    return True
