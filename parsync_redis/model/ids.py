"""Names and ids: what they may look like, checked where they enter, so that no text built from them needs escapes."""

import re
from typing import Final

from ..errors import InvalidInput

_RULES: Final = {
    "task id": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,127}"), "1 to 128 letters, digits or _.:@+-"),
    "task name": (re.compile(r"[!-~]{1,255}"), "1 to 255 printable ASCII characters without spaces"),
    "node name": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}"), "1 to 128 letters, digits or _.@-"),
    "cluster name": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"), "1 to 64 letters, digits or _.-"),
    "scheduler name": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"), "1 to 128 letters, digits or _.-"),
    "resource name": (re.compile(r"[a-z][a-z0-9_]{0,31}"), "1 to 32 lower-case letters, digits or _, a letter first"),
    "label name": (re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}"), "1 to 63 letters, digits or _.-, a letter first"),
    "label value": (re.compile(r"[A-Za-z0-9_./-]{1,63}"), "1 to 63 letters, digits or _./-"),
}


def readable(value: bytes) -> str:
    """The text of bytes; of damaged ones with escapes, so that no name and no number is found in them by mistake."""
    return value.decode(errors="backslashreplace")


def shown(value: object) -> str:
    """A value as an error shows it: on one line, not too long, whatever it is."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except Exception:
        text = f"a {type(value).__name__} that cannot be shown"  # nested too deep, or a repr of its own that fails
    text = " ".join(text.split("\n"))
    return text if len(text) <= 100 else f"{text[:97]}..."


def check_name(kind: str, value: object) -> str:
    """Returns `value` if it is a well-formed name of that kind; raises InvalidInput saying what would be."""
    pattern, rule = _RULES[kind]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidInput(f"{kind} {shown(value)} is not valid: it must be {rule}")
    return value
