"""Allotments: how the ceiling of an account is divided among the shards of the queue. Pure.

    units=2          burst=3 units=2          gpu=0.5 slots=20          0

A shard holds at most its allotment. The sum of what all shards may hold never exceeds the ceiling.
A rate is divided by its `burst`: a shard with 3 of 10 may start 3/10 of the units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .account_line import AccountLine, Ceiling, read_amounts
from .amount import THOUSANDTHS, amount_text
from .policy import UNBOUNDED

PartAmounts = Mapping[str, int]
"""By name, `units`, `burst`, `slots` or a resource, in thousandths."""

SHARDS_WORD: Final = " shards="
"""What is before the number of shards in a ceiling that is divided."""


class AllotRow(NamedTuple):
    """A row of `allot`.

    text: the allotment, '' for none. next: until when (ms) the rate is used up in any shard, '0' if
    it is not, for an allotment that is raised; '' for one that is lowered.
    """

    account: str
    text: str
    next: str = ""


@dataclass(frozen=True, slots=True)
class ShardPart:
    """What an account may hold in a shard, and holds.

    ceiling: as the policy has it, undivided; None if the policy has none, or does not divide it.
    is_listed: whether the shard has an allotment, perhaps of nothing.
    """

    ceiling: Ceiling | None
    allotted: PartAmounts
    line: AccountLine
    is_listed: bool

    @classmethod
    def of(cls, ceiling: str, allotted: str, line: str) -> "ShardPart":
        """Read what `allot` tells."""
        whole = Ceiling.of(ceiling)
        return cls(
            whole if whole.is_divided else None,
            read_amounts(allotted),
            AccountLine.of(line),
            bool(allotted),
        )

    def may_hold(self, name: str) -> int:
        """Return what the shard holds or may take, of one amount: the more of both."""
        return max(self.allotted.get(name, 0), self.line.amounts.get(name, 0))


class AllotReply(NamedTuple):
    """What a shard tells of its allotments.

    seal: of the shard; '' if the call was refused, because somebody else has sealed the shard.
    parts: by account.
    """

    seal: str
    now_ms: int
    parts: Mapping[str, ShardPart]

    @classmethod
    def of(cls, words: Sequence[str]) -> "AllotReply":
        """Read the words of the script's reply."""
        if len(words) < 2:
            return cls("", 0, {})
        rows = zip(words[2::4], words[3::4], words[4::4], words[5::4], strict=True)
        return cls(words[0], int(words[1]), {name: ShardPart.of(*row) for name, *row in rows})


def divided_ceiling(ceiling: str, shards: int) -> str:
    """Return the text of a ceiling in a shard: with the number of shards, if it is divided."""
    return ceiling if shards == 1 or ceiling == UNBOUNDED else f"{ceiling}{SHARDS_WORD}{shards}"


def undivided_ceiling(text: str, shards: int) -> str:
    """Return a ceiling of a shard as the document has it; see `divided_ceiling`.

    A ceiling that is divided among another number of shards keeps the number.
    """
    ceiling, word, number = text.partition(SHARDS_WORD)
    is_divided = shards > 1 and ceiling != UNBOUNDED
    if number == (str(shards) if is_divided else ""):
        return ceiling
    return text if word else f"{text}{SHARDS_WORD}1"


def is_allotment(field: bytes | str) -> bool:
    """Return whether a field of a shard's `policy` is about allotments, and is no ceiling."""
    return field[:1] in (b"=", b"#", "=", "#")


def allotment_text(amounts: PartAmounts) -> str:
    """Return the text of an allotment; '0' for nothing."""
    words = [f"{name}={amount_text(amount)}" for name, amount in sorted(amounts.items()) if amount]
    return " ".join(words) or "0"


def whole_of(parts: Sequence[ShardPart]) -> dict[str, int]:
    """Return what all shards together may hold: by the least ceiling that a shard has.

    Empty if a shard has no ceiling, so that nothing is given out.
    """
    wholes = [amounts_of(part.ceiling) if part.ceiling else {} for part in parts]
    names = set(wholes[0]).intersection(*wholes) if wholes else set[str]()
    return {name: min(whole[name] for whole in wholes) for name in sorted(names)}


def amounts_of(ceiling: Ceiling) -> dict[str, int]:
    """Return the amounts of a ceiling that are divided."""
    burst = {"burst": ceiling.burst * THOUSANDTHS} if ceiling.rate else {}
    return {**ceiling.amounts, **burst}


def equal_parts(
    whole: PartAmounts, parts: Sequence[ShardPart], wants: Sequence[bool]
) -> list[dict[str, int]]:
    """Return what each shard should have: the shards that want have equal parts.

    A shard that does not want keeps what it holds, and half of what it does not use. If no shard
    wants, all keep what they have. The sum is at most the whole.
    """
    shares: list[dict[str, int]] = [{} for _ in parts]
    wanting = [shard for shard, is_wanting in enumerate(wants) if is_wanting]
    for name, amount in whole.items():
        grain = THOUSANDTHS if amount % THOUSANDTHS == 0 else 1
        remaining = amount
        for shard, part in enumerate(parts):
            if not wants[shard]:
                keep = part.allotted.get(name, 0)
                unused = max(0, keep - part.line.amounts.get(name, 0))
                if wanting:
                    keep -= unused - unused // 2 // grain * grain
                shares[shard][name] = min(keep, remaining)
                remaining -= shares[shard][name]
        for place, shard in enumerate(wanting):
            shares[shard][name] = remaining // (len(wanting) - place) // grain * grain
            remaining -= shares[shard][name]
    return shares
