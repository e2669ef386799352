r"""Text from the state as terminals and logs may show it: whoever may submit a task chooses its
name, and more.

A control character, a line break or a character that turns the direction of writing is shown as an
escape (\x1b).
"""

import logging
from traceback import TracebackException
from typing import Final

_LOGGER_NAMES: Final = "agent bench client guard leader quarantine scheduler serve store"
LOGGER_SUFFIXES: Final = ("", *(f".{name}" for name in _LOGGER_NAMES.split()))
"""The names of parsync's loggers behind 'parsync': a filter of a logger does not see the records of
those below it.
"""


def printable(text: object) -> str:
    """Return a text on one line, each character that is not printable as an escape."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def guard_logs() -> None:
    """Let each record of parsync's loggers be printable, also the text of an exception."""
    for name in LOGGER_SUFFIXES:
        # a second time changes nothing
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
    """Return a part of a traceback: source lines as they are, and what the exception says on one
    line.
    """
    text = chunk.rstrip("\n")
    if text.startswith("  File "):
        return "\n".join(map(printable, text.split("\n")))
    return printable(text.strip("\n"))
