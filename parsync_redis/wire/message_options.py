"""Celery's options of a message: their checks, and their times."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..errors import InvalidInput
from ..model.ids import shown
from ..model.options import is_seconds, unknown_option

_TEXT_OPTION: Final = (str, "text")
_OPTION_RULES: Final[Mapping[str, tuple[type, str]]] = {
    "ignore_result": (bool, "True or False"),
    "shadow": _TEXT_OPTION,
    "serializer": _TEXT_OPTION,
    "headers": (Mapping, "a mapping"),
    "reply_to": _TEXT_OPTION,
    "root_id": _TEXT_OPTION,
    "parent_id": _TEXT_OPTION,
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

Celery's countdown is not among them: the task queue holds tasks that are not due yet.
"""


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return checked options; `expires` becomes the text of a header (ISO 8601 with its zone).

    Raises InvalidInput.
    """
    for name, value in options.items():
        if name not in CELERY_OPTIONS:
            raise unknown_option("option", name, CELERY_OPTIONS)
        if (
            value is not None
            and (rule := _OPTION_RULES.get(name))
            and not isinstance(value, rule[0])
        ):
            raise InvalidInput(f"{name}={shown(value)} is not valid: it must be {rule[1]}")
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
        expiry = expires if expires.tzinfo else expires.replace(tzinfo=UTC)
    elif is_seconds(expires):
        expiry = datetime.now(UTC) + timedelta(seconds=expires)
    else:
        raise InvalidInput(
            f"expires={shown(expires)} is not valid: it must be a number of seconds above 0, or a "
            "datetime"
        )
    return {**options, "expires": expiry.isoformat()}


def until_ms(field: str, moment: str | datetime) -> int:
    """Return the milliseconds from now until a moment, below 0 if the moment is past.

    moment: a datetime or its ISO 8601 text; a naive datetime counts as UTC. Raises InvalidInput,
    naming `field`.
    """
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise InvalidInput(
            f"{field}={shown(moment)} is not valid: it must be a datetime, or one as ISO 8601 "
            "writes it"
        ) from None
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return int((parsed - datetime.now(UTC)).total_seconds() * 1000)
