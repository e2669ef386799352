"""Needs and offers: what a task needs of a node, and what a node has.

Needs and offers are the same kind of text.

    slots=2 gpu=0.5 mem=4294967296 gpu_model:a100

`slots` first, then the amounts by name, then the labels by name. A node may have several values of
a label. The label of a need has a condition: a value, or another text of model/condition.py. Labels
whose names begin with `celery.` or `parsync.` are reserved: they say what a node's worker knows and
consumes, and its taints (model/taints.py). The text is what Redis stores and what scripts compare
(lua/lib/kind/fits.lua); placement/fits.py says when an offer fits a need. Amounts of devices:
model/devices.py.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from ..errors import InvalidInput
from .account import check_amount_name
from .amount import AMOUNT_PATTERN, amount_text, parse_amount, read_amount
from .apart import APART_PREFIX
from .condition import CONDITION_PATTERN, conditions_of
from .devices import NEEDED_ATTRIBUTE, OFFER_AMOUNT, device_amounts
from .ids import check_name, is_name, shown
from .limits import MAX_SLOTS, MAX_WORDS

MAX_TEXT: Final = 64 * 2**10
"""The maximum number of bytes of needs or an offer.

An offer is long if its node consumes a Celery queue for each of many customers.
"""

RESERVED_PREFIX: Final = "parsync."
"""The beginning of labels that are no ordinary conditions: each has a rule of its own."""

RESERVED: Final = ("celery.", RESERVED_PREFIX)
"""The names of labels that a user cannot set begin with one of these."""

QUEUE_LABEL: Final = "celery.queue"
"""A node's label for each queue that its worker consumes; a task's label for its routed queue."""

TAINT_LABEL: Final = f"{RESERVED_PREFIX}taint"
"""A node's label for each of its taints; a task's label for all taints that it tolerates."""

SHARED_LABEL: Final = (f"{RESERVED_PREFIX}devices", "shared")
"""The label of a node whose devices are shared: tasks that need no device may go there."""


def check_slots(value: object) -> int:
    """Return a number of slots; raises InvalidInput unless the number is whole and 1 to 10,000."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SLOTS:
        raise InvalidInput(
            f"slots={shown(value)} is not valid: it must be a whole number from 1 to {MAX_SLOTS:,}"
        )
    return value


@dataclass(frozen=True, slots=True)
class Resources:
    """Slots, amounts of resources and labels: a task's needs or a node's offer.

    amounts: in thousandths (model/amount.py).
    labels: pairs of a label's name and a value, in needs a condition. A name may come several
        times.
    """

    slots: int = 1
    amounts: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    text: str = field(default="", compare=False)

    @property
    def asked(self) -> str:
        """Return the amounts as the text of a place has them: 'gpu=0.5 mem=4096'."""
        return amounts_text(self.amounts)

    @classmethod
    def of(
        cls,
        slots: object = 1,
        resources: Mapping[str, object] | None = None,
        labels: Mapping[str, object] | None = None,
        reserved: Iterable[tuple[str, str]] = (),
        devices: Mapping[str, Iterable[object]] | None = None,
        of_devices: Mapping[str, object] | None = None,
        shared: bool = False,
    ) -> "Resources":
        """Return the offer of a node; raises InvalidInput.

        labels: {name: value or list of values}.
        reserved: further labels, which no user may set.
        devices: {kind: indexes}.
        of_devices: amounts of each device.
        shared: tasks that need no device may go to the node.
        """
        offer = cls._checked(slots, resources, labels, _values_of, reserved)
        if not devices and not of_devices:
            return offer
        if twice := sorted((devices or {}).keys() & dict(offer.amounts).keys()):
            raise InvalidInput(f"resource {twice[0]} is given twice: as an amount, and as devices")
        amounts = [*offer.amounts, *device_amounts(devices or {}, of_devices).items()]
        if len(amounts) > MAX_WORDS:
            raise InvalidInput(
                f"{len(amounts)} amounts of resources and devices are too many: there may be "
                f"{MAX_WORDS}"
            )
        return cls.made(offer.slots, amounts, [*offer.labels, *([SHARED_LABEL] if shared else [])])

    @classmethod
    def needed(
        cls,
        slots: object = 1,
        resources: Mapping[str, object] | None = None,
        require: Mapping[str, object] | None = None,
        reserved: Iterable[tuple[str, str]] = (),
    ) -> "Resources":
        """Return the needs of a task; raises InvalidInput.

        require: {label: what the task requires}, see `conditions_of`.
        reserved: further labels, which no user may set.
        """
        return cls._checked(slots, resources, require, conditions_of, reserved, of_devices=True)

    @classmethod
    def made(
        cls, slots: int, amounts: Iterable[tuple[str, int]], labels: Iterable[tuple[str, str]]
    ) -> "Resources":
        """Return the resources of these checked parts, sorted as in the text."""
        sizes = tuple(sorted(amounts))
        marks = tuple(sorted(labels))
        words = [
            f"slots={slots}",
            *(f"{n}={amount_text(a)}" for n, a in sizes),
            *(f"{n}:{v}" for n, v in marks),
        ]
        return cls(slots, sizes, marks, " ".join(words))

    @classmethod
    def _checked(
        cls,
        slots: object,
        resources: Mapping[str, object] | None,
        labels: Mapping[str, object] | None,
        texts_of: Callable[[str, object], list[str]],
        reserved: Iterable[tuple[str, str]],
        of_devices: bool = False,
    ) -> "Resources":
        count = check_slots(slots)
        for name in (*(resources or {}), *(labels or {})):
            if not isinstance(name, str):
                raise InvalidInput(f"a resource or label name must be text, not {shown(name)}")
        amounts = [
            (_resource_name(name, of_devices), parse_amount(name, value))
            for name, value in sorted((resources or {}).items())
        ]
        for name in labels or ():
            refuse_reserved(name)
        marks = [
            (check_name("label name", name), text)
            for name, v in (labels or {}).items()
            for text in texts_of(name, v)
        ]
        if (size := len(amounts) + sum(1 + text.count("|") for _, text in marks)) > MAX_WORDS:
            raise InvalidInput(
                f"{size} resources and values of labels are too many: there may be {MAX_WORDS}"
            )
        return cls.made(count, amounts, [*marks, *reserved])


