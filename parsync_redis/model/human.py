"""Write durations, needs and labels for people, and read a moment as people write it.

A moment is 14:02, 10m (ago) or 2026-11-25T14:02; now and the time zone are arguments. Programs read
milliseconds and whole amounts instead, from `--json`.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from ..errors import InvalidInput
from .account import RESERVED_AMOUNTS
from .amount import AMOUNT_PATTERN, amount_text, exact_text, parse_amount, read_amount
from .ids import shown

_SIZES: Final = (("d", 86_400), ("h", 3600), ("m", 60))
_AMOUNT: Final = re.compile(rf"([^\s=:]+)=({AMOUNT_PATTERN})")
_SHOWN_AMOUNT: Final = re.compile(r"(?<=[ ])([a-z][a-z0-9_.]*)=(\S+)")

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][0-9:.]{1,15}(?:Z|[+-][0-9:]{1,15})?)?")
_AGO: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AHEAD: Final = re.compile(r"(?:in |\+)?(\d{1,9}(?:\.\d{1,3})?)([smhd]?)")


_LAST_MS: Final = 253_402_214_400_000
"""The beginning of the last day of the year 9999, in UTC: a datetime has no later years."""


def moment_of(ms: int) -> datetime:
    """Return a server time (POSIX, ms) in UTC; a time behind the year 9999 as its last day."""
    return datetime.fromtimestamp(min(ms, _LAST_MS) / 1000, UTC)


def clock_text(ms: int) -> str:
    """Return a server time (POSIX, ms) as text for people, in UTC."""
    return moment_of(ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def age_text(seconds: float) -> str:
    """Return a duration in at most two units: '40ms', '3.2s', '12s', '3m20s', '2h5m', '3d4h'."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for position, (unit, size) in enumerate(_SIZES):
        if whole >= size:
            smaller, step = _SIZES[position + 1] if position + 1 < len(_SIZES) else ("s", 1)
            smaller_count = whole % size // step
            return f"{whole // size}{unit}" + (f"{smaller_count}{smaller}" if smaller_count else "")
    return f"{whole}s"


def needs_shown(needs: str) -> str:
    """Return needs, or a kind, with readable amounts: 'slots=1 mem=4GiB'.

    No amount is rounded.
    """
    return " ".join(_word_shown(word) for word in needs.split(" "))


def _word_shown(word: str) -> str:
    match = _AMOUNT.fullmatch(word)
    if match is None or match[1] in RESERVED_AMOUNTS:
        return word
    return f"{match[1]}={exact_text(read_amount(match[2]))}"


def labels_shown(labels: Mapping[str, str]) -> str:
    """Return labels in the form of needs: 'gpu_model:a100 zone:a'.

    The colon tells a label from an amount, which has an equals sign: 'year=2024'.
    """
    return " ".join(f"{name}:{value}" for name, value in labels.items())


def needs_given(text: str) -> str:
    """Return the stored text of a kind that `needs_shown` wrote.

    'mem=4GiB' becomes 'mem=4294967296'. Raises InvalidInput.
    """
    return _SHOWN_AMOUNT.sub(_stored, text)


def _stored(word: re.Match[str]) -> str:
    name = word[1]
    if name in RESERVED_AMOUNTS:
        return word[0]
    return f"{name}={amount_text(parse_amount(name, word[2]))}"


def read_moment(
    noun: str, text: str, now_ms: int, zone: tzinfo | None = None, after_ms: int | None = None
) -> int:
    """Return a moment in ms since 1970; raises InvalidInput.

    zone: the time zone of texts without one; None is this machine's.
    after_ms: a time of day is the first from then on; without `after_ms` it is the last before now.
    """
    if ago := _AGO.fullmatch(text):
        return max(0, now_ms - round(1000 * float(ago[1]) * _UNITS_S[ago[2]]))
    try:
        if clock := _CLOCK.fullmatch(text):
            hour, minute, second = (int(word or 0) for word in clock.groups())
            reference_ms = now_ms if after_ms is None else after_ms
            day = datetime.fromtimestamp(reference_ms / 1000, UTC).astimezone(zone)
            time = day.replace(tzinfo=None, hour=hour, minute=minute, second=second, microsecond=0)
            moment = _in_zone(time, zone)
            if after_ms is None and moment > day:
                return _ms(_in_zone(time - timedelta(days=1), zone))
            if after_ms is not None and _ms(moment) < after_ms:
                return _ms(_in_zone(time + timedelta(days=1), zone))
            return _ms(moment)
        if not _DATE.fullmatch(text):
            raise ValueError(text)
        date_time = datetime.fromisoformat(text)
        return max(0, _ms(date_time if date_time.tzinfo else _in_zone(date_time, zone)))
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"{noun} {shown(text)} is not valid: it must be a time of day (14:02), how long ago "
            "(90s, 10m, 2h, 1d) or a date and time (2026-11-25T14:02)"
        ) from None


def read_future(noun: str, text: str, now_ms: int) -> int:
    """Return a moment ahead in ms since 1970: '10m' from now, the next 14:02, or a date and time.

    Raises InvalidInput.
    """
    if ahead := _AHEAD.fullmatch(text):
        return now_ms + round(1000 * float(ahead[1]) * _UNITS_S[ahead[2] or "s"])
    try:
        return read_moment(noun, text, now_ms, after_ms=now_ms)
    except InvalidInput:
        raise InvalidInput(
            f"{noun} {shown(text)} is not valid: it must be a time from now (30s, 10m, 2h), a time "
            "of day (14:02) or a date and time (2026-11-25T14:02)"
        ) from None


def _in_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    return moment.replace(tzinfo=zone) if zone else moment.astimezone()


def _ms(moment: datetime) -> int:
    return round(1000 * moment.timestamp())


def local_text(ms: int) -> str:
    """Return a server time as this machine's clock showed it: '11-25 14:02:31.123'."""
    return moment_of(ms).astimezone().strftime("%m-%d %H:%M:%S.%f")[:-3]
