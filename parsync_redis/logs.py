"""The log lines of parsync's processes: text for people, or JSON for programs, an object a line."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from .errors import InvalidInput

JSON_FORMAT: Final = "json"
LEVELS: Final = ("debug", "info", "warning", "error")
LINE: Final = "%(asctime)s %(levelname)s %(message)s"

_PLACEHOLDER: Final = re.compile(
    r"%%|(?:\b(task|attempt|node|scheduler) )?%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]"
)


class JsonFormatter(logging.Formatter):
    """A formatter of records as JSON.

    A thing that a message names, as in 'task %s', is a field too. about: returns further fields of
    each line.
    """

    def __init__(self, about: Callable[[], Mapping[str, object]] = dict) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON, on one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            **self._about(),
            **named_in(record),
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        return json.dumps(line, default=str)


def named_in(record: logging.LogRecord) -> dict[str, object]:
    """Return the task, attempt, node and scheduler that the message of a record names."""
    args = record.args
    if isinstance(args, Mapping):  # Celery's lines about a task
        keys = {"task": "id", "name": "name"}
        return {field: args[key] for field, key in keys.items() if key in args}
    if not isinstance(record.msg, str) or not args:
        return {}
    return {field: args[position] for field, position in _fields_of(record.msg)}


@lru_cache(maxsize=1024)
def _fields_of(template: str) -> tuple[tuple[str, int], ...]:
    """Return the fields that a message names, each with the number of its argument."""
    fields = [match[1] for match in _PLACEHOLDER.finditer(template) if match[0] != "%%"]
    return tuple((field, position) for position, field in enumerate(fields) if field)


def formatter_of(
    form: str, line: str = LINE, about: Callable[[], Mapping[str, object]] = dict
) -> logging.Formatter:
    """Return the formatter of a format, 'text' or 'json'.

    line: the format of a text line.
    about: as for `JsonFormatter`.
    """
    return JsonFormatter(about) if form == JSON_FORMAT else logging.Formatter(line)


def check_level(level: str) -> str:
    """Return a level of logging; raises InvalidInput for any other word."""
    if level not in LEVELS:
        raise InvalidInput(f"--log-level {level!r} is not known: known are {', '.join(LEVELS)}")
    return level


def log_to_stderr(level: str, form: str, **about: str) -> None:
    """Make this process log to its standard error.

    about: fields of each line, if `form` is 'json'.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(formatter_of(form, about=lambda: about))
    logging.basicConfig(level=level.upper(), handlers=[handler])
