r"""Text from the state, made safe for terminals and logs.

Whoever may submit a task chooses its name, so the text may have control characters, line breaks, or
characters that turn the direction of writing. Such a character is shown as an escape (\x1b).
"""

import logging
from traceback import TracebackException
from typing import Final

_LOGGER_NAMES: Final = "agent bench client guard leader quarantine scheduler serve store"
LOGGER_SUFFIXES: Final = ("", *(f".{name}" for name in _LOGGER_NAMES.split()))
"""The names of parsync's loggers below 'parsync'.

A filter of a logger does not see the records of loggers below it, so each logger needs the filter.
"""


def printable(text: object) -> str:
    """Return a text on one line, with an escape for each character that is not printable."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def guard_logs() -> None:
    """Make the records of parsync's loggers printable, with the texts of exceptions."""
    for name in LOGGER_SUFFIXES:
        # a second call changes nothing
        logging.getLogger(f"parsync{name}").addFilter(_make_printable)


def _make_printable(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if not message.isprintable():
        record.msg = printable(message)
        record.args = ()
    if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
        traceback = TracebackException.from_exception(record.exc_info[1]).format()
        record.exc_text = "\n".join(_lines(chunk) for chunk in traceback)
    return True


def _lines(chunk: str) -> str:
    """Return a part of a traceback: source lines unchanged, the exception's text on one line."""
    text = chunk.rstrip("\n")
    if text.startswith("  File "):
        return "\n".join(map(printable, text.split("\n")))
    return printable(text.strip("\n"))
