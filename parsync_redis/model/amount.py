"""Amounts of resources: exact numbers with up to three decimals, kept as whole thousandths.

    1   0.5   4294967296   1.125

Redis stores this text. The text has no zeros at its end, so that equal amounts have equal texts. No
amount is ever a float: lua/lib/node/thousandths.lua computes with the whole part and the
thousandths apart.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Final

from ..errors import InvalidInput
from .ids import number_text, shown

MAX_AMOUNT: Final = 2**53 - 1
"""The largest amount; larger numbers are not exact in Lua."""

THOUSANDTHS: Final = 1000

MAX_WITH_DECIMALS: Final = 10**12
"""The bound of amounts with decimals: their thousandths are exact in Lua as well."""

AMOUNT_PATTERN: Final = r"(?:\d{1,16}|\d{1,12}\.\d{0,2}[1-9])"
"""The text of an amount, as a regular expression."""

_UNITS: Final = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "KB": Fraction(10**3),
    "MB": Fraction(10**6),
    "GB": Fraction(10**9),
    "TB": Fraction(10**12),
    "KiB": Fraction(2**10),
    "MiB": Fraction(2**20),
    "GiB": Fraction(2**30),
    "TiB": Fraction(2**40),
}
_NUMBER_AND_UNIT: Final = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]*)")


def parse_amount(name: str, value: object) -> int:
    """Return an amount (1, 0.5, "500m", "64GiB", "1.5GB") in thousandths; raises InvalidInput."""
    text = (
        number_text(value)
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        else value
    )
    if (
        isinstance(text, str)
        and (match := _NUMBER_AND_UNIT.fullmatch(text.strip()))
        and match[2] in _UNITS
    ):
        exact = Fraction(match[1]) * _UNITS[match[2]] * THOUSANDTHS
        most = (MAX_WITH_DECIMALS if exact % THOUSANDTHS else MAX_AMOUNT) * THOUSANDTHS
        if exact.denominator == 1 and exact <= most:
            return int(exact)
    units = " ".join(unit for unit in _UNITS if unit)
    raise InvalidInput(
        f"resource {name}={shown(value)} is not an amount: it must be a number from 0 to 2^53-1, "
        f"with at most three decimals below 10^12, or a number with one of the units {units}"
    )


def read_amount(text: str) -> int:
    """Return the thousandths of a text that `amount_text` wrote; a minus may precede the number."""
    whole, point, part = text.partition(".")
    if not point:
        return int(whole) * THOUSANDTHS
    size = int(whole.lstrip("-")) * THOUSANDTHS + int(part.ljust(3, "0"))
    return -size if text[0] == "-" else size


def amount_text(thousandths: int) -> str:
    """Return the text of an amount: '1', '0.5'."""
    whole, part = divmod(abs(thousandths), THOUSANDTHS)
    sign = "-" if thousandths < 0 else ""
    return f"{sign}{whole}.{part:03d}".rstrip("0") if part else f"{sign}{whole}"


_UNITS_SHOWN: Final = ("TiB", "GiB", "MiB", "T", "G", "M")
"""The units that people read, in the order in which they are tried."""


def exact_text(thousandths: int) -> str:
    """Return an amount for people, with a unit if the number has at most three decimals: '4GiB'.

    `parse_amount` reads the text.
    """
    for unit in _UNITS_SHOWN:
        size = int(_UNITS[unit])
        if thousandths >= size * THOUSANDTHS and thousandths % size == 0:
            return amount_text(thousandths // size) + unit
    return amount_text(thousandths)


def shown_amount(thousandths: int) -> str:
    """Return an amount for people: exact if short, else with a unit and four digits, '7.998GiB'."""
    exact = exact_text(thousandths)
    for unit in _UNITS_SHOWN[:3] if exact.isdecimal() else ():
        size = int(_UNITS[unit]) * THOUSANDTHS
        if thousandths >= size:
            return f"{thousandths / size:.4g}{unit}"
    return exact


def amount_number(thousandths: int) -> int | float:
    """Return an amount as a number for JSON: an int if whole, or the nearest float."""
    whole, part = divmod(thousandths, THOUSANDTHS)
    return thousandths / THOUSANDTHS if part else whole


def amount_numbers(amounts: Iterable[tuple[str, int]]) -> dict[str, int | float]:
    """Return {name: amount} with numbers for JSON."""
    return {name: amount_number(amount) for name, amount in amounts}
