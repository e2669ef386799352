"""The rules for names and ids, checked where a name enters, so that no stored text needs escapes.

A task id may be any text that Celery takes. Keys, indexes and doorbells hold its encoded form
(`encode_id`), which has no spaces and no characters that have a meaning there.
"""

import os
import re
from binascii import crc_hqx
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final
from urllib.parse import quote, unquote

from ..errors import InvalidInput

_NAME_RULES: Final = {
    "task name": (
        re.compile(r"[!-~]{1,255}"),
        "1 to 255 printable ASCII characters without spaces",
    ),
    "node name": (
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}"),
        "1 to 128 letters, digits or _.@-",
    ),
    "cluster name": (
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"),
        "1 to 64 letters, digits or _.-",
    ),
    "scheduler name": (
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"),
        "1 to 128 letters, digits or _.-",
    ),
    "resource name": (
        re.compile(r"[a-z][a-z0-9_]{0,31}"),
        "1 to 32 lower-case letters, digits or _, a letter first",
    ),
    "device name": (
        re.compile(r"[a-z][a-z0-9_]{0,31}"),
        "1 to 32 lower-case letters, digits or _, a letter first",
    ),
    "label name": (
        re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}"),
        "1 to 63 letters, digits or _.-, a letter first",
    ),
    "label value": (re.compile(r"[A-Za-z0-9_./-]{1,63}"), "1 to 63 letters, digits or _./-"),
    "key": (
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+/-]{0,127}"),
        "1 to 128 letters, digits or _.:@+/-, a letter or digit first",
    ),
    "taint": (re.compile(r"[A-Za-z0-9_./-]{1,63}"), "1 to 63 letters, digits or _./-"),
}


CLOSE: Final = 0.7
"""The difflib ratio from which a word may be a misspelling of a word that is right."""
VERY_CLOSE: Final = 0.85
"""The same ratio where any other word is right as well: `async` is no misspelling."""


def close_to(word: object, valid_words: Iterable[str], ratio: float = CLOSE) -> str:
    """Return the valid word most like `word`; '' if none is close or `word` is valid."""
    words = list(valid_words)
    close = (
        get_close_matches(word, words, 1, ratio)
        if isinstance(word, str) and word not in words
        else []
    )
    return close[0] if close else ""


def readable(value: bytes) -> str:
    """Return the text of bytes; bytes that are not UTF-8 become escapes.

    No name or number has such an escape, so damaged bytes never pass for one.
    """
    return value.decode(errors="backslashreplace")


def number_text(value: object) -> str:
    """Return a number as text; '' for a whole number over 128 bits, which str() may refuse."""
    return "" if isinstance(value, int) and value.bit_length() > 128 else str(value)


def shown(value: object) -> str:
    """Return a value for an error message: on one line, at most 100 characters."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except Exception:
        # nested too deep, or a repr of its own that fails
        text = f"a {type(value).__name__} that cannot be shown"
    text = " ".join(text.split("\n"))
    return text if len(text) <= 100 else f"{text[:97]}..."


def is_name(noun: str, value: str) -> bool:
    """Return whether a text is a valid name; noun: a key of _NAME_RULES, 'node name'."""
    return _NAME_RULES[noun][0].fullmatch(value) is not None


def check_name(noun: str, value: object) -> str:
    """Return `value` if it is a valid name; raises InvalidInput with the rule.

    noun: as for `is_name`.
    """
    pattern, rule = _NAME_RULES[noun]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidInput(f"{noun} {shown(value)} is not valid: it must be {rule}")
    return value


MAX_ID: Final = 255
"""Characters of a task id, as in Celery's result backends."""

MAX_ENCODED_ID: Final = MAX_ID * 4 * 3
"""Bytes of an encoded id: a character has up to 4 bytes of UTF-8, and each may become %XX."""

_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,254}")
_ID_SIGNS: Final = "_.:@+-"


def encode_id(id: object) -> str:
    """Return the encoded form of a task id, as keys and records have it; raises InvalidInput.

    The encoded form begins with a letter, a digit or %XX. Characters other than letters, digits and
    _.:@+- become %XX. Most ids are unchanged.
    """
    if isinstance(id, str):
        if _PLAIN_ID.fullmatch(id):
            return id
        if is_id(id):
            encoded = quote(id, safe=_ID_SIGNS).replace("~", "%7E")
            return (
                encoded if encoded[0] not in _ID_SIGNS else f"%{ord(encoded[0]):02X}{encoded[1:]}"
            )
    raise InvalidInput(
        f"task id {shown(id)} is not valid: it must be a text of 1 to {MAX_ID} characters"
    )


def new_id() -> str:
    """Return a new task id as Celery makes them: a random UUID, version 4."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


_LAST_DIGITS: Final = [f"{number:03x}".encode() for number in range(4096)]


def id_in_shard(shard: int, shards: int, prefix: str = "") -> str:
    """Return a new task id that belongs to this shard: a random UUID but for its last digits.

    prefix: plain text that begins the id.
    """
    while True:
        id = prefix + new_id()
        before = crc_hqx(id[:-3].encode(), 0)
        first = int(id[-3:], 16)
        for number in range(first, first + 4096):
            if crc_hqx(_LAST_DIGITS[number & 4095], before) % shards == shard:
                return f"{id[:-3]}{number & 4095:03x}"


def is_id(text: str) -> bool:
    """Return whether a text can be a task's id."""
    return 1 <= len(text) <= MAX_ID and _is_unicode(text)


def decode_id(encoded: str) -> str:
    """Return the task id of an encoded form."""
    return unquote(encoded) if "%" in encoded else encoded


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def shard_of(id: str, shards: int) -> int:
    """Return the shard of an encoded task id: Redis' CRC16 modulo the number of shards."""
    return crc_hqx(id.encode(), 0) % shards if shards > 1 else 0


def shards_of(ids: Iterable[str], shards: int) -> list[int]:
    """Return the shard of each of these tasks."""
    return [crc_hqx(id.encode(), 0) % shards for id in ids]
