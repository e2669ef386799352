"""The headers of a task's message that Celery's worker acts on before the task's own code runs.

Celery trusts these headers: a time limit that is a list ends the worker, and ends the next worker
that gets the message. So parsync checks the headers twice: where a task is submitted, and in the
worker before Celery sees the message, because anybody who may write to a queue may have sent it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ..model.account import TENANT_RULE
from ..model.ids import shown
from ..model.options import MAX_SECONDS, is_tenant
from .message_options import until_ms
from .tenant import TENANT_HEADER


class _Rule(NamedTuple):
    holds: Callable[[Any], bool]
    right: str


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_seconds(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or (is_number and 0 <= value < MAX_SECONDS)  # type: ignore[operator]


def _are_limits(value: object) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_seconds, value))


def _is_moment(value: object) -> bool:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return False
    return isinstance(value, datetime) and _timestamp(value) is not None


def _are_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


_TEXT_RULE: Final = _Rule(_is_text, "text")
_COUNT_RULE: Final = _Rule(_is_count, "a whole number from 0")
_MOMENT_RULE: Final = _Rule(_is_moment, "a moment as ISO 8601 writes it")
_HEADER_RULES: Final[Mapping[str, _Rule]] = {
    "timelimit": _Rule(
        _are_limits, f"two numbers of seconds from 0 to {MAX_SECONDS:.0e}, hard and soft"
    ),
    "eta": _MOMENT_RULE,
    "expires": _MOMENT_RULE,
    "retries": _COUNT_RULE,
    "replaced_task_nesting": _COUNT_RULE,
    "group_index": _Rule(lambda value: isinstance(value, int), "a whole number"),
    "ignore_result": _Rule(lambda value: isinstance(value, bool), "True or False"),
    "stamped_headers": _Rule(_are_texts, "a list of names"),
    "stamps": _Rule(_is_mapping, "a mapping"),
    **dict.fromkeys(("lang", "shadow", "origin", "argsrepr", "kwargsrepr", "meth"), _TEXT_RULE),
    **dict.fromkeys(("root_id", "parent_id", "group"), _TEXT_RULE),
    TENANT_HEADER: _Rule(is_tenant, TENANT_RULE),
}
"""The rule for the value of each header; a header may be missing or None."""


def flaw_of(headers: object) -> str:
    """Return what is wrong with the headers of a task's message, '' if Celery can act on them."""
    if not isinstance(headers, Mapping):
        return f"its headers are no mapping: {shown(headers)}"
    for name in ("task", "id"):
        if not isinstance(headers.get(name), str):
            return f"{name}={shown(headers.get(name))} is not valid: it must be text"
    for name, rule in _HEADER_RULES.items():
        value = headers.get(name)
        if value is not None and not rule.holds(value):
            return f"{name}={shown(value)} is not valid: it must be {rule.right}"
    return ""


def flaw_of_message(message: object) -> str:
    """Return what is wrong with a message of kombu's transports, '' if it can be opened.

    message: parsed from JSON.
    """
    if not isinstance(message, Mapping):
        return f"it is no mapping: {shown(message)}"
    properties = message.get("properties")
    if not isinstance(properties, Mapping) or not isinstance(properties.get("delivery_tag"), str):
        return "it has no properties with a delivery_tag"
    info = properties.get("delivery_info")
    if not isinstance(info, Mapping) or not all(
        isinstance(info.get(field), str) for field in ("exchange", "routing_key")
    ):
        return f"its delivery_info is {shown(info)}: it must name an exchange and a routing key"
    if not isinstance(message.get("headers"), (Mapping, type(None))):
        return f"its headers are no mapping: {shown(message.get('headers'))}"
    texts = {part: message.get(part) for part in ("body", "content-type", "content-encoding")}
    texts |= {
        part: properties.get(part) for part in ("body_encoding", "reply_to", "correlation_id")
    }
    flawed = [part for part, value in texts.items() if not isinstance(value, (str, type(None)))]
    return f"{flawed[0]}={shown(texts[flawed[0]])} is not valid: it must be text" if flawed else ""


def wait_s(eta: str | datetime | None) -> float:
    """Return the seconds until a task's eta, 0.0 if the eta is past or missing."""
    return max(0, until_ms("eta", eta)) / 1000 if eta else 0.0


def _timestamp(moment: datetime) -> float | None:
    """Return the POSIX timestamp of `moment`; a naive datetime counts as UTC.

    Returns None if the moment is out of range.
    """
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None
