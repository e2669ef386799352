"""Why tenants and limits keep tasks waiting, as people are told: with holders, times and names."""

import re
from collections.abc import Iterable

from ..errors import AccessDenied
from ..model.account import KEY_MARK, pattern_of
from ..model.account_line import AccountLine
from ..model.human import age_text
from ..model.kind import Kind
from ..model.policy import Policy
from ..placement.account_reasons import AccountBlock, account_shown, find_block
from ..store.policy import StoredPolicy, usual_policy
from ..store.reads.accounts import read_lines_of, read_oldest_holders
from ..store.store import Store


def _accounts_of(text: str) -> list[str]:
    """Return the accounts of a kind; [] for damaged text."""
    try:
        return [name for name, _ in Kind.of(text).accounts]
    except ValueError:
        return []


class AccountExplainer:
    """Explains what accounts keep from starting, from one reading of each account.

    now_ms: server time of the reading. is_brief: do not read who holds an account, for lists.
    """

    def __init__(self, store: Store, now_ms: int, is_brief: bool = False) -> None:
        self._store = store
        self._now_ms = now_ms
        self._is_brief = is_brief
        self._stored: StoredPolicy | None = None
        self._lines: dict[str, AccountLine] = {}
        self._blocks: dict[str, AccountBlock | None] = {}

    def read(self, kinds: Iterable[str]) -> None:
        """Read the accounts of many kinds at once; kinds without accounts cost nothing."""
        names = {name for text in kinds for name in _accounts_of(text)}
        unread = [name for name in names if name not in self._lines]
        lines = read_lines_of(self._store, unread)
        self._lines |= {name: lines.get(name, AccountLine()) for name in unread}

    def block_of(self, text: str) -> AccountBlock | None:
        """Return the account that keeps a kind waiting; None if none does, or for damaged text.

        A kind without tenant and limits costs nothing.
        """
        if text not in self._blocks:
            self._blocks[text] = self._find(text)
        return self._blocks[text]

    def why(self, text: str) -> str:
        """Return why an account keeps a kind waiting, as a sentence; '' if none does."""
        block = self.block_of(text)
        return self._sentence(block) if block else ""

    def held_by_keys(self, text: str) -> dict[str, int]:
        """Return how many tasks count to the key of a kind, by key; {} for a kind without one."""
        names = [name for name in _accounts_of(text) if name.startswith(KEY_MARK)]
        if not names:
            return {}
        try:
            self.read([text])
        except AccessDenied:  # a login of an earlier version
            return {}
        return {name.removeprefix(KEY_MARK): self._lines[name].count for name in names}

    def _find(self, text: str) -> AccountBlock | None:
        names = _accounts_of(text)
        if not names:
            return None
        try:
            policy = self._policy().in_force
            self.read([text])
        except AccessDenied:  # a login of an earlier version
            return None
        ceilings = {name: policy.ceiling(name) for name in names}
        return find_block(Kind.of(text), self._lines, ceilings, self._now_ms, policy.limits)

    @property
    def policy(self) -> Policy:
        """The policy; it is read once."""
        return self._policy().policy

    def _policy(self) -> StoredPolicy:
        if self._stored is None:
            self._stored = usual_policy(self._store)
        return self._stored

    def _sentence(self, block: AccountBlock) -> str:
        if block.cause == "rate" and block.free_ms is not None:
            wait_s = (block.free_ms - self._now_ms) / 1000
            return f"{block.why}; the next in {age_text(wait_s)}"
        if block.cause == "paused":
            by = self._paused_by(block.account)
            return f"{account_shown(block.account)} is 0: {by}" if by else block.why
        if block.cause == "full" and not self._is_brief:
            return block.why + self._oldest(block.account)
        return block.why

    def _oldest(self, account: str) -> str:
        """Return ', the oldest (a81f) for 2m10s by n3'; '' if it is not known."""
        oldest = read_oldest_holders(self._store, [account]).get(account)
        if oldest is None:
            return ""
        where = f" by {oldest.node}" if oldest.node else ""
        age = age_text((self._now_ms - oldest.since_ms) / 1000)
        return f", the oldest ({oldest.id}) for {age}{where}"

    def _paused_by(self, limit: str) -> str:
        """Return 'paused by maria, 3h ago', by the newest change to 0; '' if it is not known."""
        is_named = limit in self._policy().policy.limits
        entry = re.escape(limit if is_named else pattern_of(limit))
        pattern = re.compile(
            rf"limits\.{entry}\.at_once(?:: \d+ -> 0| is new: 0)(?!\d)"
            rf"|limits\.{entry} is new: at_once = 0(?!\d)"
        )
        for version in self._policy().versions:
            if pattern.search(version.changes):
                age = age_text((self._now_ms - version.at_ms) / 1000)
                return f"paused by {version.by or 'somebody'}, {age} ago"
        return ""
