"""The reason why a tenant or a limit keeps a task waiting, by what its account holds. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ..model.account import KEY_MARK, TENANT_MARK
from ..model.account_line import UNREAD_CEILING, AccountLine, Ceiling
from ..model.amount import THOUSANDTHS, shown_amount
from ..model.human import age_text
from ..model.ids import close_to
from ..model.kind import Kind
from ..model.needs import are_needs, parse_needs

_PERIODS: Final = {1000: "a second", 60_000: "a minute", 3_600_000: "an hour", 86_400_000: "a day"}

Cause = Literal["unknown", "damaged", "paused", "too_large", "full", "rate"]


@dataclass(frozen=True, slots=True)
class AccountBlock:
    """An account that keeps a task waiting.

    account: `@acme` or `stripe`.
    cause: unknown (the policy has no such limit), damaged, paused (at_once is 0), too_large (no
        task of the kind ever fits the ceiling), full, or rate.
    why: a sentence, which does not change with every task that ends.
    free_ms: for a rate, when (server time) the next such task may start.
    """

    account: str
    cause: Cause
    why: str
    free_ms: float | None = None

    @property
    def is_lasting(self) -> bool:
        """Return whether such a task waits until an operator changes the policy."""
        return self.cause in ("unknown", "paused", "too_large")


def account_shown(account: str) -> str:
    """Return an account for people: 'tenant acme', 'limit stripe'."""
    if account.startswith(TENANT_MARK):
        return f"tenant {account.removeprefix(TENANT_MARK)}"
    return f"limit {account}"


def find_block(
    kind: Kind,
    lines: Mapping[str, AccountLine],
    ceilings: Mapping[str, str | None],
    now_ms: float,
    limits: Collection[str] = (),
) -> AccountBlock | None:
    """Return the account that keeps tasks of a kind waiting, None if all have room for one.

    Of several accounts a lasting one is returned, else the first, tenants from the root down.

    lines: what the accounts hold; a missing line holds nothing.
    ceilings: the ceiling of each account, '' or '-' for none; None or a missing one is a limit
        that the policy does not have, or a tenant without a ceiling.
    now_ms: server time.
    limits: names of limits, from which a misspelled one is mended.
    """
    blocks = [
        block
        for account, units in kind.accounts
        if not account.startswith(KEY_MARK)
        and (
            block := _block(
                account,
                _asked(kind, account, units),
                lines.get(account, AccountLine()),
                ceilings.get(account),
                now_ms,
                limits,
            )
        )
    ]
    return next((block for block in blocks if block.is_lasting), blocks[0] if blocks else None)


def _asked(kind: Kind, account: str, units: int) -> dict[str, int]:
    """Return what one task of a kind holds of an account, in thousandths."""
    if not account.startswith(TENANT_MARK):
        return {"units": units * THOUSANDTHS}
    if not are_needs(kind.needs):
        return {}
    needs = parse_needs(kind.needs)
    return {"slots": needs.slots * THOUSANDTHS, **dict(needs.amounts)}


def _block(
    account: str,
    asked_amounts: Mapping[str, int],
    line: AccountLine,
    text: str | None,
    now_ms: float,
    limits: Collection[str],
) -> AccountBlock | None:
    subject = account_shown(account)
    is_tenant = account.startswith(TENANT_MARK)
    if text is None and not is_tenant:
        close = close_to(account, limits)
        hint = f"; did you mean {close}?" if close else ""
        return AccountBlock(
            account,
            "unknown",
            f"no limit {account!r} is in the policy or declared by a worker{hint}",
        )
    if text == UNREAD_CEILING:
        why = f"what {subject} may hold cannot be read: the leader writes it anew"
        return AccountBlock(account, "damaged", why)
    has_ceiling = not is_tenant or bool(Ceiling.of(text or "").amounts)
    if line.is_damaged and has_ceiling:
        why = f"what {subject} holds is not known: the leader counts it anew"
        return AccountBlock(account, "damaged", why)
    ceiling = Ceiling.of(text or "")
    for name, most in ceiling.amounts.items():
        amount = asked_amounts.get(name, 0)
        if amount == 0:
            continue
        if name == "units" and most == 0:
            return AccountBlock(account, "paused", f"{subject} is 0: it is paused")
        if amount > most:
            text_most = _amount_shown(name, most)
            why = f"{subject} may hold at most {text_most}; one such task asks for "
            return AccountBlock(account, "too_large", why + _amount_shown(name, amount))
        if line.amounts.get(name, 0) + amount > most:
            return AccountBlock(account, "full", _full(subject, name, line, most))
    return _rate_block(account, asked_amounts.get("units", 0) // THOUSANDTHS, line, ceiling, now_ms)


def _full(subject: str, name: str, line: AccountLine, most: int) -> str:
    amount = shown_amount(line.amounts.get(name, 0))
    if name == "units":
        return f"{subject}: {amount} of {shown_amount(most)} are held"
    if name == "slots":
        return f"{subject} holds {amount} of at most {shown_amount(most)} slots"
    return f"{subject} holds {name}={amount} of at most {name}={shown_amount(most)}"


def _amount_shown(name: str, amount: int) -> str:
    text = shown_amount(amount)
    return f"{text} {name}" if name in ("units", "slots") else f"{name}={text}"


def _rate_block(
    account: str, units: int, line: AccountLine, ceiling: Ceiling, now_ms: float
) -> AccountBlock | None:
    if ceiling.rate is None:
        return None
    subject = account_shown(account)
    if units > ceiling.burst:
        why = f"{subject} has a burst of {ceiling.burst}; one such task asks for {units} units"
        return AccountBlock(account, "too_large", why)
    start_ms = ceiling.start_ms(line, units, now_ms)
    if start_ms <= now_ms:
        return None
    period_ms = ceiling.rate.period_ms
    period = _PERIODS.get(period_ms) or age_text(period_ms / 1000)
    why = f"{subject}: {ceiling.rate.number:,} in {period} are used up"
    return AccountBlock(account, "rate", why, start_ms)
