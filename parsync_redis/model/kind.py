"""The kinds of tasks: what waits is kept by kind, because tasks of a kind are equal for placement.

    proj.render slots=2 gpu=1 gpu_model:a100 prefer=zone:a,pack latency for=anna under=stripe*2

A kind is a text: the task's name, the needs with the labels of the routing, the preferences
(model/preferences.py) and the strategy if the task sets them, and the accounts to which the task
counts (model/account.py): its tenant and its limits; the key of the rule `warm` is an account, too.
Priority is in the order of the tasks; all else does not matter to placement. The hash `kinds` has a
line for each kind of which tasks wait: how many, the order of the first, an upper bound of the
order of the last, and why they wait.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from .account import Account, are_accounts, limits_of, tenant_accounts
from .ids import shown
from .needs import are_needs
from .options import Strategy
from .order import priority_of
from .preferences import are_preferences, key_accounts
from .text import KIND_LINE, TASK_NAME

_STRATEGIES: Final = frozenset(Strategy)

_ACCOUNTS: Final = re.compile(r"(.*?)(?: for=(\S+))?(?: under=(\S+))?", re.ASCII | re.DOTALL)
"""A kind: its name, needs and strategy, its tenant, and its limits."""


_PREFER: Final = re.compile(r"(.*) prefer=(\S+)", re.ASCII | re.DOTALL)
"""Needs with preferences behind them."""


class Kind(NamedTuple):
    """The name, needs and strategy of tasks that are equal for placement, and their accounts.

    strategy: '' is the scheduler's own.
    tenant: '' for a task without one.
    limits: 'customer:7,stripe*2', sorted by name.
    prefer: the soft rules, 'zone:a,pack' (model/preferences.py).
    """

    name: str
    needs: str
    strategy: str = ""
    tenant: str = ""
    limits: str = ""
    prefer: str = ""

    @property
    def text(self) -> str:
        """Return the stored text of the kind; lua/lib/task/line.lua reads the same text."""
        text = f"{self.name} {self.needs}"
        if self.prefer:
            text += f" prefer={self.prefer}"
        if self.strategy:
            text += f" {self.strategy}"
        if self.tenant:
            text += f" for={self.tenant}"
        if self.limits:
            text += f" under={self.limits}"
        return text

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Return the accounts to which a task of the kind counts, tenants from the root down.

        Behind the tenants come the limits, then the key of the rule `warm`.
        """
        keys = key_accounts(self.prefer) if "warm" in self.prefer else ()
        return (*tenant_accounts(self.tenant), *limits_of(self.limits), *keys)

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(text: str) -> "Kind":
        """Read the stored text of a kind; raises ValueError for damaged text."""
        kind = split_kind(text)
        if (
            not TASK_NAME.fullmatch(kind.name)
            or not kind.needs.startswith("slots=")
            or not are_needs(kind.needs)
            or not are_accounts(kind.tenant, kind.limits)
            or (kind.prefer and not are_preferences(kind.prefer))
        ):
            raise ValueError(f"not a kind of task: {shown(text)}")
        return kind


@dataclass(frozen=True, slots=True)
class KindLine:
    """The waiting tasks of a kind: their number, the first order, an upper bound of the last order.

    why: the reason why the tasks wait, as a scheduler wrote it; '' if no reason is known.
    """

    count: int
    first: int
    last: int
    why: str = ""

    @classmethod
    def of(cls, line: str) -> "KindLine":
        """Read a line of `kinds`; raises ValueError for any other text."""
        fields = KIND_LINE.read(line)
        if fields is None:
            raise ValueError(f"not a line of kinds: {shown(line)}")
        return cls(
            int(fields["waiting"]),
            int(fields["head"]),
            int(fields["tail"]),
            fields.get("reason", ""),
        )

    @property
    def priority(self) -> int:
        """Return the priority of the kind's first task, 0 to 9."""
        return priority_of(self.first)

    def with_shard(self, of_shard: "KindLine") -> "KindLine":
        """Return the sum of this line and the line of the same kind in another shard."""
        first = min(self, of_shard, key=lambda line: line.first)
        why = first.why or self.why or of_shard.why
        return KindLine(
            self.count + of_shard.count, first.first, max(self.last, of_shard.last), why
        )

    def __str__(self) -> str:
        """Return the line."""
        return KIND_LINE.write(
            waiting=self.count, head=self.first, tail=self.last, reason=self.why or None
        )


def kind_text(
    name: str, needs: str, strategy: str, tenant: str = "", limits: str = "", prefer: str = ""
) -> str:
    """Return the text of a kind; damaged fields stay as they are, as in the scripts."""
    known_strategy = strategy if strategy in _STRATEGIES else ""
    return Kind(name, needs, known_strategy, tenant, limits, prefer).text


def split_kind(text: str) -> Kind:
    """Split the stored text of a kind; damaged parts stay as they are."""
    head = text
    tenant = ""
    limits = ""
    if " for=" in text or " under=" in text:
        match = _ACCOUNTS.fullmatch(text)
        if match is not None:
            head = match[1]
            tenant = match[2] or ""
            limits = match[3] or ""
    name, _, needs = head.partition(" ")
    needs_alone, _, strategy = needs.rpartition(" ")
    if strategy not in _STRATEGIES:
        needs_alone = needs
        strategy = ""
    preferring = _PREFER.fullmatch(needs_alone) if " prefer=" in needs_alone else None
    bare_needs, prefer = preferring.groups() if preferring else (needs_alone, "")
    return Kind(name, bare_needs, strategy, tenant, limits, prefer)


def read_why(line: str) -> str:
    """Return why tasks of a kind wait, from the kind's line; '' if unknown."""
    try:
        return KindLine.of(line).why
    except ValueError:
        return ""
