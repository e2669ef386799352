"""What a policy would change, before it is applied: a dry run for an operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..model.account_line import AccountLine
from ..model.account_views import offered_amounts
from ..model.devices import fold
from ..model.kind import Kind
from ..model.policy import LimitEntry, Policy, find_doubts
from ..model.policy_document import entry_text, find_changes
from ..model.policy_reader import read_policy
from ..placement.account_reasons import AccountBlock, find_block
from ..store.policy import StoredPolicy, declared_limits, usual_policy, with_declared
from ..store.reads.accounts import read_account_lines
from ..store.reads.cancel import server_ms
from ..store.reads.demand import read_kinds
from ..store.reads.views import Directory, read_node_views
from ..store.store import Store

MOST_KINDS_FORESEEN: Final = 10_000
"""Maximum number of waiting kinds that are judged, the kinds with the most tasks first."""


@dataclass(frozen=True, slots=True)
class BlockedKind:
    """Waiting tasks of a kind that a policy keeps waiting.

    why: the account, and what it holds. for_ever: whether they wait until an operator changes the
    policy. is_new: whether the policy of now lets them start.
    """

    kind: str
    waiting: int
    why: str
    for_ever: bool
    is_new: bool


@dataclass(frozen=True, slots=True)
class PolicyOutlook:
    """What a policy would change.

    changes: in words, () if the policy is as it was. doubts: what may be a mistake.
    blocked: the waiting kinds that it keeps waiting; first those that wait for ever, then those
        with the most tasks.
    """

    changes: Sequence[str]
    doubts: Sequence[str]
    blocked: Sequence[BlockedKind]

    @property
    def blocks_for_ever(self) -> bool:
        """Return whether tasks that could start under the policy of now would wait for ever."""
        return any(kind.for_ever and kind.is_new for kind in self.blocked)


def foresee_policy(store: Store, document: str) -> PolicyOutlook:
    """Return what a document would change. Raises InvalidInput and ServerUnreachable."""
    return foresee_change(store, usual_policy(store), read_policy(document))


def foresee_change(store: Store, stored: StoredPolicy, policy: Policy) -> PolicyOutlook:
    """Return what the step from the stored policy to another one would change."""
    nodes = [node for node in read_node_views(store) if node.state != "down"]
    offered = offered_amounts((node.slots, fold(node.resources.items())) for node in nodes)
    doubts = find_doubts(policy, offered.items() if nodes else None)
    counts = {kind: line.count for kind, line in read_kinds(store).items()}
    lines = read_account_lines(store)
    stored = with_declared(store, stored)
    declared = {**stored.declared, **declared_limits(Directory(store))}
    doubts += find_overridden(policy, declared)
    in_force = policy.with_declared(declared)
    blocked = find_blocked(stored.in_force, in_force, counts, lines, server_ms(store))
    return PolicyOutlook(find_changes(stored.policy, policy), doubts, blocked)


def find_overridden(policy: Policy, declared: Mapping[str, LimitEntry]) -> list[str]:
    """Return which entries of a policy count in place of what apps declare, as sentences. Pure."""
    return [
        f"limits.{name} counts in place of what an app declares: {entry_text(declared[name])}"
        for name, entry in policy.limits.items()
        if entry != declared.get(name, entry)
    ]


def find_blocked(
    before: Policy,
    after: Policy,
    counts: Mapping[str, int],
    lines: Mapping[str, AccountLine],
    now_ms: int,
) -> list[BlockedKind]:
    """Return the waiting kinds that a policy keeps waiting. Pure.

    counts: the number of waiting tasks by kind. lines: what accounts hold.
    """
    blocked = []
    most_first = sorted(counts, key=lambda kind: -counts[kind])
    for text in most_first[:MOST_KINDS_FORESEEN]:
        try:
            kind = Kind.of(text)
        except ValueError:
            continue
        block = _block(after, kind, lines, now_ms)
        if block is not None:
            earlier = _block(before, kind, lines, now_ms)
            is_new = earlier is None or (block.is_lasting and not earlier.is_lasting)
            blocked.append(BlockedKind(text, counts[text], block.why, block.is_lasting, is_new))
    return sorted(blocked, key=lambda kind: (not kind.for_ever, -kind.waiting, kind.kind))


def _block(
    policy: Policy, kind: Kind, lines: Mapping[str, AccountLine], now_ms: int
) -> AccountBlock | None:
    ceilings = {name: policy.ceiling(name) for name, _ in kind.accounts}
    return find_block(kind, lines, ceilings, now_ms, policy.limits)
