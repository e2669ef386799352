"""Needs and offers: what a task needs of a node, and what a node has. Both are the same kind of text.

    slots=2 gpu=1 mem=4294967296 gpu_model:a100

`slots` first, then the amounts by name, then the labels by name. Labels whose names begin with `celery.` are reserved:
they say what a node's worker knows and consumes. A node may have several values of one (`celery.queue`). The text is
what Redis stores and what scripts compare (lua/lib/fits.lua); placement/fits.py says when an offer fits a need.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from ..errors import InvalidInput
from .ids import check_name, shown
from .limits import MAX_SLOTS, MAX_WORDS

MAX_AMOUNT: Final = 2**53 - 1

MAX_TEXT: Final = 64 * 2**10
"""Bytes of needs or an offer; those of a node with a Celery queue for each customer are long."""

RESERVED: Final = "celery."
"""The names of labels that a user cannot set begin so."""

QUEUE_LABEL: Final = "celery.queue"
"""The label of a node for each queue that its worker consumes, and of a task that was routed to one."""

_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_AMOUNT: Final = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]*)")


def parse_amount(name: str, value: object) -> int:
    """Return an amount (1, "64GiB", "1.5GB") as an integer in its smallest unit; raises InvalidInput."""
    amount: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        amount = value
    elif isinstance(value, str) and (match := _AMOUNT.fullmatch(value.strip())) and match[2] in _UNITS:
        exact = Decimal(match[1]) * _UNITS[match[2]]
        amount = int(exact) if exact == exact.to_integral_value() else None
    if amount is None or not 0 <= amount <= MAX_AMOUNT:
        units = " ".join(unit for unit in _UNITS if unit)
        raise InvalidInput(
            f"resource {name}={shown(value)} is not an amount: it must be a whole number from 0 to 2^53-1, "
            f"or a number with one of the units {units}"
        )
    return amount


def check_slots(value: object) -> int:
    """Return a number of slots; raises InvalidInput unless it is a whole number from 1 to 10,000."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SLOTS:
        raise InvalidInput(f"slots={shown(value)} is not valid: it must be a whole number from 1 to {MAX_SLOTS:,}")
    return value


@dataclass(frozen=True, slots=True)
class Resources:
    """Slots, amounts of resources and labels: a task's needs or a node's offer."""

    slots: int = 1
    amounts: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    text: str = field(default="", compare=False)

    @property
    def asked(self) -> str:
        """Return the amounts as the text of a place has them: 'gpu=1 mem=4096'."""
        return " ".join(f"{name}={amount}" for name, amount in self.amounts)

    @classmethod
    def of(
        cls,
        slots: object = 1,
        resources: Mapping[str, object] | None = None,
        labels: Mapping[str, object] | None = None,
        reserved: Iterable[tuple[str, str]] = (),
    ) -> "Resources":
        """Check and normalise: names are well formed, amounts whole; raises InvalidInput.

        reserved: further labels, which no user may set.
        """
        count = check_slots(slots)
        if (size := len(resources or {}) + len(labels or {})) > MAX_WORDS:
            raise InvalidInput(f"{size} resources and labels are too many: there may be {MAX_WORDS}")
        amounts: list[tuple[str, int]] = []
        for name in (*(resources or {}), *(labels or {})):
            if not isinstance(name, str):
                raise InvalidInput(f"a resource or label name must be text, not {shown(name)}")
        for name, value in sorted((resources or {}).items()):
            check_name("resource name", name)
            if name == "slots":
                raise InvalidInput("resource name 'slots' is taken: use slots=N")
            amounts.append((name, parse_amount(name, value)))
        if taken := next((name for name in labels or () if str(name).startswith(RESERVED)), None):
            raise InvalidInput(f"label name {shown(taken)} is reserved: names of labels do not begin with {RESERVED!r}")
        marks = [
            (check_name("label name", name), check_name("label value", value)) for name, value in (labels or {}).items()
        ]
        marks = sorted([*marks, *reserved])
        words = [f"slots={count}", *(f"{n}={a}" for n, a in amounts), *(f"{n}:{v}" for n, v in marks)]
        return cls(count, tuple(amounts), tuple(marks), " ".join(words))


def queue_label(queue: str) -> tuple[str, str]:
    """Return the reserved label of a Celery queue; characters that a label's value may not have are %XX."""
    return QUEUE_LABEL, quote(queue, safe="").replace("~", "%7E")


def queues_of(resources: Resources) -> list[str]:
    """Return the Celery queues that a node consumes, or that a task was routed to."""
    return [unquote(value) for name, value in resources.labels if name == QUEUE_LABEL]


_WORDS: Final = re.compile(r"(?:(?:[a-z][a-z0-9_]*=-?\d{1,16}|[A-Za-z][\w.-]*:[\w./%-]+)(?= |$)| )*", re.ASCII)


@lru_cache(maxsize=4096)
def is_resources(text: str) -> bool:
    """Return whether `parse_resources` reads a text: needs, an offer, or what is left of one."""
    return len(text) <= MAX_TEXT and _WORDS.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def parse_resources(text: str) -> Resources:
    """Read a text that `Resources.of` wrote; ValueError for any other."""
    if not is_resources(text):
        raise ValueError(f"not needs nor an offer: {shown(text)}")
    slots, resources, labels = 0, [], []
    for word in text.split():
        if ":" in word:
            name, _, value = word.partition(":")
            labels.append((name, value))
        else:
            name, _, value = word.partition("=")
            if name == "slots":
                slots = int(value)
            else:
                resources.append((name, int(value)))
    return Resources(slots, tuple(resources), tuple(labels), text)
