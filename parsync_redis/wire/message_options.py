"""Celery's options of a message: their checks, and their times."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..errors import InvalidInput
from ..model.ids import shown
from ..model.option import unknown_option
from ..model.options import is_seconds

_TEXT: Final = (str, "text")
_RIGHT: Final[Mapping[str, tuple[type, str]]] = {
    "ignore_result": (bool, "True or False"),
    "shadow": _TEXT,
    "serializer": _TEXT,
    "headers": (Mapping, "a mapping"),
    "reply_to": _TEXT,
    "root_id": _TEXT,
    "parent_id": _TEXT,
}

CELERY_OPTIONS: Final = (
    "expires",
    "time_limit",
    "soft_time_limit",
    "ignore_result",
    "shadow",
    "serializer",
    "headers",
    "link",
    "link_error",
    "reply_to",
    "root_id",
    "parent_id",
)
"""The options of Celery that a message made here can carry.

Not countdown: the task queue holds what is not due.
"""


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return checked options; `expires` is the text that a header carries (ISO 8601 with its zone).

    Raises InvalidInput.
    """
    for name, value in options.items():
        if name not in CELERY_OPTIONS:
            raise unknown_option("option", name, CELERY_OPTIONS)
        if value is not None and (right := _RIGHT.get(name)) and not isinstance(value, right[0]):
            raise InvalidInput(f"{name}={shown(value)} is not valid: it must be {right[1]}")
        if (
            name in ("time_limit", "soft_time_limit")
            and value is not None
            and not is_seconds(value)
        ):
            raise InvalidInput(
                f"{name}={shown(value)} is not valid: it must be a number of seconds above 0"
            )
    if (expires := options.get("expires")) is None:
        return options
    if isinstance(expires, datetime):
        at = expires if expires.tzinfo else expires.replace(tzinfo=UTC)
    elif is_seconds(expires):
        at = datetime.now(UTC) + timedelta(seconds=expires)
    else:
        raise InvalidInput(
            f"expires={shown(expires)} is not valid: it must be a number of seconds above 0, or a "
            "datetime"
        )
    return {**options, "expires": at.isoformat()}


def until_ms(what: str, moment: str | datetime) -> int:
    """Return the milliseconds from now until a moment (a datetime or ISO 8601; UTC without a zone),
    below 0 if past.

    Raises InvalidInput, naming `what`.
    """
    try:
        at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise InvalidInput(
            f"{what}={shown(moment)} is not valid: it must be a datetime, or one as ISO 8601 "
            "writes it"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return int((at - datetime.now(UTC)).total_seconds() * 1000)