def refuse_reserved(label: str) -> None:
    """Raise InvalidInput for the name of a label that a user cannot set."""
    if label.startswith(RESERVED):
        rule = f"names of labels do not begin with {' or '.join(RESERVED)}"
        raise InvalidInput(f"label name {shown(label)} is reserved: {rule}")


def amounts_text(amounts: Iterable[tuple[str, int]]) -> str:
    """Return amounts in thousandths as Redis has them."""
    return " ".join(f"{name}={amount_text(amount)}" for name, amount in amounts)


def read_amounts(text: str) -> dict[str, int]:
    """Return amounts in thousandths, {} for a text that cannot be read."""
    return dict(parse_resources(text).amounts) if is_resources(text) else {}


def _resource_name(name: str, of_devices: bool) -> str:
    """Return the checked name of a resource.

    of_devices: whether an attribute of devices ('gpu.mem') is valid as well.
    """
    if name == "slots":
        raise InvalidInput("resource name 'slots' is taken: use slots=N")
    if name.startswith(APART_PREFIX):
        raise InvalidInput(
            f"resource name {shown(name)} is reserved: names of resources do not begin with "
            f"{APART_PREFIX}"
        )
    check_amount_name(name)
    kind, point, attribute = name.partition(".")
    if (
        of_devices
        and point
        and is_name("resource name", kind)
        and is_name("resource name", attribute)
    ):
        return name
    return check_name("resource name", name)


def _values_of(name: str, value: object) -> list[str]:
    """Return the values of a node's label, each once; raises InvalidInput."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise InvalidInput(f"label {name} has no value: it must have at least one")
    return sorted({check_name("label value", text) for text in values})


def labels_of(offer: Resources) -> dict[str, str]:
    """Return a node's labels without reserved labels, for people: {'zone': 'a,b'}."""
    labels: dict[str, str] = {}
    for name, value in offer.labels:
        if not name.startswith(RESERVED):
            labels[name] = f"{labels[name]},{value}" if name in labels else value
    return labels


def without(resources: Resources, *names: str) -> Resources:
    """Return resources without the labels of these names."""
    labels = [pair for pair in resources.labels if pair[0] not in names]
    return Resources.made(resources.slots, resources.amounts, labels)


def queue_label(queue: str) -> tuple[str, str]:
    """Return the reserved label of a Celery queue; special characters become %XX."""
    return QUEUE_LABEL, quote(queue, safe="").replace("~", "%7E")


def queues_of(resources: Resources) -> list[str]:
    """Return the Celery queues that a node consumes, or that a task was routed to."""
    return [unquote(value) for name, value in resources.labels if name == QUEUE_LABEL]


_RESOURCES_TEXT: Final = (
    r"(?:(?:(?:[a-z][a-z0-9_]*|{device})=-?{amount}|[A-Za-z][\w.-]*:{label})(?= |$)| )*"
)
_OFFER: Final = re.compile(
    _RESOURCES_TEXT.format(amount=AMOUNT_PATTERN, device=OFFER_AMOUNT, label=r"[\w./%-]+"), re.ASCII
)
_NEEDS_TEXT: Final = re.compile(
    _RESOURCES_TEXT.format(amount=AMOUNT_PATTERN, device=NEEDED_ATTRIBUTE, label=CONDITION_PATTERN),
    re.ASCII,
)


@lru_cache(maxsize=4096)
def is_resources(text: str) -> bool:
    """Return whether `parse_resources` reads a text: an offer, or a node's free resources."""
    return len(text) <= MAX_TEXT and _OFFER.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def are_needs(text: str) -> bool:
    """Return whether `parse_needs` reads a text."""
    return len(text) <= MAX_TEXT and _NEEDS_TEXT.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def parse_resources(text: str) -> Resources:
    """Read an offer, or a node's free resources; raises ValueError for any other text."""
    if not is_resources(text):
        raise ValueError(f"not an offer: {shown(text)}")
    return _parse(text)


@lru_cache(maxsize=4096)
def parse_needs(text: str) -> Resources:
    """Read the needs of a task; raises ValueError for any other text."""
    if not are_needs(text):
        raise ValueError(f"not needs: {shown(text)}")
    return _parse(text)


def _parse(text: str) -> Resources:
    slots = 0
    resources = []
    labels = []
    for word in text.split():
        if ":" in word:
            name, _, value = word.partition(":")
            labels.append((name, value))
        else:
            name, _, value = word.partition("=")
            if name == "slots":
                slots = int(value)
            else:
                resources.append((name, read_amount(value)))
    return Resources(slots, tuple(resources), tuple(labels), text)
