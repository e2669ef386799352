"""The audit of accounts: their lines and their holders are what the tasks hold."""

from collections import Counter
from collections.abc import Iterator, Mapping

from parsync_redis.model.kind import Kind
from parsync_redis.model.record import TaskLine
from parsync_redis.store.reference.accounts import KeptAccount, shares_of


def audit_accounts(
    tasks: Mapping[str, str],
    held_ids: set[str],
    lines: Mapping[str, str],
    holders: Mapping[str, set[str]],
) -> Iterator[str]:
    """Yield a sentence for each account that differs from the tasks that count to it.

    tasks: id -> line. held_ids: the tasks that are taken, placed or running.
    lines: account -> its line. holders: account -> the ids in its key.
    """
    expected: dict[str, KeptAccount] = {}
    for id in held_ids & tasks.keys():
        try:
            kind = Kind.of(TaskLine.of(tasks[id]).kind).text
        except ValueError:
            continue
        for account, share in shares_of(kind):
            line = expected.setdefault(account, KeptAccount())
            line.holders[id] = 0
            line.add(share, 1)
    for account in sorted(expected.keys() | lines.keys() | holders.keys()):
        counted = expected.get(account, KeptAccount())
        words = Counter(word for word in lines.get(account, "n=0").split() if is_amount(word))
        if words != Counter(counted.text.split()):
            yield f"account {account}: its line is {lines.get(account)}, it holds {counted.text}"
        if holders.get(account, set()) != counted.holders.keys():
            ids = sorted(holders.get(account, ()))
            yield f"account {account}: its holders are {ids}, not {sorted(counted.holders)}"


def is_amount(word: str) -> bool:
    """Return whether a word of an account's line counts what its holders hold."""
    return word != "full" and not word.startswith("next=")
