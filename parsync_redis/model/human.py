"""Write durations, needs and labels for people.

Programs read milliseconds and whole amounts instead, from `--json`.
"""

import re
from collections.abc import Mapping
from typing import Final

from .amount import AMOUNT_PATTERN, amount_text, exact_text, parse_amount, read_amount

_SIZES: Final = (("d", 86_400), ("h", 3600), ("m", 60))
_AMOUNT: Final = re.compile(rf"([^\s=:]+)=({AMOUNT_PATTERN})")
_SHOWN_AMOUNT: Final = re.compile(r"(?<=[ ])([a-z][a-z0-9_.]*)=(\S+)")


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
    return f"{match[1]}={exact_text(read_amount(match[2]))}" if match else word


def labels_shown(labels: Mapping[str, str]) -> str:
    """Return labels in the form of needs: 'gpu_model:a100 zone:a'.

    The colon tells a label from an amount, which has an equals sign: 'year=2024'.
    """
    return " ".join(f"{name}:{value}" for name, value in labels.items())


def needs_given(text: str) -> str:
    """Return the stored text of a kind that `needs_shown` wrote.

    'mem=4GiB' becomes 'mem=4294967296'. Raises InvalidInput.
    """
    return _SHOWN_AMOUNT.sub(lambda match: f"{match[1]}={_stored(match[1], match[2])}", text)


def _stored(name: str, amount: str) -> str:
    return amount_text(parse_amount(name, amount))
