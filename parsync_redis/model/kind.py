"""The kinds of tasks: what waits is kept by kind, because tasks of a kind are equal for placement.

    proj.render slots=2 gpu=1 gpu_model:a100 latency

A kind is a text: the task's name, the needs with the labels of the routing, and the strategy if the
task sets one. Priority is in the order of the tasks; all else does not matter to placement. The
hash `kinds` has a line for each kind of which tasks wait: how many, the order of the first, an
upper bound of the order of the last, and why they wait.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from .ids import shown
from .needs import are_needs
from .options import Strategy
from .text import KIND_LINE, TASK_NAME

_STRATEGIES: Final = frozenset(Strategy)


class Kind(NamedTuple):
    """The name, needs and strategy of tasks that are equal for placement.

    strategy: '' is the scheduler's own.
    """

    name: str
    needs: str
    strategy: str = ""

    @property
    def text(self) -> str:
        """Return the stored text of the kind; lua/lib/kind/waiting.lua writes the same text."""
        return (
            f"{self.name} {self.needs} {self.strategy}"
            if self.strategy
            else f"{self.name} {self.needs}"
        )

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(text: str) -> "Kind":
        """Read the stored text of a kind; raises ValueError for damaged text."""
        name, _, needs = text.partition(" ")
        head, _, strategy = needs.rpartition(" ")
        if strategy in _STRATEGIES:
            needs = head
        else:
            strategy = ""
        if not TASK_NAME.fullmatch(name) or not needs.startswith("slots=") or not are_needs(needs):
            raise ValueError(f"not a kind of task: {shown(text)}")
        return Kind(name, needs, strategy)


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
        """Return the priority of the kind's first task, 0 to 9.

        An order is (9 - priority) * 10^12 + the number of the submission.
        """
        return 9 - min(self.first // 10**12, 9)

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


def kind_text(name: str, needs: str, strategy: str) -> str:
    """Return the text of a kind; damaged fields stay as they are, as in the scripts."""
    return Kind(name, needs, strategy if strategy in _STRATEGIES else "").text


def split_kind(text: str) -> Kind:
    """Split the stored text of a kind; damaged parts stay as they are."""
    name, _, needs = text.partition(" ")
    head, _, strategy = needs.rpartition(" ")
    return Kind(name, head, strategy) if strategy in _STRATEGIES else Kind(name, needs)


def read_why(line: str) -> str:
    """Return why tasks of a kind wait, from the kind's line; '' if unknown."""
    try:
        return KindLine.of(line).why
    except ValueError:
        return ""
